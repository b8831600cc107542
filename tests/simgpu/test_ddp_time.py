"""What DistributedDataParallel and its collectives take in simulated time."""

from __future__ import annotations

from typing import Any

import pytest
from torch import nn

from grader import simgpu
from grader.simgpu import links, profiles
from tests.simgpu.ranks.launch import launch, results_of
from tests.simgpu.ranks.timing import BATCH, network, step_seconds


@pytest.fixture(scope="module")
def ranks() -> list[dict[str, Any]]:
    return launch("timing", MATH="0")


def test_clocks_meet_at_a_collective(ranks):
    first, second = results_of(ranks, "clocks_meet")
    assert first == second > 0.5e12


def test_a_collective_runs_beside_the_host(ranks):
    link = profiles.load("2xT4").profile.link
    expected = links.all_reduce_seconds(link, 100_000_000, 2)
    for called, completed, waited, finished, completed_then in results_of(ranks, "host_runs_ahead"):
        assert called < expected / 100 and not completed
        assert waited < expected / 100
        assert finished == pytest.approx(expected, rel=0.01) and completed_then


def test_gradients_are_reduced_while_the_backward_pass_goes_on(ranks):
    for buckets, overlapped, reducing in results_of(ranks, "overlap"):
        assert buckets > 1
        assert 0.3 * reducing < overlapped < reducing


def test_repeats_are_identical_whatever_the_processes_do_in_real_time(ranks):
    for first, second in results_of(ranks, "repeats"):
        assert first == second


def test_it_is_faster_than_data_parallel_and_at_most_n_times_one_gpu(ranks):
    with simgpu.simulate("1xT4", math=False):
        one = step_seconds(network().cuda(), BATCH)
    with simgpu.simulate("2xT4", math=False):
        data_parallel = step_seconds(nn.DataParallel(network().cuda()), BATCH)
    distributed = max(results_of(ranks, "data_parallel_step"))
    assert one / 2 < distributed < data_parallel < one


def test_control_flow_keeps_its_values_without_arithmetic(ranks):
    assert results_of(ranks, "decisions") == [[["rank 0", "rank 1"], 3]] * 2
