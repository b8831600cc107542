"""The command `quiz`: proves quizzes, renders them, lets people take them, hands them to an LMS.

Each subcommand is a module of `grader.quiz.commands`, which imports what is heavy only when it runs, so that
`quiz --help` answers at once.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import typer

from grader.quiz.problem import QuizProblem

USAGE, INTERRUPTED = 2, 130  # exit codes
COMMANDS = ("check", "render", "take", "export", "import_", "explain", "schema")
_UsageError: Any = typer.BadParameter.__base__  # of the click that typer brings along

app = typer.Typer(
    help="Quizzes about multi-GPU training: checked, proven, rendered, taken, exported.",
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=True,
)
for _name in COMMANDS:
    import_module(f"grader.quiz.commands.{_name}").add_to(app)


def execute(arguments: Sequence[str]) -> int:
    """Run the command and return its exit code; every expected outcome is a sentence."""
    try:
        command = typer.main.get_command(app)
        code = command.main(list(arguments) or ["--help"], prog_name="quiz", standalone_mode=False)
    except KeyboardInterrupt:
        return INTERRUPTED
    except QuizProblem as problem:
        print(f"quiz: {problem}", file=sys.stderr)
        return problem.code
    except _UsageError as problem:
        print(
            f"quiz: {problem.format_message().rstrip('.')}. `quiz --help` shows what there is.",
            file=sys.stderr,
        )
        return USAGE
    return code or 0


def main() -> None:
    """Entry point of the console command."""
    sys.exit(execute(sys.argv[1:]))
