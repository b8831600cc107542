"""Where kernels find time on a device: in gaps that other streams leave, and never on top of each other."""

import random

import pytest

from grader.simgpu.engine import Engine


def test_a_kernel_takes_the_first_gap_that_is_long_enough():
    engine = Engine()
    for ready in (10, 30, 60):  # each leaves the time before it idle
        engine.reserve(ready, 5, launched=0)
    assert engine.gaps == [(0, 10), (15, 30), (35, 60)]
    assert engine.reserve(0, 12, launched=0) == 15
    assert engine.reserve(0, 10, launched=0) == 0
    assert engine.reserve(40, 10, launched=0) == 40
    assert engine.reserve(0, 30, launched=0) == 65
    assert engine.gaps == [(27, 30), (35, 40), (50, 60)]


def test_a_gap_is_forgotten_once_the_host_is_past_it():
    engine = Engine()
    engine.reserve(10, 5, launched=0)
    assert engine.reserve(20, 5, launched=20) == 20
    assert engine.gaps == []


@pytest.mark.parametrize("seed", range(20))
def test_kernels_never_overlap_and_none_starts_early(seed):
    draw = random.Random(seed)
    engine, taken, launched = Engine(), [], 0
    for _ in range(200):
        launched += draw.choice([0, 1, 10])
        ready, length = launched + draw.choice([0, 0, 5, 200]), draw.randrange(1, 20)
        start = engine.reserve(ready, length, launched)
        assert start >= ready
        taken.append((start, start + length))
    taken.sort()
    assert all(before[1] <= after[0] for before, after in zip(taken, taken[1:], strict=False))
