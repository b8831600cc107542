"""DistributedDataParallel over two simulated GPUs, between two processes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.simgpu.ranks.launch import launch, results_of

ROUNDING = 1e-6


@pytest.fixture(scope="module")
def ranks() -> list[dict[str, Any]]:
    return launch("training")


@pytest.mark.parametrize(
    "how",
    [
        "plain",
        "gradient_as_bucket_view",
        "static_graph",
        "many_buckets",
        "find_unused_parameters",
        "no_device_ids",
        "synchronized_norm",
        "zero_redundancy",
    ],
)
def test_two_ranks_train_as_one_process_on_the_whole_batch(ranks, how):
    assert max(results_of(ranks, how)) < ROUNDING


def test_all_ranks_start_from_the_weights_of_rank_0(ranks):
    assert results_of(ranks, "starts_from_rank_0") == [True, True]


def test_no_sync_accumulates_apart_and_then_together(ranks):
    for apart, difference in results_of(ranks, "no_sync"):
        assert apart == [True, False]
        assert difference < ROUNDING


@pytest.mark.parametrize(
    ("hook", "tolerance"), [("allreduce", ROUNDING), ("fp16", 1e-3), ("bf16", 1e-2), ("powerSGD", 0.1)]
)
def test_communication_hooks(ranks, hook, tolerance):
    assert max(found[hook] for found in results_of(ranks, "hooks")) < tolerance


def test_mixed_precision_with_a_gradient_scaler(ranks):
    assert max(results_of(ranks, "mixed_precision")) < 1e-3


def test_a_distributed_sampler_deals_out_the_rows(ranks):
    assert results_of(ranks, "sampler") == [[True, list(range(10))]] * 2


def test_join_answers_for_a_rank_that_has_no_more_batches(ranks):
    assert results_of(ranks, "uneven_inputs") == [True, True]


def test_unused_parameters_are_told(ranks):
    for rank, message in enumerate(results_of(ranks, "unused_parameters")):
        assert "Expected to have finished reduction in the prior iteration" in message
        assert f"Parameter indices which did not receive grad for rank {rank}: 6 7" in message


def test_unequal_models_are_told(ranks):
    for message in results_of(ranks, "unequal_models"):
        assert message.startswith("DDP expects same model across all ranks")


def test_wrong_devices_are_told(ranks):
    for on_host, spread, frozen, two in results_of(ranks, "wrong_ids"):
        assert "device_ids and output_device arguments only work with single-device" in on_host
        assert "device_ids and output_device arguments only work with single-device" in spread
        assert "doesn't have any parameter that requires a gradient" in frozen
        assert two == "device_ids can only be None or contain a single element."


def test_buckets_take_memory_of_the_device(ranks):
    gradients = 4 * (1000 * 1000 + 1000)
    for taken in results_of(ranks, "memory"):
        assert gradients <= taken < gradients + 1024


def test_a_checkpoint_of_rank_0_is_loaded_on_every_gpu(ranks):
    assert results_of(ranks, "checkpoint") == [
        [["cuda:0"], "module.body.0.weight"],
        [["cuda:1"], "module.body.0.weight"],
    ]


def test_sharded_models_are_refused_by_name(ranks):
    for messages in results_of(ranks, "refused"):
        assert len(messages) == 3
        assert messages[0].startswith("torch.distributed.fsdp.FullyShardedDataParallel is not simulated.")
        assert all("torch.distributed.device_mesh.DeviceMesh" in message for message in messages[1:])
