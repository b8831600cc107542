"""The command `grade`: finds what is meant, lets it be graded, shows the result.

Everything heavy is imported where it is needed, so that `grade --help` answers at once.
"""

from __future__ import annotations

import os
import shlex
import signal
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from grader import __version__
from grader.problems import UNGRADABLE, USAGE, answer, say

if TYPE_CHECKING:
    from rich.console import Console

    from grader.exercise import Exercise
    from grader.grade import Grade

PASSED, NOT_PASSED, INTERRUPTED, TERMINATED = 0, 1, 130, 143


GRADE = "EXERCISE"  # the command that is meant where none is named


class ExerciseFirst(TyperGroup):
    """A group of commands that takes any other first argument for an exercise to grade."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        known = {*self.commands, *ctx.help_option_names} - {GRADE}
        return super().parse_args(ctx, args if not args or args[0] in known else [GRADE, *args])

    def format_help(self, ctx: typer.Context, formatter: Any) -> None:  # type: ignore[override]
        """One page: grading with its arguments and options, then the other commands."""
        grading = self.commands[GRADE]
        formatter.write_usage("grade", "EXERCISE [SUBMISSION] [OPTIONS]")
        grading.format_help_text(ctx, formatter)
        grading.format_options(ctx, formatter)
        self.format_commands(ctx, formatter)
        formatter.write_paragraph()
        formatter.write_text(
            "Exit codes: 0 all checks passed, 1 not all, 2 a mistake in the command or a broken exercise, "
            "3 could not be graded."
        )


app = typer.Typer(
    cls=ExerciseFirst,
    add_completion=False,
    rich_markup_mode=None,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"multigpu-gym {__version__}")
        raise typer.Exit()


@app.command(GRADE, hidden=True)
def grade_command(
    exercise: Annotated[str, typer.Argument(metavar="EXERCISE", help="Folder or name of the exercise.")],
    submission: Annotated[
        Path | None,
        typer.Argument(
            metavar="[SUBMISSION]", help="File or folder to grade; the exercise's own script if left out."
        ),
    ] = None,
    gpus: Annotated[
        str,
        typer.Option(
            metavar="CHOICE",
            help="auto, real, real:1 (one real GPU, exercised but not graded), sim, "
            "or simulated ones as in sim:4xV100.",
        ),
    ] = "auto",
    json: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the grade as JSON; - is standard output.")
    ] = None,
    junit: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the grade as JUnit XML.")] = None,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the report as one HTML page.")
    ] = None,
    hint: Annotated[bool, typer.Option("--hint", help="Show the next hint; nothing is graded.")] = False,
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Run the baseline anew.")] = False,
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Show the version.")
    ] = False,
) -> int:
    """Grade a submission, on real GPUs where two or more are there, else on simulated ones."""
    from grader.report import targets

    chosen = {"--json": json, "--junit": junit, "--html": html}
    wanted = {option: path for option, path in chosen.items() if path is not None}
    if hint:
        if wanted:
            raise typer.BadParameter(f"--hint grades nothing, so there is nothing for {next(iter(wanted))}.")
        return _show_hint(_load(exercise), exercise)
    targets.check(wanted)
    loaded = _load(exercise)
    grade = grade_submission(loaded, submission or _typed(loaded), gpus, use_cache=not no_cache)
    if targets.STANDARD_OUTPUT not in wanted.values():
        _show(grade, loaded, exercise)
    _write(grade, wanted)
    return exit_code(grade)


@app.command("list")
def list_command() -> int:
    """List the exercises."""
    from grader.course import exercises
    from grader.exercise import BrokenExercise, load_exercise

    console = _console()
    broken = False
    for folder in exercises.known():
        try:
            exercise = load_exercise(folder)
            lines = exercise.title, exercise.summary
        except BrokenExercise as problem:
            lines, broken = ("(broken)", problem.summary), True
        console.print(f"{exercises.shown(folder)}: {lines[0]}", markup=False, soft_wrap=True)
        for line in textwrap.wrap(lines[1], console.width - 2):
            console.print(f"  {line}", markup=False, soft_wrap=True)
    return USAGE if broken else PASSED


@app.command("reset")
def reset_command(
    exercise: Annotated[str, typer.Argument(metavar="EXERCISE", help="Folder or name of the exercise.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before overwriting edits.")] = False,
) -> int:
    """Put the script back as it was handed out; your own is kept beside it."""
    from grader.course import exercises, reset

    loaded = _load(exercise)
    script = exercises.shown(loaded.folder / loaded.script)
    changed = reset.changed_lines(loaded)
    if changed == 0:
        typer.echo(f"{script} is as it was handed out; nothing to do.")
        return PASSED
    if changed and not yes:
        lines = f"{changed} changed line{'s' * (changed != 1)}"
        if not sys.stdin.isatty():
            return say(f"{script} has {lines}; add --yes to put it back (yours is kept beside it).", USAGE)
        if not typer.confirm(f"{script} has {lines}. Put it back as handed out, and keep yours beside it?"):
            typer.echo("Nothing was changed.")
            return NOT_PASSED
    backup = reset.restore(loaded)
    kept = f"; yours is now {exercises.shown(backup)}" if backup else ""
    typer.echo(f"{script} is as it was handed out{kept}.")
    return PASSED


@app.command("schema")
def schema_command() -> int:
    """Print the JSON Schema of what --json writes."""
    from grader.report import json as report

    typer.echo(report.schema(), nl=False)
    return PASSED


def grade_submission(exercise: Exercise, submission: Path, gpus: str, *, use_cache: bool) -> Grade:
    """Run and judge a submission, with a progress display on standard error."""
    from grader.report.progress import Display

    with Display(_console(stderr=True)) as progress:
        from grader import check, run

        evidence = run.gather(exercise, submission, gpus, progress, use_cache)
        return check.judge(exercise, evidence)


def exit_code(grade: Grade) -> int:
    """Return the command's exit code for a grade."""
    return {"passed": PASSED, "ungradable": UNGRADABLE}.get(grade.outcome.value, NOT_PASSED)


def _load(text: str) -> Exercise:
    from grader.course import exercises
    from grader.exercise import load_exercise

    return load_exercise(exercises.find(text))


def _typed(exercise: Exercise) -> Path:
    """The exercise's own script, as one would type its path from here."""
    from grader.course import exercises

    return Path(exercises.shown(exercise.folder / exercise.script))


def _show_hint(exercise: Exercise, typed: str) -> int:
    """Show the next hint; all of them once the last was shown, or where that cannot be remembered."""
    from grader.course import hints

    hint = hints.next_hint(exercise)
    console, total = _console(), hint.total
    command = f"grade {shlex.quote(typed)} --hint"
    if not hint.new or not hint.kept:
        for number in range(1, total + 1):
            _print_hint(console, f"Hint {number} of {total}", hints.text(exercise, number))
        if not hint.kept:
            console.print("Here are all: which of them were shown cannot be kept.", style="dim")
        return PASSED
    _print_hint(console, f"Hint {hint.number} of {total}", hint.text)
    if hint.remaining:
        rest = f"{hint.remaining} more remain{'s' * (hint.remaining == 1)}; `{command}` shows the next."
    else:
        rest = f"That was the last; `{command}` shows all of them again."
    console.print(rest, style="dim", markup=False, soft_wrap=True)
    return PASSED


def _print_hint(console: Console, heading: str, hint: str) -> None:
    from grader.report.terminal import WIDEST

    console.print(heading, style="bold")
    for line in textwrap.wrap(hint, min(console.width, WIDEST) - 2):
        console.print(f"  {line}", markup=False, soft_wrap=True)


def _show(grade: Grade, exercise: Exercise, typed: str) -> None:
    from grader.course import hints
    from grader.report.terminal import show

    try:
        show(grade, _console(), typed, min(hints.left(exercise), grade.hints_available))
        sys.stdout.flush()
    except BrokenPipeError:  # the reader, `head` for instance, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _write(grade: Grade, wanted: dict[str, Path]) -> None:
    """Write the reports asked for."""
    from grader.report import html, json, junit, targets

    faces = {"--json": json.dump, "--junit": junit.dump, "--html": html.render}
    for option, path in wanted.items():
        try:
            targets.write(path, faces[option](grade))
        except OSError as problem:
            raise targets.UnwritableTarget(
                f"{option} {path} could not be written: {problem.strerror}."
            ) from None


def _console(*, stderr: bool = False) -> Console:
    from grader.report.console import console

    return console(sys.stderr if stderr else sys.stdout)


def _terminate(number: int, frame: object) -> NoReturn:
    """End by unwinding, so that whatever runs is ended and cleared away."""
    sys.exit(TERMINATED)


def execute(arguments: Sequence[str]) -> int:
    """Run the command and return its exit code; every outcome is a sentence, never a traceback."""
    if "SIMGPU" in os.environ:  # this process's own clock, with which it judges, would be a simulated one
        return say("grade simulates GPUs by itself; run it without `simgpu run`.", USAGE)
    try:
        command = typer.main.get_command(app)
        code = command.main(list(arguments) or ["--help"], prog_name="grade", standalone_mode=False)
        if not arguments:
            return say(
                "EXERCISE is missing: name one, or its folder; `grade list` shows which there are.", USAGE
            )
    except KeyboardInterrupt:
        code = INTERRUPTED
    except Exception as problem:
        return answer(problem)
    if code == INTERRUPTED:
        return say("Interrupted; nothing was graded.", INTERRUPTED)
    return code or PASSED


def main() -> None:
    """Entry point of the console command."""
    signal.signal(signal.SIGTERM, _terminate)
    sys.exit(execute(sys.argv[1:]))


if __name__ == "__main__":
    main()
