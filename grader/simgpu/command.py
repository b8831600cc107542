"""The command `simgpu`: runs programs on simulated GPUs, and says which there are.

Everything heavy is imported where it is needed, so that `simgpu --help` answers at once.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

USAGE, INTERRUPTED = 2, 130  # exit codes
_UsageError: Any = typer.BadParameter.__base__  # of the click that typer brings along

app = typer.Typer(
    help="Simulated GPUs for PyTorch programs, on any computer.",
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=True,
)

Gpus = Annotated[
    str,
    typer.Option(
        metavar="GPUS",
        help="How many, as 2; how many of which, as 2xV100; or of your own, as 2xmy/profile.yaml.",
    ),
]
Target = Annotated[str, typer.Argument(metavar="SCRIPT", help="Script, or a program as torchrun.")]
Arguments = Annotated[
    list[str] | None,
    typer.Argument(metavar="[ARGS]...", help="What the script is given.", show_default=False),
]
_OURS_FIRST = {"allow_interspersed_args": False}  # what follows the script is the script's


@app.command("run", context_settings=_OURS_FIRST)
def run_command(
    target: Target,
    arguments: Arguments = None,
    gpus: Gpus = "2xT4",
    module: Annotated[
        bool, typer.Option("-m", "--module", help="SCRIPT is the name of a module, as for python -m.")
    ] = False,
    no_math: Annotated[
        bool, typer.Option("--no-math", help="Compute no values on the GPUs: they read as 0. Much faster.")
    ] = False,
    trace: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a Chrome trace (JSON), for Perfetto.")
    ] = None,
    report: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a page about the run (HTML).")
    ] = None,
) -> None:
    """Run a script as if the GPUs were there; a summary follows on standard error.

    Options of simgpu come before SCRIPT, those of the script after it.
    """
    from . import launch, specification
    from .settings import Settings

    line = launch.command(target, arguments or [], module)
    settings = Settings(
        spec=specification.full(gpus),
        math=not no_math,
        trace=_writable("--trace", trace),
        report=_writable("--report", report),
    )
    launch.execute(line, settings)


@app.command("profiles")
def profiles_command() -> None:
    """List the GPUs that can be simulated."""
    from . import profiles

    typer.echo("\n".join(profiles.known()))


def _writable(option: str, path: Path | None) -> str | None:
    """The path made absolute; nothing of an earlier run is left there. Raises BadParameter."""
    if path is None:
        return None
    if path.is_dir():
        raise typer.BadParameter(f"{option} {path} is a folder; name a file.")
    if not path.absolute().parent.is_dir():
        raise typer.BadParameter(f"{option} {path}: there is no folder {path.parent}.")
    if not os.access(path if path.exists() else path.absolute().parent, os.W_OK):
        raise typer.BadParameter(f"{option} {path} cannot be written here.")
    path.unlink(missing_ok=True)
    return str(path.absolute())


def say(sentence: str, code: int) -> int:
    """Print a sentence on standard error and return an exit code."""
    if hasattr(sys.stderr, "reconfigure"):
        sys.stderr.reconfigure(errors="replace")
    print(f"simgpu: {sentence}", file=sys.stderr)
    return code


def execute(arguments: Sequence[str]) -> int:
    """Run the command and return its exit code; a mistake in what was asked is a sentence."""
    from .launch import NothingToRun
    from .profiles import BadProfile

    try:
        command = typer.main.get_command(app)
        return command.main(list(arguments), prog_name="simgpu", standalone_mode=False) or 0
    except _UsageError as problem:
        sentence = problem.format_message().rstrip(".")
        return say(f"{sentence}. `simgpu --help` shows what can be given.", USAGE)
    except (NothingToRun, BadProfile) as problem:
        return say(str(problem), USAGE)
    except KeyboardInterrupt:
        return INTERRUPTED


def main() -> None:
    """Entry point of the console command."""
    sys.exit(execute(sys.argv[1:]))
