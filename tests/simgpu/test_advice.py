"""Advice: a sentence for the term that rules a step, and none for one that does not."""

import pytest

from grader.simgpu import profiles
from grader.simgpu.timeline import Span
from grader.simgpu.view import advice
from grader.simgpu.view.record import DeviceRecord, Parallel
from tests.simgpu.views.runs import counters, made, total

BUSY = {"busy": [0.5, 0.5]}
PARALLEL = Parallel("DataParallel", 151, 100_000_000, 2)
CAPACITY = profiles.load("T4").profile.gpu.memory_bytes


def rules(record):
    return [each.rule for each in advice.advise(record)]


def text(record, rule):
    [found] = [each.text for each in advice.advise(record) if each.rule == rule]
    return found


def test_replication():
    record = made(counters(replicate=0.61, **BUSY), parallel=PARALLEL)
    assert text(record, "replication").startswith(
        "The host spends 61 % of the step replicating 151 modules for 2 GPUs: DistributedDataParallel does "
        "that once."
    )
    assert rules(made(counters(replicate=0.24, **BUSY), parallel=PARALLEL)) == ["nothing"]


def test_launching():
    record = made(counters(launch=0.8, busy=[0.2, 0.2]))
    assert "80 %" in text(record, "launch") and "bigger batch" in text(record, "launch")
    assert "CUDA graphs" in text(record, "launch") and "memory is used to 7 %" in text(record, "launch")
    assert rules(made(counters(launch=0.49, busy=[0.2, 0.2]))) == ["nothing"]
    assert rules(made(counters(launch=0.8, busy=[0.6, 0.6]))) == ["nothing"]  # hidden behind computing


@pytest.mark.parametrize(
    ("waits", "said"), [(0.3, "pin_memory=True"), (0.0, "on a stream of its own")], ids=["pageable", "pinned"]
)
def test_copies_from_the_host(waits, said):
    moved = {"cpu > cuda:0": total(0.3, 2, 38_500_000)}
    found = text(made(counters(wait=waits, moved=moved, **BUSY)), "host copies")
    assert said in found and "38.5 MB" in found and "30 %" in found
    small = {"cpu > cuda:0": total(0.19), "cuda:0 > cpu": total(0.5)}
    assert rules(made(counters(moved=small, **BUSY))) == ["nothing"]


def test_waiting_in_every_step():
    waits = {
        "train.py:9 (print(loss.item()))": total(2.0, 10),
        "train.py:3 (x.cuda())": total(5.0, 10),  # copies have advice of their own
        "train.py:20 (save())": total(5.0, 1),  # not in every step
    }
    record = made(counters(**BUSY), waits=waits)
    found = text(record, "synchronization")
    assert "train.py:9 (print(loss.item()))" in found and "20 %" in found
    assert rules(made(counters(busy=[0.9, 0.9]), waits=waits)) == ["nothing"]  # the GPUs have no time to lose
    assert rules(made(counters(**BUSY), waits=dict.fromkeys(waits, total(0.9, 10)))) == ["nothing"]


def test_broadcast_and_reduce():
    moved = {"broadcast": total(0.2, 1, 50_000_000), "reduce": total(0.2, 6, 50_000_000)}
    found = text(made(counters(communicate=0.4, moved=moved, **BUSY), parallel=PARALLEL), "parameters")
    assert "100 MB" in found and "40 %" in found and "DistributedDataParallel" in found
    assert rules(made(counters(communicate=0.24, **BUSY), parallel=PARALLEL)) == ["nothing"]


@pytest.mark.parametrize(
    ("second", "parallel", "said"),
    [
        (0.0, None, "wrap the model in nn.DataParallel"),
        (0.05, PARALLEL, "is the batch large enough"),
        (0.3, PARALLEL, "compute the loss inside of forward()"),
    ],
)
def test_unequal_gpus(second, parallel, said):
    found = text(made(counters(busy=[0.5, second]), parallel=parallel), "balance")
    assert said in found and "cuda:1 computes" in found and "cuda:0 for 50 %" in found
    assert rules(made(counters(busy=[0.5, 0.36]), parallel=parallel)) == ["nothing"]


def test_unequal_trifles_are_not_worth_a_word():
    assert rules(made(counters(busy=[0.05, 0.01]), parallel=PARALLEL)) == ["nothing"]


def test_unequal_gpus_where_the_optimizer_works_on_one():
    totals = {(0, "_foreach_addcdiv_", "optimizer"): total(0.15)}
    found = text(made(counters(busy=[0.5, 0.3], totals=totals), parallel=PARALLEL), "balance")
    assert "the optimizer works on cuda:0 alone" in found


def test_a_rank_of_several_uses_one_gpu():
    assert rules(made(counters(busy=[0.5, 0.0], communicating=[0.1]))) == ["nothing"]


def test_memory():
    devices = [DeviceRecord(0, CAPACITY, 1000), DeviceRecord(1, CAPACITY, int(0.95 * CAPACITY))]
    found = text(made(counters(**BUSY), devices=devices), "memory")
    assert found.startswith("cuda:1 holds 14 GiB at the peak, 95 %")


def test_collectives():
    assert "40 %" in text(made(counters(busy=[0.5], communicating=[0.4], count=1), 1), "collectives")
    assert rules(made(counters(busy=[0.9], communicating=[0.4], count=1), 1)) == ["nothing"]


def test_the_spans_tell_whether_collectives_are_hidden():
    def record(start):
        spans = [
            Span("cuda:0", "conv", "compute", 0.0, 0.5),
            Span("cuda:0 collectives", "all_reduce", "collective", start, start + 0.4),
            Span("host", "wait", "wait", 0.0, 1.0),
        ]
        return made(counters(busy=[0.5], communicating=[0.4], count=1), 1, spans=spans, with_spans=True)

    assert rules(record(0.05)) == ["nothing"]
    assert rules(record(0.5)) == ["collectives"]


def test_data_on_the_cpu():
    assert "num_workers" in text(made(counters(cpu=0.6, **BUSY)), "cpu")
    assert rules(made(counters(cpu=0.24, **BUSY))) == ["nothing"]


def test_where_the_work_itself_rules_that_is_said():
    [found] = advice.advise(made(counters(busy=[0.85, 0.8])))
    assert found.rule == "nothing" and "computes for 85 % of the step: the work itself rules" in found.text


def test_the_weightiest_come_first_and_not_all_of_them():
    step = counters(replicate=0.3, cpu=0.4, communicate=0.28, launch=0.9, busy=[0.1, 0.1])
    assert rules(made(step, parallel=PARALLEL)) == ["launch", "cpu", "replication"]


def test_an_empty_run_has_advice_too():
    empty = counters(now=0.0)
    assert rules(made(empty, step=None, whole=empty, peak=0)) == ["nothing"]
