"""Process groups that fail: each rank is told what NCCL would tell it, without its waiting."""

from __future__ import annotations

from typing import Any

import pytest

from tests.simgpu.ranks.launch import launch

WATCHDOG = "Watchdog caught collective operation timeout: WorkNCCL("
LEFT = "rank 1 has ended, or left the group, without taking part in this call"


@pytest.fixture(scope="module")
def ranks(tmp_path_factory) -> list[dict[str, Any]]:
    return launch("failing", FOLDER=str(tmp_path_factory.mktemp("groups")))


@pytest.mark.parametrize("rank", [0, 1])
def test_two_ranks_on_one_gpu(ranks, rank):
    kind, message, _ = ranks[rank]["duplicate_gpu"]
    assert kind == "DistBackendError" and "ncclInvalidUsage" in message
    assert "Duplicate GPU detected : rank 0 and rank 1 both on CUDA device" in message


def test_a_collective_on_rank_0_alone_ends_before_its_timeout(ranks):
    kind, message, seconds = ranks[0]["only_rank_0"]
    assert kind == "DistBackendError" and f"[Rank 0] {WATCHDOG}SeqNum=2, OpType=ALLREDUCE" in message
    assert "Timeout(ms)=600000" in message and LEFT in message
    assert seconds < 60
    assert ranks[1]["only_rank_0"][:2] == ["", ""]


def test_uneven_inputs_end_as_a_hang_does(ranks):
    kind, message, _ = ranks[0]["uneven_inputs"]
    assert kind == "DistBackendError" and WATCHDOG in message and LEFT in message


@pytest.mark.parametrize("case", ["different_collectives", "different_sizes"])
def test_calls_that_do_not_fit_together(ranks, case):
    for rank in range(2):
        kind, message, _ = ranks[rank][case]
        assert kind == "DistBackendError" and WATCHDOG in message
        assert f"rank {rank} called" in message and f"while rank {1 - rank} called" in message


def test_the_timeout_of_the_group_counts(ranks):
    kind, message, _ = ranks[0]["late_rank"]
    assert kind == "DistBackendError" and WATCHDOG in message and "Timeout(ms)=500" in message
    assert "not every process of the group took part in this call in that time" in message


def test_a_rank_that_never_comes(ranks):
    kind, message, _ = ranks[0]["missing_rank"]
    assert kind == "DistBackendError" and "is setting up NCCL communicator" in message
    assert "wait timeout after 500ms" in message


def test_a_group_bound_to_a_device_refuses_another(ranks):
    assert ranks[0]["other_device_than_bound"][:2] == [
        "ValueError",
        "Tensor found on device cuda:1 but backend constrained to cuda:0",
    ]


def test_a_message_that_nobody_receives(ranks):
    kind, message, _ = ranks[0]["send_to_nobody"]
    assert kind == "DistBackendError" and LEFT in message


def test_a_message_of_another_size(ranks):
    kind, message, _ = ranks[1]["received_in_another_size"]
    assert kind == "DistBackendError"
    assert "called recv of 3 elements (torch.float32) and its peer send of 2 elements" in message


def test_a_port_in_use(ranks):
    kind, message, _ = ranks[0]["port_in_use"]
    assert kind == "DistNetworkError" and "EADDRINUSE" in message


def test_a_gpu_that_does_not_exist(ranks):
    assert "CUDA error: invalid device ordinal" in ranks[0]["invalid_ordinal"][1]


def test_groups_named_in_other_ways(ranks):
    for rank in range(2):
        both, bound = ranks[rank]["both_backends"]
        assert both == ["cpu:gloo,cuda:nccl", [2.0, 2.0], f"cuda:{rank}", [2.0, 2.0]]
        assert bound == ["nccl", [2.0, 2.0], f"cuda:{rank}", [1.0, 1.0]]
