"""`quiz check`: proves the keys of quizzes by running their code."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command("check")(check)


def check(
    paths: Annotated[
        list[Path] | None, typer.Argument(metavar="[PATHS]...", help="Quiz files, or folders of them.")
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="Prove everything anew.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Let warnings count as errors.")] = False,
) -> int:
    """Check quizzes: how they are written, and that running their code proves their keys."""
    from grader.located import listing
    from grader.quiz.loading import read_quizzes
    from grader.quiz.proof.prove import prove
    from grader.quiz.proof.store import stored

    loaded = read_quizzes(paths or [Path("quizzes")])
    prove(loaded.files, again=again)
    faults = list(
        dict.fromkeys([*loaded.faults, *(f for file in loaded.files for f in file.document.faults)])
    )
    if faults:
        print(listing(faults) + "\n")
    for file in loaded.files:
        print(f"{file.path}: {len(file.quiz.questions)} questions, {len(stored(file))} proven")
    return 1 if any(strict or fault.severity == "error" for fault in faults) else 0
