"""Faces of a grade: each module turns a `Grade`, and nothing else, into one format."""
