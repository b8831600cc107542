"""torch.nn.parallel's functions by themselves, what device_ids may be, and saving."""

import io
import warnings

import pytest
import torch
from torch import nn
from torch.nn.parallel import comm, data_parallel, parallel_apply, replicate

from grader import simgpu

CUDA0, CUDA1 = torch.device("cuda:0"), torch.device("cuda:1")


@pytest.fixture
def machine():
    with simgpu.simulate("2xT4") as machine:
        yield machine


# ----------------------------------------------------------------------------- devices


@pytest.mark.parametrize(
    "ids", [[0, 1], ["cuda:0", "cuda:1"], [CUDA0, CUDA1], (0, 1), [torch.device("cuda", 0), 1], ["cuda", 1]]
)
def test_devices_may_be_named_in_any_way(machine, ids):
    model = nn.DataParallel(nn.Linear(2, 2).cuda(), device_ids=ids)
    assert model(torch.rand(4, 2)).device == CUDA0
    assert model.device_ids == [0, 1]


def test_all_devices_without_being_told(machine):
    model = nn.DataParallel(nn.Linear(2, 2).cuda())
    assert (model.device_ids, model.output_device, model.src_device_obj) == ([0, 1], 0, CUDA0)


def test_no_devices(machine):
    with pytest.raises((RuntimeError, IndexError, AssertionError)):
        nn.DataParallel(nn.Linear(2, 2).cuda(), device_ids=[])


def test_without_gpus_the_wrapper_only_forwards():
    model = nn.DataParallel(nn.Linear(2, 2))
    assert model.device_ids == []
    assert model(torch.rand(4, 2)).device.type == "cpu"


def test_ids_of_a_larger_machine(machine):
    with pytest.raises(AssertionError, match="Invalid device id"):
        nn.DataParallel(nn.Linear(2, 2).cuda(), device_ids=[0, 1, 2, 3])
    with pytest.raises(RuntimeError, match="CUDA error: invalid device ordinal"):
        nn.Linear(2, 2).to("cuda:2")


def test_an_imbalance_of_multiprocessors_or_memory(machine):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        nn.DataParallel(nn.Linear(2, 2).cuda())
    machine.devices[1].memory.capacity //= 2
    text = r"exclude GPU 1 which\s+has less than 75% of the memory or cores of GPU 0"
    with pytest.warns(UserWarning, match=text):
        nn.DataParallel(nn.Linear(2, 2).cuda())


# ----------------------------------------------------------------------------- the functional form


@pytest.mark.parametrize("ids", [(0, 1), (1, 0), (0,)])
def test_the_functional_form(machine, ids):
    net = nn.Linear(3, 2).to(f"cuda:{ids[0]}")
    inputs = torch.rand(5, 3, device=f"cuda:{ids[0]}", requires_grad=True)
    out = data_parallel(net, inputs, ids)
    out.pow(2).sum().backward()
    assert out.device == net.weight.device == inputs.grad.device
    expected = net(inputs)
    torch.testing.assert_close(out, expected)
    kept, net.weight.grad = net.weight.grad, None
    expected.pow(2).sum().backward()
    torch.testing.assert_close(kept, net.weight.grad)


def test_the_functional_form_elsewhere(machine):
    net = nn.Linear(3, 2).cuda()
    assert data_parallel(net, torch.rand(4, 3), [0, 1], output_device=1).device == CUDA1
    assert data_parallel(net, (torch.rand(4, 3),), module_kwargs=None).device == CUDA0
    with pytest.raises(RuntimeError, match=r"on device cuda:1 \(device_ids\[0\]\) but found one of them"):
        data_parallel(net, torch.rand(4, 3), [1, 0])


def test_applying_in_parallel(machine):
    nets = [nn.Linear(3, 2).to(device) for device in (CUDA0, CUDA1)]
    inputs = [torch.rand(2, 3, device=device) for device in (CUDA0, CUDA1)]
    for given in (inputs, [(tensor,) for tensor in inputs]):
        outputs = parallel_apply(nets, given, None, [0, 1])
        for net, tensor, out in zip(nets, inputs, outputs, strict=True):
            torch.testing.assert_close(out, net(tensor))
    with torch.autocast("cuda"):
        assert {out.dtype for out in parallel_apply(nets, inputs)} == {torch.float16}
    with pytest.raises(Exception, match="number of modules 2 is not equal to the number of inputs 1"):
        parallel_apply(nets, inputs[:1])


def test_what_a_worker_raises_comes_with_its_replica_and_traceback(machine):
    class Broken(nn.Module):
        def forward(self, inputs):
            raise KeyError("no such thing")

    broken = Broken()
    with pytest.raises(KeyError, match=r"Caught KeyError in replica 0 on device 0.\nOriginal Traceback"):
        parallel_apply([broken, nn.Identity()], [torch.rand(1), torch.rand(1)], None, [0, 1])

    class Unusual(Exception):
        def __init__(self, one, two):
            super().__init__(one)

    class Odd(nn.Module):
        def forward(self, inputs):
            raise Unusual(1, 2)

    with pytest.raises(RuntimeError, match="Caught Unusual in replica 0 on device 0"):
        parallel_apply([Odd()], [torch.rand(1)], None, [0])


# ----------------------------------------------------------------------------- communication


def test_broadcast_and_its_errors(machine):
    tensor = torch.arange(3.0, device=CUDA0)
    copies = comm.broadcast(tensor, [0, 1])
    assert [copy.device for copy in copies] == [CUDA0, CUDA1] and copies[1].tolist() == [0.0, 1.0, 2.0]
    out = [torch.empty(3, device=CUDA1)]
    assert comm.broadcast(tensor, out=out)[0].tolist() == [0.0, 1.0, 2.0]
    with pytest.raises(RuntimeError, match="Exactly one of 'devices' and 'out'"):
        comm.broadcast(tensor)
    with pytest.raises(RuntimeError, match=r"All tensors must be on devices\[0\]: 1"):
        comm.broadcast_coalesced([tensor], [1, 0])
    with pytest.raises(AssertionError, match="Broadcast function not implemented for CPU tensors"):
        torch.nn.parallel._functions.Broadcast.apply([0, 1], torch.rand(1))
    assert [[t.device for t in copy] for copy in comm.broadcast_coalesced([tensor, tensor], [0, 1])] == [
        [CUDA0, CUDA0],
        [CUDA1, CUDA1],
    ]


def test_reduce_and_its_errors(machine):
    parts = [torch.ones(2, device=device) for device in (CUDA0, CUDA1)]
    total = comm.reduce_add(parts, 1)
    assert total.device == CUDA1 and total.tolist() == [2.0, 2.0]
    assert comm.reduce_add_coalesced([[part] for part in parts], 0)[0].tolist() == [2.0, 2.0]
    assert parts[0].tolist() == [1.0, 1.0]
    with pytest.raises(AssertionError, match="expects all inputs to be on GPUs, but input 1 is on CPU"):
        comm.reduce_add([parts[0], torch.ones(2)])
    with pytest.raises(RuntimeError, match="destination to be on the same GPU with one of the tensors"):
        comm.reduce_add(parts[:1], 1)
    sparse = [torch.eye(2).to_sparse().to(device) for device in (CUDA0, CUDA1)]
    assert comm.reduce_add(sparse, 0).to_dense().tolist() == [[2.0, 0.0], [0.0, 2.0]]


def test_scatter_and_gather_and_their_errors(machine):
    out = [torch.empty(2, device=CUDA0), torch.empty(1, device=CUDA1)]
    comm.scatter(torch.arange(3.0), out=out)
    assert [part.tolist() for part in out] == [[0.0, 1.0], [2.0]]
    assert comm.gather(out, destination=1).device == CUDA1
    into = torch.empty(3, device=CUDA1)
    assert comm.gather(out, out=into) is into and into.tolist() == [0.0, 1.0, 2.0]
    assert comm.gather(out, destination="cpu").device.type == "cpu"
    with pytest.raises(RuntimeError, match="Expected at least one device to scatter to"):
        comm.scatter(torch.rand(2), [])
    with pytest.raises(RuntimeError, match="Expected at least one tensor to gather from"):
        comm.gather([], destination=0)
    with pytest.raises(
        RuntimeError, match="Expected all input tensors to be CUDA tensors, but tensor at index 1"
    ):
        comm.gather([out[0], torch.ones(1)], destination=0)


# ----------------------------------------------------------------------------- saving and optimizing


def saved(value):
    buffer = io.BytesIO()
    torch.save(value, buffer)
    buffer.seek(0)
    return buffer


def test_names_in_a_saved_wrapper(machine):
    net = nn.Linear(2, 2).cuda()
    model = nn.DataParallel(net)
    state = torch.load(saved(model.state_dict()))
    assert list(state) == ["module.weight", "module.bias"]
    assert state["module.weight"].device == CUDA0
    with pytest.raises(RuntimeError, match=r'Unexpected key\(s\) in state_dict: "module.weight"'):
        nn.Linear(2, 2).load_state_dict(state)
    with pytest.raises(RuntimeError, match=r'Missing key\(s\) in state_dict: "module.weight"'):
        model.load_state_dict(net.state_dict())
    nn.modules.utils.consume_prefix_in_state_dict_if_present(state, "module.")
    nn.Linear(2, 2).load_state_dict(state)


def test_a_whole_wrapper_is_saved_and_works_again(machine):
    loaded = torch.load(saved(nn.DataParallel(nn.Linear(2, 2).cuda())), weights_only=False)
    assert loaded(torch.rand(4, 2)).device == CUDA0


def test_optimizer_state_left_on_the_cpu(machine):
    net = nn.Linear(2, 2).cuda()
    model = nn.DataParallel(net)
    optimizer = torch.optim.Adam(model.parameters(), foreach=False)
    model(torch.rand(4, 2)).sum().backward()
    optimizer.step()
    for state in optimizer.state.values():
        state["exp_avg"] = state["exp_avg"].cpu()
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        optimizer.step()
    optimizer.load_state_dict(torch.load(saved(optimizer.state_dict()), map_location="cpu"))
    assert optimizer.state[net.weight]["exp_avg"].device == CUDA0
    optimizer.step()


def test_a_leaf_that_was_moved_has_no_gradient(machine):
    moved = torch.ones(2, requires_grad=True).cuda()
    moved.sum().backward()
    with pytest.warns(UserWarning, match="The .grad attribute of a Tensor that is not a leaf"):
        assert moved.grad is None
    leaf = torch.ones(2).cuda().requires_grad_()
    leaf.sum().backward()
    assert leaf.grad.device == CUDA0


@pytest.mark.parametrize(
    "make",
    [
        lambda p: torch.optim.SGD(p, 0.1, momentum=0.9),
        lambda p: torch.optim.Adam(p, 0.1),
        lambda p: torch.optim.AdamW(p, 0.1, fused=True),
        lambda p: torch.optim.AdamW(p, 0.1, foreach=True),
        lambda p: torch.optim.RMSprop(p, 0.1),
        lambda p: torch.optim.Adagrad(p, 0.1),
    ],
)
def test_a_step_leads_where_it_does_on_one_gpu(machine, make):
    weights = []
    for wrap in (lambda net: net, nn.DataParallel):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).cuda()
        optimizer = make(net.parameters())
        model = wrap(net)
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.rand(6, 3, device=CUDA0)).pow(2).mean().backward()
            nn.utils.clip_grad_norm_(net.parameters(), 0.5)
            optimizer.step()
        weights.append([p.detach().cpu() for p in net.parameters()])
    for one, two in zip(*weights, strict=True):
        torch.testing.assert_close(one, two)


def test_replicate_refuses_a_model_elsewhere(machine):
    with pytest.raises(RuntimeError, match=r"All tensors must be on devices\[0\]: 1"):
        replicate(nn.Linear(2, 2).cuda(), [1, 0])
