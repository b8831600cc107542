"""What one step costs, operator by operator and term by term."""

import io

import pytest
import torch
from rich.console import Console
from torch import nn

from grader import simgpu
from grader.simgpu import profiles
from grader.simgpu.machine import Machine
from grader.simgpu.mode import Simulation
from grader.simgpu.view import explain as explaining
from grader.simgpu.view.ledger import Enough, Key, Ledger, Step, Sum
from tests.simgpu.views.runs import Net, counters, total, train

T4 = profiles.load("T4").profile


def explained(run, width=120, **how):
    stream = io.StringIO()
    console = Console(file=stream, width=width, highlight=False)
    explaining.show(ledger_of(run, "2xT4"), "2xT4", T4, console, **how)
    return stream.getvalue()


def ledger_of(run, spec="1xT4"):
    machine = Machine(spec, math=False, ranges=True)
    machine.install()
    try:
        with Ledger(machine).kept() as ledger:
            run()
        return ledger.step()
    finally:
        machine.uninstall()


@pytest.mark.parametrize("width", [80, 120])
def test_shows_operators_host_links_and_constants(width):
    text = explained(train, width)
    assert max(map(len, text.splitlines())) <= width
    assert "_log_softmax_backward_data" in text  # whole
    said = " ".join(text.split())
    assert "step 2, from one optimizer.step() to the next" in said and "(simulated, profile T4)" in said
    for words in (
        "addmm",
        "replicating",
        "cpu > cuda:0",
        "broadcast",
        "launch_us",
        "achieved TFLOP/s",
        "over the plausible",
    ):
        assert words in said
    assert T4.host.launch_us.source.split()[0] in said


def test_a_known_multiplication():
    def run():
        x = torch.randn(2048, 1024).cuda()
        w = torch.randn(1024, 4096).cuda()
        x @ w

    step = ledger_of(run)
    assert step.name == "the whole run"
    found = step.sums[Key("mm", "", False, "compute")]
    assert found.calls == 1 and found.flops == 2 * 2048 * 1024 * 4096
    assert found.nbytes == 4 * (2048 * 1024 + 1024 * 4096 + 2048 * 4096)
    [row] = [row for row in explaining.rows(step, T4) if row.operator == "mm"]
    assert row.rules == "compute" and row.sum.seconds > T4.host.launch_us.value * 1e-6


def test_one_step_is_the_second_and_the_script_stops_after_it():
    seen = []

    def run():
        layer = nn.Linear(8, 8).cuda()
        optimizer = torch.optim.SGD(layer.parameters(), 0.1)
        for number in range(100):
            seen.append(number)
            for _ in range(3 if number == 1 else 1):
                layer(torch.randn(2, 8).cuda()).sum().backward()
            optimizer.step()

    step = ledger_of(run)
    assert seen == [0, 1]
    assert [(key.module, each.calls) for key, each in step.sums.items() if key.operator == "addmm"] == [
        ("Linear", 3)
    ]


def test_forwards_are_steps_without_an_optimizer():
    seen = []

    def run():
        net = Net().cuda()
        for number in range(100):
            seen.append(number)
            net(torch.randn(8, 16).cuda())

    step = ledger_of(run)
    assert step.name == "step 2, from one forward to the next" and len(seen) < 100
    calls = {key.module: each.calls for key, each in step.sums.items() if key.operator == "addmm"}
    assert calls["layers.0.first"] == 1


def test_modules_are_told_apart_when_asked_for():
    assert "module.layers.0.first" in explained(lambda: train(2), by_module=True)
    assert "module.layers.0.first" not in explained(lambda: train(2))


def test_each_operator_is_ruled_by_one_term():
    sums = {
        Key("conv", "", False, "compute"): Sum(1, int(1e12), 1000, 1.0),
        Key("conv", "", True, "bandwidth"): Sum(1, 0, 1000, 0.1),
        Key("relu", "", False, "bandwidth"): Sum(1, 0, int(200e9), 1.0),
        Key("tiny", "", False, "kernel"): Sum(10, 0, 1000, 1e-7),
        Key("tiny backward", "", True, "compute"): Sum(10, 10, 1000, 1e-7),
    }
    step = Step("step 2", counters(), (1.0, 1.0, 1.0), sums)
    found = {row.operator: (row.rules, row.rate) for row in explaining.rows(step, T4)}
    assert found["conv"] == ("compute", "0.909 TFLOP/s")
    assert found["relu"] == ("bandwidth", "200 GB/s")
    assert found["tiny"][0] == "launch" and found["tiny backward"][0] == "launch"


@pytest.mark.parametrize(
    ("run", "operator", "term"),
    [
        (lambda: torch.randn(2048, 2048).cuda() @ torch.randn(2048, 2048).cuda(), "mm", "compute"),
        (lambda: torch.randn(4096, 4096).cuda().relu(), "relu", "bandwidth"),
        (lambda: torch.randn(4).cuda().relu(), "relu", "kernel"),
    ],
)
def test_the_term_of_the_formula_that_rules_is_found(run, operator, term):
    assert [key.term for key in ledger_of(run).sums if key.operator == operator] == [term]


def test_terms_of_host_and_links_carry_their_formulas():
    copied = 2 * T4.link.latency_us.value * 1e-6 + 38_500_000 / 11e9
    moved = {"cpu > cuda:0": total(copied, 2, 38_500_000), "reduce": total(0.0035, 6, 50_000_000)}
    totals = {(0, name, "other"): each for name, each in moved.items()}
    totals[0, "nccl:allreduce", "backward"] = total(0.1, 3, 46_800_000)
    sums = {Key("conv", "", False): Sum(7), Key("conv", "", True): Sum(5)}
    step = Step("step 2", counters(launch=0.3, totals=totals), (1.0, 1.0, 1.0), sums)
    [launching] = explaining.host_terms(step, T4)
    assert launching.seconds == 0.3
    assert f"7 operators and 2 copies x {T4.host.launch_us.value:g} µs" in launching.formula
    links = {term.name: term.formula for term in explaining.link_terms(step, T4)}
    assert "38.5 MB" in links["cpu > cuda:0"] and links["cpu > cuda:0"].endswith("bytes / 11 GB/s")
    assert links["reduce"] == "6 x, 50 MB x 70 µs/MB"
    assert "in a ring" in links["nccl:allreduce"]


def test_every_constant_has_a_source():
    found = dict(explaining.constants(T4))
    assert {"launch_us", "module_us", "host_gb_s", "latency_us"} <= set(found)
    assert any("TFLOP/s" in name and "float32" in name for name in found)
    assert not any("peak" in name for name in found)
    assert all(quantity.source for quantity in found.values())


def test_the_seconds_are_those_of_the_clock():
    step = ledger_of(lambda: train(3, parallel=False))
    assert sum(total.seconds for total in step.sums.values()) == pytest.approx(
        sum(step.counters.busy) - sum(step.counters.copying)
    )


def test_everything_is_undone_even_after_an_error():
    length = Simulation._length

    def run():
        raise KeyError("no")

    with pytest.raises(KeyError):
        ledger_of(run)
    assert Simulation._length is length
    with simgpu.simulate("1xT4"):
        pass


def test_the_script_ends_well_where_a_step_is_known():
    with pytest.raises(SystemExit) as ended:
        raise Enough
    assert not ended.value.code
