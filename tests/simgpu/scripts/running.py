"""Runs the command `simgpu` as a person would."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[2]


def simgpu(*arguments: str | Path, cwd: Path = HERE, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run `simgpu` with these arguments, in a folder, with these environment variables."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("CUDA_", "SIMGPU"))
    }
    paths = [str(ROOT), *filter(None, [variables.pop("PYTHONPATH", "")])]
    environment |= {"PYTHONPATH": os.pathsep.join(paths), "COLUMNS": "80", **variables}
    return subprocess.run(
        [sys.executable, "-m", "grader.simgpu", *map(str, arguments)],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
    )
