"""What importing costs: processor time in a fresh Python, of each import after those that it needs anyway.

`grader.simgpu` is imported after torch; its names, which bring in the simulation, after torch._dynamo, which
torch's optimizers import in their first step. Then the help of the commands, and what a Python pays that a
simulated process starts and that does not import torch. Prints medians in milliseconds, with their middle
half.

    python benchmarks/import_time.py [repeats]
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from pathlib import Path

from grader.simgpu.settings import Settings

ROOT = Path(__file__).resolve().parents[1]
TORCH, DYNAMO, NAMES = "import torch", "import torch._dynamo", "from grader.simgpu import simulate"
HELP = "from {} import execute; execute(['--help'])"
ROWS = [  # what is measured, and what is done before
    ("import torch", "", TORCH),
    ("import grader.simgpu", TORCH, "import grader.simgpu"),
    ("import torch._dynamo", TORCH, DYNAMO),
    ("from grader.simgpu import simulate", f"{TORCH}; {DYNAMO}", NAMES),
    ("simulate('2xT4').__enter__()", f"{TORCH}; {DYNAMO}; {NAMES}", "simulate('2xT4').__enter__()"),
    ("the pytest plugin", "import pytest", "import grader.simgpu.pytest_plugin"),
    ("simgpu --help", "", HELP.format("grader.simgpu.command")),
    ("grade --help", "", HELP.format("grader.cli")),
]
MEASURED = """
from time import process_time
{before}
start = process_time()
{code}
end = process_time()
import sys
print((end - start) * 1e3, file=sys.stderr)
"""
WHOLE = "from time import process_time; import sys; print(process_time() * 1e3, file=sys.stderr)"


def measure(code: str, child: bool = False) -> float:
    """Milliseconds that the code says it took."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    if child:
        environment |= Settings("2xT4", quiet=True).variables(environment)
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    return float(done.stderr.split()[-1])


def main() -> None:
    """Measure in turns, so that all meet the same conditions, and print."""
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    runs: dict[str, list[float]] = {}
    for turn in range(repeats + 1):  # the first fills the disk's cache
        found = {name: measure(MEASURED.format(before=before, code=code)) for name, before, code in ROWS}
        found["start of a Python"] = measure(WHOLE)
        found["the same, in a simulated process's child"] = measure(WHOLE, child=True)
        for name, took in found.items() if turn else ():
            runs.setdefault(name, []).append(took)
    print(f"{'':44}{'ms':>8}   middle half")
    for name, took in runs.items():
        low, _, high = statistics.quantiles(took, n=4) if len(took) > 1 else (took[0],) * 3
        print(f"{name:44}{statistics.median(took):8.1f}   {low:.1f} to {high:.1f}")


if __name__ == "__main__":
    main()
