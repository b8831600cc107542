"""Quizzes: written in YAML, proven by running, taken in a browser or a terminal, handed to an LMS."""
