"""`python -m grader.simgpu.surface`: print the table of the supported surface, or write it to a file."""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

from . import table


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m grader.simgpu.surface", description=__doc__)
    parser.add_argument("--write", type=Path, metavar="FILE", help="where to write it; the screen without")
    where = parser.parse_args().write
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch, about its own names
        text = table.text()
    if where is None:
        print(text, end="")
    else:
        where.write_text(text, encoding="utf-8")


main()
