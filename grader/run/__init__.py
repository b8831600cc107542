"""Runs baseline and submission and gathers what they were seen to do."""

from grader.run.gather import gather
from grader.run.launch import ServerBroken
from grader.run.submission import SubmissionMissing

__all__ = ["ServerBroken", "SubmissionMissing", "gather"]
