"""The summary that a simulated run ends with in the terminal."""

import io

import pytest
import torch
from rich.console import Console

from grader.simgpu.timeline import Span
from grader.simgpu.view import split, summary
from grader.simgpu.view.operators import costliest
from tests.simgpu.views.runs import counters, made, record, total, train


def shown(record, width=80):
    stream = io.StringIO()
    summary.show(record, Console(file=stream, width=width, highlight=False, emoji=False))
    return stream.getvalue()


@pytest.fixture(scope="module")
def run():
    return record(lambda: train(4), spans=False)


@pytest.mark.parametrize("width", [80, 120])
def test_fits_its_width_without_colours_in_a_pipe(run, width):
    lines = shown(run, width).splitlines()
    assert max(map(len, lines)) <= width
    assert "\x1b" not in "".join(lines)


def test_says_what_it_stands_on(run):
    text = " ".join(shown(run).split())
    assert text.startswith("2xT4: ") and "(simulated, profile T4)" in text
    assert "over the plausible range of the host's constants" in text
    assert "4 steps (optimizer.step()) of" in text


def test_each_gpu_and_the_host_have_figures(run):
    text = shown(run)
    for words in ("cuda:0", "cuda:1", "busy", "computing", "copying", "idle", "Each GPU (14.7 GiB)"):
        assert words in text
    for words in ("launching", "replicating", "on CPU", "broadcast, reduce", "waiting"):
        assert words in text
    assert "collectives" not in text  # a column of zeros
    assert "collectives" in shown(made(counters(busy=[0.5], communicating=[0.1], count=1), 1))


def test_a_step_is_what_the_host_spent_on_it_where_it_waits(run):
    assert sum(run.step.host.values()) == pytest.approx(run.step.now, rel=0.02)


def test_a_step_lasts_until_the_gpus_are_done_where_the_host_runs_ahead():
    def run():
        net = torch.nn.Linear(4096, 4096).cuda()
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        x = torch.randn(4096, 4096).cuda()
        for _ in range(4):
            net(x).sum().backward()
            optimizer.step()

    step = record(run, "1xT4", spans=False).step
    assert sum(step.host.values()) < 0.1 * step.now
    assert 0.9 * step.now < step.busy[0] <= step.now


def test_the_costliest_come_first_over_devices_and_phases():
    totals = {
        (0, "conv", "forward"): total(1.0, 2),
        (1, "conv", "forward"): total(1.0, 2),
        (0, "conv", "backward"): total(3.0, 2),
        (0, "cpu > cuda:0", "other"): total(4.0, 7),
        (0, "relu", "forward"): total(0.5, 9),
        (0, "add", "forward"): total(0.5, 9),
        (0, "empty", "forward"): total(0.0, 9),
    }
    spans = [
        Span("cuda:0", "conv", "compute", 0.0, 1.0, "a"),
        Span("cuda:0", "conv", "compute", 1.0, 3.0, "b"),
    ]
    found = costliest(made(counters(totals=totals), spans=spans), 4)
    assert [(cost.name, cost.calls, cost.seconds) for cost in found] == [
        ("conv", 6, 5.0),
        ("copy cpu > cuda:0", 7, 4.0),
        ("add", 9, 0.5),
        ("relu", 9, 0.5),
    ]
    assert found[0].share == 0.5 and found[0].phases == "backward, forward" and found[0].module == "b"


def test_a_run_of_one_step_or_none_is_summed_up_whole():
    text = shown(record(lambda: train(1), spans=False))
    assert "in one run" in text and "steps" not in text.splitlines()[2]
    assert "simulated, profile T4" in shown(record(lambda: None, spans=False))


def test_forwards_without_an_optimizer_are_counted():
    def run():
        net = torch.nn.Sequential(torch.nn.Linear(4, 4)).cuda()
        for _ in range(3):
            net(torch.randn(2, 4).cuda())

    assert "3 forwards, one every" in " ".join(shown(record(run)).split())


def test_says_where_the_recording_ended():
    text = " ".join(shown(record(lambda: train(3), limit=50)).split())
    assert "Recorded are the first 50 spans, until" in text and "the totals are of the whole run" in text


def test_only_the_devices_of_this_process_are_shown():
    text = shown(
        made(
            counters(busy=[0.5], communicating=[0.1], count=4),
            count=4,
            whole=counters(busy=[5.0], count=4),
            peak=0,
        )
    )
    assert "cuda:0" in text and "cuda:1" not in text


def test_a_moment_counts_for_one_term():
    spans = [
        Span("host", "replicate", "host", 0.0, 2.0),
        Span("host", "addmm", "host", 2.0, 4.0),
        Span("cuda:0", "addmm", "compute", 3.0, 5.0),
        Span("cuda:1", "copy", "copy", 4.0, 6.0),
        Span("cuda:0 collectives", "all_reduce", "collective", 5.5, 7.0),
        Span("host", "wait", "wait", 4.0, 8.0),
    ]
    terms = {"replication": 2.0, "launch": 1.0, "compute": 2.0, "copies": 1.0, "collectives": 1.0}
    assert split.split(spans, 8.0) == {**terms, "waiting": 1.0}


def test_the_typical_step_is_the_first_of_median_length():
    spans = [Span("host", "a", "host", 0.0, 20.0)]
    found = split.typical(made(spans=spans, moments=[5.0, 9.0, 11.0, 13.0, 14.0, 30.0]))
    assert (found.start, found.end, found.step) == (9.0, 11.0, 3)
    assert split.typical(made(spans=spans, moments=[5.0])).step == 0
    assert split.typical(made(spans=spans, moments=[5.0, 9.0, 12.0], bound="forward")).step == 2
    inside = split.cut([*spans, Span("host", "b", "host", 12.0, 13.0)], found)
    assert [(span.start, span.end) for span in inside] == [(0.0, 2.0)]
