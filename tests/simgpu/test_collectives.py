"""The collectives of torch.distributed on tensors of simulated GPUs, between two processes."""

from __future__ import annotations

from typing import Any

import pytest
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from grader import simgpu
from tests.simgpu.ranks.collectives import OPS
from tests.simgpu.ranks.launch import launch, results_of


@pytest.fixture(scope="module")
def ranks() -> list[dict[str, Any]]:
    return launch("collectives")


def placed(rank: int, *values: list) -> list:
    return [[value, f"cuda:{rank}"] for value in values]


def test_the_group_is_nccl(ranks):
    assert results_of(ranks, "about_the_group") == [["nccl", True, 2, 3]] * 2


@pytest.mark.parametrize("name", OPS)
def test_all_reduce_gives_every_type_its_reduction(ranks, name):
    for found in results_of(ranks, "all_reduce"):
        for kind, values in found.items():
            if kind.startswith(name + " "):
                whole = "int" in kind and name == "AVG"
                assert values == [int(OPS[name]) if whole else OPS[name]] * 3, kind


def test_all_reduce_of_flags_complex_numbers_and_images(ranks):
    for found in results_of(ranks, "all_reduce_of_odd_kinds"):
        assert found == {
            "bool": [True, False, True],
            "complex": [2.0, 1.0],
            "scaled": [1.5] * 3,
            "channels_last": [2.0 * i for i in range(8)],
            "averaged half": [60000.0] * 3,  # whose sum half precision cannot hold
        }


def test_broadcast_and_reduce_reach_whom_they_should(ranks):
    first, second = results_of(ranks, "broadcast_and_reduce")
    assert first == placed(0, [2.0] * 3, [1.0] * 3, [1.0] * 3)
    assert second == placed(1, [2.0] * 3, [3.0] * 3, [1.0] * 3)


def test_gathering_and_scattering(ranks):
    first, second = results_of(ranks, "gathering")
    gathered = [[1.0], [2.0, 2.0], [1.0, 1.0, 2.0, 2.0]]
    assert first == placed(0, *gathered, [7.0] * 3, [1.0] * 3, [2.0] * 3)
    assert second == placed(1, *gathered, [8.0] * 3)


def test_reduce_scatter(ranks):
    first, second = results_of(ranks, "scattered_sums")
    assert first == placed(0, [3.0, 3.0], [0.0, 1.0])
    assert second == placed(1, [30.0, 30.0], [2.0, 3.0])


def test_all_to_all_even_and_uneven(ranks):
    first, second = results_of(ranks, "all_to_all")
    assert first == placed(0, [0.0], [10.0], [0.0, 1.0, 10.0, 11.0], [0.0] * 2 + [1.0] * 4)
    assert second == placed(1, [1.0] * 2, [11.0] * 2, [2.0, 3.0, 12.0, 13.0], [0.0] * 6 + [1.0] * 4)


def test_point_to_point_alone_and_in_a_batch(ranks):
    first, second = results_of(ranks, "point_to_point")
    assert first == [*placed(0, [5.0] * 3, [2.0] * 3, [21.0] * 3), None]
    assert second == [*placed(1, [5.0] * 3, [2.0] * 3, [20.0] * 3), 0]


def test_objects(ranks):
    first, second = results_of(ranks, "objects")
    shared = [[{"rank": 0}, {"rank": 1}], [{"seed": 5}, "x"]]
    assert first == [*shared, ["from 0", "from 1"], ["a"]]
    assert second == [*shared, None, ["b"]]


def test_works_and_futures_of_asynchronous_calls(ranks):
    for rank, found in enumerate(results_of(ranks, "asynchronous")):
        assert found == [*placed(rank, [6.0] * 3, [12.0] * 3), True]


def test_groups_of_some_ranks(ranks):
    for rank, found in enumerate(results_of(ranks, "groups")):
        assert found == [*placed(rank, [3.0] * 3, [rank + 1.0] * 3), ["nccl", 1, -1]]


def test_coalesced_collectives(ranks):
    for rank, found in enumerate(results_of(ranks, "coalesced")):
        assert found == placed(rank, [3.0] * 3, [2.0] * 3)


def test_a_barrier_keeps_the_host_until_the_slowest_device_is_done(ranks):
    assert results_of(ranks, "barrier") == [True, True]


@pytest.mark.parametrize(
    ("attempt", "refusal"),
    [
        ("cpu", "RuntimeError: No backend type associated with device type cpu"),
        ("mixed", "ValueError: Tensors must be CUDA and dense"),
        ("sparse", "ValueError: Tensors must be CUDA and dense"),
        ("two devices", "ValueError: Tensors must be on the same device"),
        ("short", "TypeError: Input tensor data type is not supported for NCCL process group: Short"),
        ("gaps", "ValueError: Tensors must be contiguous"),
        ("band", "ValueError: Cannot use ReduceOp.BAND with NCCL"),
        ("any source", "RuntimeError: ProcessGroupNCCL does not support recvAnysource"),
        ("size", "ValueError: output tensor size must be equal to world_size times input tensor size"),
    ],
)
def test_what_nccl_refuses_is_refused_in_its_words(ranks, attempt, refusal):
    assert [found[attempt] for found in results_of(ranks, "refused")] == [refusal] * 2


def test_torch_is_as_before_afterwards():
    def state() -> list[object]:
        tables = ("_plugins", "backend_list", "backend_capability", "backend_type_map")
        return [
            dist.is_nccl_available(),
            c10d._new_process_group_helper,
            dist.Reducer,
            hasattr(dist, "ProcessGroupNCCL"),
            *(str(getattr(c10d.Backend, table)) for table in tables),
            c10d.Backend.default_device_backend_map.get("cuda"),
        ]

    with simgpu.simulate("2xT4"):  # imports what torch registers more backends in
        pass
    before = state()
    for _ in range(2):  # two machines can follow each other
        with simgpu.simulate("2xT4"):
            assert dist.is_nccl_available()
        assert state() == before
