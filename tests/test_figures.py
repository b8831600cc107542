"""Figures in the exercise's README are those that the project prints."""

from __future__ import annotations

import subprocess
import sys

import pytest

ROWS = """
import sys
sys.path.insert(0, {benchmarks!r})
import batch_sizes as b
print(b.row("the exercise's", 32, b.measure(b.baseline.Net, 32, 60000, "2xT4")))
print(b.row("the exercise's", 512, b.measure(b.baseline.Net, 512, 60000, "2xT4")))
print(b.row("small", 64, b.measure(b.Small, 64, 60000, "2xT4")))
"""


@pytest.fixture(scope="module")
def printed(checkout):
    code = ROWS.format(benchmarks=str(checkout / "benchmarks"))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=checkout)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_table_over_batch_sizes_is_what_the_benchmark_prints(printed, dataparallel):
    text = (dataparallel / "README.md").read_text()
    assert len(printed) == 3
    for line in printed:
        assert line in text


def test_before_and_after_are_the_table_s_figures_at_the_exercise_s_batch(printed, dataparallel):
    before, after, _, saving = (cell.strip() for cell in printed[1].split("|")[3:7])
    text = (dataparallel / "README.md").read_text()
    assert f"| seconds per epoch (simulated) | {before} | {after} |" in text
    assert f"**{saving.replace('%', ' %')} less time**" in text
