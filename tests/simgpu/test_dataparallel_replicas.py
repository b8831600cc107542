"""What a replica of nn.DataParallel is, and what of it is lost."""

import copy
import gc
import io
import threading
import warnings

import pytest
import torch
from torch import nn
from torch.nn.parallel import replicate

from grader import simgpu

CUDA0, CUDA1 = torch.device("cuda:0"), torch.device("cuda:1")


@pytest.fixture
def machine():
    with simgpu.simulate("2xT4") as machine:
        yield machine


class Net(nn.Linear):
    """A layer whose forward is given, and is told the replica."""

    def __init__(self, act):
        super().__init__(2, 2)
        self.act = act

    def forward(self, inputs):
        return self.act(self, inputs)


def wrapped(act):
    return nn.DataParallel(Net(act).cuda())


def test_parameters_of_a_replica_are_plain_tensors(machine):
    seen = {}

    def act(net, inputs):
        seen[inputs.device.index] = (
            list(net.parameters()),
            isinstance(net.weight, nn.Parameter),
            net.weight.is_leaf,
            net.weight.device,
        )
        return nn.functional.linear(inputs, net.weight, net.bias)

    wrapped(act)(torch.rand(4, 2))
    assert seen == {0: ([], False, False, CUDA0), 1: ([], False, False, CUDA1)}


def test_a_penalty_on_the_parameters_is_silently_nothing(machine):
    def act(net, inputs):
        penalty = sum((p.pow(2).sum() for p in net.parameters()), torch.zeros(1, device=inputs.device))
        return penalty.expand(inputs.size(0), 1)

    assert wrapped(act)(torch.rand(4, 2)).sum().item() == 0.0


def test_the_wrapped_model_is_not_changed(machine):
    def act(net, inputs):
        net.seen = inputs.device
        net.register_buffer("made", torch.zeros(1, device=inputs.device))
        return inputs

    model = wrapped(act)
    before = list(model.state_dict())
    model(torch.rand(4, 2))
    assert list(model.state_dict()) == before
    assert not hasattr(model.module, "seen")


def test_lists_are_shared_between_replicas_and_tensors_in_them_stay_behind(machine):
    def act(net, inputs):
        net.kept.append(inputs.device)
        return inputs + net.cached[0]

    model = wrapped(act)
    model.module.kept = []
    model.module.cached = [torch.ones(2, device=CUDA0)]
    with pytest.raises(RuntimeError, match="replica 1 on device 1(?s:.*)two devices, cuda:1 and cuda:0!"):
        model(torch.rand(4, 2))
    assert model.module.kept == [CUDA0, CUDA1]


def test_calling_another_method_than_forward(machine):
    model = wrapped(lambda net, inputs: inputs)
    model.module.encode = lambda inputs: inputs * 2
    with pytest.raises(AttributeError, match="'DataParallel' object has no attribute 'encode'"):
        model.encode(torch.rand(4, 2))
    assert model.module.encode(torch.rand(4, 2, device=CUDA0)).device == CUDA0
    with pytest.raises(AttributeError, match="has no attribute 'module'"):
        _ = nn.Linear(2, 2).module


def test_an_endless_attribute_lookup(machine):
    class Through(nn.DataParallel):
        def __getattr__(self, name):
            return getattr(self.module, name)

    with pytest.raises(RecursionError):
        Through(nn.Linear(2, 2).cuda())(torch.rand(4, 2))


def test_the_output_wrapped_in_place_of_the_model(machine):
    with pytest.raises((TypeError, AttributeError)):
        nn.DataParallel(nn.Linear(2, 2).cuda()(torch.rand(2, 2, device=CUDA0)))(torch.rand(4, 2))


def test_hooks_run_once_for_each_replica_and_see_its_share(machine):
    model = nn.DataParallel(nn.Sequential(nn.Linear(2, 3), nn.ReLU()).cuda())
    features = {}
    model.module[0].register_forward_hook(
        lambda module, inputs, output: features.update({output.device: output.size(0)})
    )
    last = []
    model.module[1].register_forward_pre_hook(lambda module, inputs: last.append(inputs[0].size(0)))
    model(torch.rand(7, 2))
    assert features == {CUDA0: 4, CUDA1: 3}
    assert last == [4, 3]


def test_backward_hooks(machine):
    model = nn.DataParallel(nn.Linear(2, 2).cuda())
    shares, gradients = [], []
    model.module.register_full_backward_hook(lambda module, inner, outer: shares.append(outer[0].device))
    model.module.weight.register_hook(lambda gradient: gradients.append(gradient.device))
    model(torch.rand(4, 2, requires_grad=True)).sum().backward()
    assert sorted(map(str, shares)) == ["cuda:0", "cuda:1"]
    assert gradients == [CUDA0]  # of the sum over the replicas


def test_retaining_the_gradient_of_a_replicas_parameter(machine):
    kept = []

    def act(net, inputs):
        net.weight.retain_grad()
        kept.append(net.weight)
        return nn.functional.linear(inputs, net.weight, net.bias)

    model = wrapped(act)
    model(torch.ones(4, 2)).sum().backward()
    assert [weight.grad.device for weight in kept] == [CUDA0, CUDA1]
    torch.testing.assert_close(
        model.module.weight.grad.cpu(), sum(weight.grad.cpu() for weight in kept), rtol=0, atol=0
    )


def test_zeroing_the_gradients_of_a_replica_has_no_effect(machine):
    def act(net, inputs):
        net.zero_grad()
        return nn.functional.linear(inputs, net.weight, net.bias)

    model = wrapped(act)
    model(torch.ones(4, 2)).sum().backward()
    before = model.module.weight.grad.clone()
    with pytest.warns(
        UserWarning, match=r"Calling .zero_grad\(\) from a module created with nn.DataParallel"
    ):
        model(torch.ones(4, 2))
    assert torch.equal(model.module.weight.grad, before)


def test_lists_and_dictionaries_of_parameters_reach_the_replicas(machine):
    class Holder(nn.Module):
        def __init__(self):
            super().__init__()
            self.several = nn.ParameterList([nn.Parameter(torch.full((1,), float(i))) for i in range(3)])
            self.named = nn.ParameterDict({"a": nn.Parameter(torch.ones(1))})

        def forward(self, inputs):
            assert len(self.several) == 3 and list(self.named) == ["a"]
            return inputs * sum(self.several) + self.named["a"]

    model = nn.DataParallel(Holder().cuda())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        out = model(torch.ones(4, 1))
    assert out.tolist() == [[4.0]] * 4
    out.sum().backward()
    assert [p.grad.item() for p in model.module.several] == [4.0] * 3
    assert model.module.named["a"].grad.item() == 4.0


def test_shared_parameters_stay_shared(machine):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.one = nn.Linear(2, 2, bias=False)
            self.other = nn.Linear(2, 2, bias=False)
            self.other.weight = self.one.weight

        def forward(self, inputs):
            assert self.one.weight is self.other.weight
            return self.other(self.one(inputs))

    model = nn.DataParallel(Tied().cuda())
    model(torch.rand(4, 2)).sum().backward()
    assert len(list(model.parameters())) == 1


def test_uninitialized_parameters_are_refused(machine):
    model = nn.DataParallel(nn.LazyLinear(2).cuda())
    message = "Modules with uninitialized parameters|Attempted to use an uninitialized parameter"
    with pytest.raises((RuntimeError, ValueError), match=message):
        model(torch.rand(4, 3))
    net = nn.LazyLinear(2).cuda()
    net(torch.rand(1, 3, device=CUDA0))
    assert nn.DataParallel(net)(torch.rand(4, 3)).shape == (4, 2)


def test_no_reference_cycles_are_left(machine):
    model = nn.DataParallel(nn.Sequential(nn.Linear(2, 2), nn.ReLU()).cuda())
    inputs = torch.rand(4, 2)
    model(inputs)
    while gc.collect():  # what other tests have left
        pass
    with torch.no_grad():
        model(inputs)
    assert gc.collect() == 0


def test_replicas_take_memory_only_for_the_step(machine):
    model = nn.DataParallel(nn.Linear(512, 512).cuda())
    weights = torch.cuda.memory_allocated(0)
    with torch.no_grad():
        out = model(torch.rand(4, 512))
    assert torch.cuda.max_memory_allocated(1) >= weights
    del out
    gc.collect()
    torch.cuda.synchronize()  # a copy made on a stream of its own is kept until that stream is done
    assert torch.cuda.memory_allocated(1) == 0
    assert torch.cuda.memory_allocated(0) == weights


def test_modes_of_gradients_reach_the_workers(machine):
    def act(net, inputs):
        assert torch.is_grad_enabled() is net.expected
        assert threading.current_thread() is not threading.main_thread()
        return nn.functional.linear(inputs, net.weight, net.bias)

    model = wrapped(act)
    model.module.expected = True
    assert model(torch.rand(4, 2)).requires_grad
    model.module.expected = False
    with torch.no_grad():
        assert not model(torch.rand(4, 2)).requires_grad


def test_training_and_evaluation_reach_the_replicas(machine):
    def act(net, inputs):
        assert net.training is net.expected
        return inputs

    model = wrapped(act)
    for expected in (True, False):
        model.train(expected)
        model.module.expected = expected
        model(torch.rand(4, 2))


def test_replicate_gives_independent_copies(machine):
    net = nn.BatchNorm1d(3).cuda()
    net.running_mean.fill_(2.0)
    first, second = replicate(net, [0, 1])
    assert first.running_mean.data_ptr() == net.running_mean.data_ptr()
    assert (second.weight.device, second.running_mean.device) == (CUDA1, CUDA1)
    second.running_mean.add_(1.0)
    assert net.running_mean.tolist() == [2.0] * 3 and second.running_mean.tolist() == [3.0] * 3
    detached = replicate(net, ["cuda:0", CUDA1], detach=True)
    assert not detached[1].weight.requires_grad
    assert replicate(net, (0,))[0].weight.device == CUDA0


def test_gradients_reach_a_buffer_that_wants_them(machine):
    net = nn.Module()
    net.register_buffer("scale", torch.ones(2, device=CUDA0).requires_grad_())
    replicas = replicate(net, [0, 1])
    sum((replica.scale * 3).sum().cpu() for replica in replicas).backward()
    assert net.scale.grad.tolist() == [6.0, 6.0]


def test_a_replica_can_be_saved(machine):
    replica = replicate(nn.Linear(2, 2).cuda(), [0, 1], detach=True)[1]
    buffer = io.BytesIO()
    torch.save(replica, buffer)
    buffer.seek(0)
    assert torch.load(buffer, weights_only=False).weight.device == CUDA1


def test_a_wrapped_model_can_be_copied(machine):
    model = nn.DataParallel(nn.Linear(2, 2).cuda())
    other = copy.deepcopy(model)
    assert other.module.weight is not model.module.weight
    assert other(torch.rand(4, 2)).shape == (4, 2)


@pytest.mark.parametrize(
    "damage",
    [
        lambda net: net.linear.to("cuda:1"),
        lambda net: net.linear.cpu(),
        lambda net: net.norm.register_buffer("running_mean", torch.zeros(2)),
        lambda net: net.norm.register_buffer("running_var", torch.ones(2, device="cuda:1")),
    ],
    ids=["parameters on the other GPU", "parameters on the CPU", "a buffer on the CPU", "a buffer elsewhere"],
)
@pytest.mark.parametrize("ids", [[0, 1], [1, 0], None])
def test_every_parameter_and_buffer_has_to_be_on_the_first_device(machine, damage, ids):
    net = nn.Module()
    net.linear, net.norm = nn.Linear(2, 2), nn.BatchNorm1d(2)
    net.forward = lambda inputs: net.norm(net.linear(inputs))
    first = 0 if ids is None else ids[0]
    net.to(f"cuda:{first}")
    model = nn.DataParallel(net, device_ids=ids)
    damage(net)
    here = {t.device for t in (*net.parameters(), *net.buffers())}
    if here == {torch.device(f"cuda:{first}")}:
        return
    with pytest.raises(RuntimeError, match=rf"on device cuda:{first} \(device_ids\[0\]\) but found one of"):
        model(torch.rand(4, 2))


def test_set_device_moves_no_model(machine):
    torch.cuda.set_device(1)
    with pytest.raises(RuntimeError, match="found one of them on device: cpu"):
        nn.DataParallel(nn.Linear(2, 2))(torch.rand(4, 2))
    assert nn.DataParallel(nn.Linear(2, 2).cuda(), device_ids=[1, 0])(torch.rand(4, 2)).device == CUDA1
