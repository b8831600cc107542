"""The command `simgpu`: runs programs on simulated GPUs, and says which there are.

Everything heavy is imported where it is needed, so that `simgpu --help` answers at once.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

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
Module = Annotated[
    bool, typer.Option("-m", "--module", help="SCRIPT is the name of a module, as for python -m.")
]
_PIPED = 120  # columns
_OURS_FIRST = {"allow_interspersed_args": False}  # what follows the script is the script's


@app.command("run", context_settings=_OURS_FIRST)
def run_command(
    target: Target,
    arguments: Arguments = None,
    gpus: Gpus = "2xT4",
    module: Module = False,
    no_math: Annotated[
        bool, typer.Option("--no-math", help="Compute no values on the GPUs: they read as 0. Much faster.")
    ] = False,
    trace: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a Chrome trace (JSON), for Perfetto.")
    ] = None,
    report: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a page about the run (HTML).")
    ] = None,
    frames: Annotated[
        bool, typer.Option("--frames", help="Show the simulation's own frames in tracebacks, too.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print no summary.")] = False,
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
        frames=frames,
        quiet=quiet,
        **_writable(target, trace=trace, report=report),
    )
    launch.execute(line, settings)


@app.command("explain", context_settings=_OURS_FIRST)
def explain_command(
    target: Target,
    arguments: Arguments = None,
    gpus: Gpus = "2xT4",
    module: Module = False,
    by_module: Annotated[
        bool, typer.Option("--by-module", help="Tell the operators of each module apart.")
    ] = False,
) -> None:
    """Say what one training step costs, operator by operator and term by term.

    Runs the script without computing values until two steps of its optimizer are done.
    """
    from . import launch, specification
    from .settings import Settings

    line = launch.command(target, arguments or [], module)
    kind = "module" if by_module else "operator"
    launch.execute(line, Settings(specification.full(gpus), math=False, explain=kind))


@app.command("profiles")
def profiles_command(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="One of the list, or the path of a YAML file.")
    ] = None,
) -> None:
    """List the GPUs that can be simulated, or show all figures of one and where they are from."""
    from . import listing, profiles

    console = _console()
    if name is None:
        listing.show_all(console)
    else:
        listing.show_one(profiles.load(name).profile, console)


def _console() -> Console:
    """Standard output; where that is no terminal, wide enough for a table."""
    from rich.console import Console

    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")
    console = Console(highlight=False, emoji=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = _PIPED
    return console


def _writable(target: str, **paths: Path | None) -> dict[str, str | None]:
    """The paths of options made absolute, once it is known that files can be written there.

    Raises BadParameter, and never touches what is there.
    """
    taken = [Path(target).resolve()]  # a script must not be written over
    for name, path in paths.items():
        if path is None:
            continue
        option, folder = f"--{name}", path.absolute().parent
        if path.is_dir():
            raise typer.BadParameter(f"{option} {path} is a folder; name a file.")
        if not folder.is_dir():
            raise typer.BadParameter(f"{option} {path}: there is no folder {path.parent}.")
        if path.resolve() in taken:
            what = "the script itself" if path.resolve() == taken[0] else "written by another option, too"
            raise typer.BadParameter(f"{option} {path} is {what}; name another file.")
        taken.append(path.resolve())
        try:
            if path.exists() and not path.is_file():
                path.open("ab").close()  # a device, or a pipe
            else:
                tempfile.TemporaryFile(dir=folder).close()
        except OSError as problem:
            raise typer.BadParameter(f"{option} {path} cannot be written: {problem.strerror}.") from None
    return {name: None if path is None else str(path.absolute()) for name, path in paths.items()}


def say(sentence: str, code: int) -> int:
    """Print a sentence on standard error and return an exit code."""
    if hasattr(sys.stderr, "reconfigure"):
        sys.stderr.reconfigure(errors="replace")
    print(f"simgpu: {sentence}", file=sys.stderr)
    return code


def execute(arguments: Sequence[str]) -> int:
    """Run the command and return its exit code; a mistake in what was asked is a sentence."""
    try:
        command = typer.main.get_command(app)
        return command.main(list(arguments), prog_name="simgpu", standalone_mode=False) or 0
    except _UsageError as problem:
        sentence = problem.format_message().rstrip(".")
        return say(f"{sentence}. `simgpu --help` shows what can be given.", USAGE)
    except ValueError as problem:
        from .launch import NothingToRun
        from .profiles import BadProfile

        if isinstance(problem, (NothingToRun, BadProfile)):
            return say(str(problem), USAGE)
        raise
    except BrokenPipeError:  # the reader, `head` for instance, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return INTERRUPTED


def main() -> None:
    """Entry point of the console command."""
    sys.exit(execute(sys.argv[1:]))
