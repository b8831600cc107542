"""Every operator knows the module in whose forward, or backward, it ran, and the phase of the step."""

import threading

import torch
from torch import nn
from torch.optim import optimizer as optimizers
from torch.utils.checkpoint import checkpoint

from grader import simgpu
from grader.simgpu.local import local
from grader.simgpu.view.naming import Naming
from tests.simgpu.views.runs import Net, record, train


def ran(spans, **wanted):
    """The modules that are seen on the devices for what has these fields."""
    return {
        span.module
        for span in spans
        if span.kind == "compute" and all(getattr(span, field) == value for field, value in wanted.items())
    }


def test_forward_and_backward_of_nested_modules():
    spans = record(lambda: train(2, parallel=False), "1xT4").spans
    linears = {f"layers.{block}.{layer}" for block in (0, 1) for layer in ("first", "second")} | {"head"}
    assert ran(spans, name="addmm", phase="forward") == linears
    assert ran(spans, name="mm", phase="backward") == linears
    # Functional code belongs to the module whose forward it stands in, between other modules or after them.
    assert ran(spans, name="tanh", phase="forward") == {"layers.0", "layers.1"}
    assert ran(spans, name="tanh_backward") == {"layers.0", "layers.1"}
    assert ran(spans, name="threshold_backward") == {"layers.0", "layers.1"}
    assert ran(spans, name="nll_loss_forward") == {"CrossEntropyLoss"}
    assert ran(spans, phase="optimizer") == {""}


def test_replicas_have_the_names_of_their_originals_on_every_device():
    spans = record(lambda: train(2)).spans
    for track in ("cuda:0", "cuda:1"):
        found = ran(spans, track=track, name="addmm")
        assert found == {"module.head"} | {
            f"module.layers.{block}.{layer}" for block in (0, 1) for layer in ("first", "second")
        }
        assert ran(spans, track=track, name="tanh_backward") == {"module.layers.0", "module.layers.1"}


def test_a_second_model_is_told_apart_by_its_class():
    class Judge(nn.Sequential):
        pass

    def run():
        maker, judge = Net().cuda(), Judge(nn.Linear(4, 1)).cuda()
        judge(maker(torch.randn(8, 16).cuda())).sum().backward()

    found = ran(record(run, "1xT4").spans, name="addmm")
    assert "Judge.0" in found and "head" in found


def test_a_module_made_on_the_way_is_named_by_its_class():
    class Inline(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Sequential(nn.Linear(8, 8))

        def forward(self, x):
            return nn.Softmax(dim=-1)(self.inner(x))

    spans = record(lambda: Inline().cuda()(torch.randn(2, 8).cuda()), "1xT4").spans
    assert ran(spans, name="_softmax") == {"Softmax"}
    assert ran(spans, name="addmm") == {"inner.0"}


def test_what_a_checkpoint_computes_again_keeps_its_module():
    class Saving(nn.Module):
        def __init__(self):
            super().__init__()
            self.block = nn.Sequential(nn.Linear(8, 8), nn.Tanh())

        def forward(self, x):
            return checkpoint(self.block, x, use_reentrant=False)

    def run():
        Saving().cuda()(torch.randn(2, 8).cuda()).sum().backward()

    spans = record(run, "1xT4").spans
    again = [span for span in spans if span.name == "addmm" and span.kind == "compute"]
    assert [span.module for span in again] == ["block.0", "block.0"]


def test_a_module_that_raises_is_left():
    class Broken(nn.Module):
        def forward(self, x):
            raise ValueError("no")

    def run():
        x = torch.randn(2, 2).cuda()
        try:
            Broken()(x)
        except ValueError:
            x.mul(2)

    assert ran(record(run, "1xT4").spans, name="mul") == {""}


def test_everything_is_undone():
    hooks = (
        nn.modules.module._global_forward_hooks,
        nn.modules.module._global_forward_pre_hooks,
        optimizers._global_optimizer_pre_hooks,
        optimizers._global_optimizer_post_hooks,
    )
    before = [dict(hook) for hook in hooks]
    record(lambda: train(1))
    assert [dict(hook) for hook in hooks] == before
    assert (local.module, local.phase) == ("", "forward")


def test_values_and_graph_stay_as_they_were():
    def gradient(watched):
        with simgpu.simulate("1xT4"):
            torch.manual_seed(1)
            net = Net().cuda()
            naming = Naming(lambda optimizer: None, lambda module: None)
            if watched:
                naming.install()
            net(torch.ones(2, 16).cuda()).sum().backward()
            naming.remove()
            return simgpu.physical(net.layers[0].first.weight.grad).clone()

    assert torch.equal(gradient(True), gradient(False))


def test_wrapper_steps_and_parameters_are_noted_with_and_without_spans():
    full, cheap = record(lambda: train(3)), record(lambda: train(3), spans=False)
    for each in (full, cheap):
        assert each.steps == 3 and each.bound == "optimizer.step()"
        assert (each.parallel.kind, each.parallel.modules, each.parallel.devices) == ("DataParallel", 9, 2)
        assert each.step.now > 0
    assert cheap.seconds == full.seconds
    calls = {(device, name) for device, name, _ in full.whole.totals}
    assert {(device, name) for device, name, _ in cheap.whole.totals} == calls
    assert full.devices[0].parameters > full.devices[1].parameters == 0


def test_forwards_are_the_steps_where_nothing_is_optimized():
    def run():
        net = nn.DataParallel(Net().cuda())
        for _ in range(3):
            net(torch.randn(8, 16).cuda())

    found = record(run)
    assert (found.steps, found.bound) == (3, "forward")


def test_threads_of_the_script_know_their_modules_and_end_no_steps():
    def run():
        nets = [nn.Sequential(nn.Linear(8, 8)).cuda(device) for device in (0, 1)]
        inputs = [torch.randn(2, 8).cuda(device) for device in (0, 1)]
        threads = [threading.Thread(target=net, args=(x,)) for net, x in zip(nets, inputs, strict=True)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    found = record(run)
    assert ran(found.spans, track="cuda:0", name="addmm") == {"0"}
    assert ran(found.spans, track="cuda:1", name="addmm") == {"Sequential.0"}
    assert found.steps == 0


def test_the_line_that_waits_is_found():
    found = record(lambda: train(3), spans=False)
    [site] = [site for site in found.waits if "loss.item()" in site]
    assert site.startswith("runs.py:") and found.waits[site].calls == 3
