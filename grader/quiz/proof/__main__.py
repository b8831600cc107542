"""`python -m grader.quiz.proof quizzes/x.yaml ...` proves quizzes and lists what is wrong with them."""

from __future__ import annotations

import sys
from pathlib import Path

from pydantic import ValidationError

from grader.faults import blame_validation
from grader.located import listing, read
from grader.quiz.files import QuizFile
from grader.quiz.model import Quiz
from grader.quiz.proof.prove import prove
from grader.quiz.proof.store import stored


def main(paths: list[str]) -> int:
    """Return the exit code: 0 where every key holds."""
    files, faults = [], []
    for path in map(Path, paths):
        document = read(path)
        try:
            if not document.faults:
                files.append(QuizFile(path, Quiz.model_validate(document.value), document))
        except ValidationError as error:
            blame_validation(document, Quiz, error)
        if document.faults:
            faults += document.faults
    prove(files, again="--again" in sys.argv)
    for file in files:
        faults += file.document.faults
        proven = len(stored(file))
        print(f"{file.path}: {len(file.quiz.questions)} questions, {proven} proven")
    if faults:
        print(listing(faults))
    return 1 if any(fault.severity == "error" for fault in faults) else 0


if __name__ == "__main__":
    sys.exit(main([argument for argument in sys.argv[1:] if not argument.startswith("-")]))
