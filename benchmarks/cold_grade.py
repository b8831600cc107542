"""How long a whole cold `grade` takes against what it cannot avoid: the two accuracy runs.

Alternates, a few times over, (a) `grade` of the solution with an empty cache and (b) baseline and solution
run as plain scripts on the CPU, both on the digits; start-up is included on both sides. Prints medians and
their ratio.

    python benchmarks/cold_grade.py [repeats]
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
EXERCISE = REPOSITORY / "exercises" / "dataparallel"
SOLUTION = REPOSITORY / "solutions" / "dataparallel" / "train.py"


def main() -> None:
    """Measure and print."""
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    graded, plain = [], []
    for repeat in range(repeats):
        graded.append(timed_grade())
        plain.append(timed_scripts())
        print(f"repeat {repeat + 1}: grade {graded[-1]:.2f} s, plain scripts {plain[-1]:.2f} s", flush=True)
    ours, theirs = statistics.median(graded), statistics.median(plain)
    ratios = sorted(a / b for a, b in zip(graded, plain, strict=True))
    print(
        f"medians of {repeats}: cold grade {ours:.2f} s, plain scripts {theirs:.2f} s, "
        f"ratio {ours / theirs:.2f} (single repeats {ratios[0]:.2f} to {ratios[-1]:.2f})"
    )


def timed_grade() -> float:
    """Seconds of one `grade` that finds no cached baseline."""
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "XDG_CACHE_HOME": cache, "PYTHONPATH": str(REPOSITORY)}
        command = [sys.executable, "-m", "grader.cli", str(EXERCISE), str(SOLUTION), "--gpus", "sim"]
        return timed(command, environment, EXERCISE)


def timed_scripts() -> float:
    """Seconds of baseline and solution one after the other, as a learner would start them without GPUs."""
    with tempfile.TemporaryDirectory() as folder:
        for file in (EXERCISE / "baseline.py", EXERCISE / "data.py", SOLUTION):
            shutil.copy(file, folder)
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "EXERCISE_DATA": "digits"}
        scripts = ("baseline.py", SOLUTION.name)
        return sum(timed([sys.executable, script], environment, Path(folder)) for script in scripts)


def timed(command: list[str], environment: dict[str, str], folder: Path) -> float:
    """Seconds of a command that must succeed."""
    start = time.perf_counter()
    subprocess.run(command, env=environment, cwd=folder, check=True, capture_output=True)
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
