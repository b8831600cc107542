"""nn.DataParallel over simulated GPUs behaves, and fails, as over real ones."""

import re
import threading
import warnings

import pytest
import torch
from torch import nn

from grader import simgpu


@pytest.fixture(params=[True, False], ids=["math", "no-math"])
def machine(request):
    with simgpu.simulate("4xT4", math=request.param) as machine:
        yield machine


class Spy(nn.Module):
    """Hands on its input and remembers what each replica was given."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))
        self.seen = []

    def forward(self, *inputs, **named):
        self.seen.append((threading.current_thread().name, inputs, named))
        return inputs[0] * self.weight


@pytest.mark.parametrize(
    ("rows", "shares"),
    [(9, [3, 3, 3]), (5, [2, 2, 1]), (1, [1]), (8, [2, 2, 2, 2]), (13, [4, 4, 4, 1])],
)
def test_rows_are_split_as_chunk_does(machine, rows, shares):
    model = nn.DataParallel(Spy().cuda())
    out = model(torch.randn(rows, 2))
    assert out.shape == (rows, 2)
    assert out.device == torch.device("cuda:0")
    seen = model.module.seen
    assert [inputs[0].size(0) for _, inputs, _ in seen] == shares
    assert [inputs[0].device.index for _, inputs, _ in seen] == list(range(len(shares)))


def test_a_model_that_was_never_moved(machine):
    message = r"module must have its parameters and buffers on device cuda:0 \(device_ids\[0\]\).*device: cpu"
    with pytest.raises(RuntimeError, match=message):
        nn.DataParallel(nn.Linear(2, 2))(torch.randn(4, 2))


def test_a_model_on_another_gpu_than_the_first_id(machine):
    model = nn.DataParallel(nn.Linear(2, 2).cuda(), device_ids=[1, 0])
    with pytest.raises(RuntimeError, match=r"on device cuda:1 \(device_ids\[0\]\).*device: cuda:0"):
        model(torch.randn(4, 2))


def test_one_id_moves_the_model_itself(machine):
    model = nn.DataParallel(nn.Linear(2, 2), device_ids=[1])
    assert model(torch.randn(4, 2)).device == torch.device("cuda:1")


def test_an_id_that_does_not_exist(machine):
    with pytest.raises(AssertionError, match="Invalid device id"):
        nn.DataParallel(nn.Linear(2, 2).cuda(), device_ids=[0, 7])


def test_ids_in_another_order(machine):
    model = nn.DataParallel(Spy().to("cuda:1"), device_ids=[1, 0], output_device=0)
    assert model(torch.randn(4, 2)).device == torch.device("cuda:0")
    assert [inputs[0].device.index for _, inputs, _ in model.module.seen] == [1, 0]


def test_targets_left_on_the_cpu(machine):
    output = nn.DataParallel(nn.Linear(2, 3).cuda())(torch.randn(4, 2))
    message = r"on the same device.*\(when checking argument in method wrapper_CUDA_nll_loss_forward\)"
    with pytest.raises(RuntimeError, match=message):
        nn.functional.cross_entropy(output, torch.zeros(4, dtype=torch.int64))


def test_a_hard_coded_device_in_forward(machine):
    class Net(nn.Linear):
        def forward(self, x):
            return super().forward(x) + torch.ones(2, device="cuda:0")

    message = (
        r"Caught RuntimeError in replica 1 on device 1\.\n(?s:.*)"
        r"Expected all tensors to be on the same device, but found at least two devices, cuda:1 and cuda:0!"
    )
    with pytest.raises(RuntimeError, match=message):
        nn.DataParallel(Net(2, 2).cuda())(torch.randn(4, 2))


def test_a_plain_tensor_attribute_stays_behind(machine):
    class Net(nn.Linear):
        def forward(self, x):
            return super().forward(x) * self.scale

    net = Net(2, 2).cuda()
    net.scale = torch.ones(2).cuda()
    with pytest.raises(RuntimeError, match="cuda:1 and cuda:0!"):
        nn.DataParallel(net)(torch.randn(4, 2))


def test_replicas_have_no_parameters(machine):
    class Net(nn.Linear):
        def forward(self, x):
            return super().forward(x.to(next(self.parameters()).device))

    with pytest.raises(StopIteration, match="Caught StopIteration in replica 0 on device 0"):
        nn.DataParallel(Net(2, 2).cuda())(torch.randn(4, 2))


def test_only_a_buffer_written_in_place_survives(exact):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.count = 0
            self.register_buffer("in_place", torch.zeros(1))
            self.register_buffer("assigned", torch.zeros(1))

        def forward(self, x):
            self.count += 1
            self.in_place += 1
            self.assigned = self.assigned + 1
            return x

    model = nn.DataParallel(Net().cuda())
    for _ in range(2):
        model(torch.randn(4, 2))
    net = model.module
    assert (net.count, net.in_place.item(), net.assigned.item()) == (0, 2, 0)


def test_a_scalar_argument_cannot_be_split(machine):
    with pytest.raises(RuntimeError, match="chunk expects at least a 1-dimensional tensor"):
        nn.DataParallel(Spy().cuda())(torch.tensor(1.0))


def test_rows_beyond_the_shorter_argument_are_dropped(machine):
    model = nn.DataParallel(Spy().cuda())
    assert model(torch.randn(8, 2), torch.randn(2, 2)).shape == (4, 2)


def test_a_keyword_has_more_chunks_than_the_positional(machine):
    class Net(nn.Linear):
        def forward(self, x, scale=None):
            return super().forward(x)

    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        nn.DataParallel(Net(2, 2).cuda())(torch.randn(2, 2), scale=torch.ones(4))


def test_what_is_not_a_tensor_goes_whole_to_every_replica(machine):
    model = nn.DataParallel(Spy().cuda())
    model(torch.randn(4, 2), [1, 2, 3, 4], flag="x")
    assert all(inputs[1] == [1, 2, 3, 4] and named == {"flag": "x"} for _, inputs, named in model.module.seen)


def test_a_loss_from_forward_comes_back_as_a_vector(machine):
    class Net(nn.Linear):
        def forward(self, x):
            return super().forward(x).mean()

    model = nn.DataParallel(Net(2, 2).cuda())
    with pytest.warns(UserWarning, match="Was asked to gather along dimension 0"):
        loss = model(torch.randn(8, 2))
    assert loss.shape == (4,)
    with pytest.raises(RuntimeError, match="grad can be implicitly created only for scalar outputs"):
        loss.backward()
    with pytest.raises(RuntimeError, match="a Tensor with 4 elements cannot be converted to Scalar"):
        loss.item()
    loss.mean().backward()


def test_outputs_other_than_tensors(machine):
    class Net(Spy):
        def forward(self, x):
            return self.give(x)

    model = nn.DataParallel(Net().cuda())
    model.module.give = lambda x: None
    assert model(torch.randn(4, 2)) is None
    model.module.give = lambda x: 1.5
    with pytest.raises(TypeError, match="'float' object is not iterable"):
        model(torch.randn(4, 2))
    model.module.give = lambda x: {"a": x, "b": (x, [x])}
    out = model(torch.randn(8, 2))
    assert out["a"].shape == out["b"][1][0].shape == (8, 2)


def test_attributes_and_names_of_the_wrapped_model(machine):
    model = nn.DataParallel(nn.Linear(2, 2).cuda())
    with pytest.raises(AttributeError, match="'DataParallel' object has no attribute 'in_features'"):
        _ = model.in_features
    assert list(model.state_dict()) == ["module.weight", "module.bias"]
    with pytest.raises(RuntimeError, match=r'Missing key\(s\) in state_dict: "weight".*'):
        nn.Linear(2, 2).load_state_dict(model.state_dict())


def test_outputs_and_gradients_are_those_of_one_device(exact):
    def gradients(wrap):
        torch.manual_seed(3)
        net = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 2)).cuda()
        model = wrap(net)
        inputs = torch.randn(7, 5, device="cuda", requires_grad=True)
        out = model(inputs)
        out.pow(2).sum().backward()
        return [tensor.cpu() for tensor in (out, inputs.grad, *(p.grad for p in net.parameters()))]

    for one, two in zip(gradients(lambda net: net), gradients(nn.DataParallel), strict=True):
        torch.testing.assert_close(one, two)


def test_gradients_reach_a_leaf_on_the_cpu(exact):
    leaf = torch.randn(4, 2, requires_grad=True)
    model = nn.DataParallel(nn.Linear(2, 2).cuda())
    model(leaf).sum().backward()
    assert leaf.grad.device.type == "cpu"
    assert {p.grad.device.index for p in model.parameters()} == {0}


def test_batch_statistics_are_those_of_the_first_share(exact):
    torch.manual_seed(0)
    inputs = torch.randn(8, 3)
    norm = nn.DataParallel(nn.BatchNorm1d(3, momentum=1.0).cuda())
    norm(inputs)
    torch.testing.assert_close(norm.module.running_mean.cpu(), inputs[:4].mean(0))


def test_without_gradients_and_in_evaluation(machine):
    model = nn.DataParallel(nn.Sequential(nn.Linear(2, 2), nn.Dropout()).cuda()).eval()
    with torch.no_grad():
        assert not model(torch.randn(4, 2)).requires_grad
    with torch.inference_mode():
        model(torch.randn(4, 2))


def test_an_error_in_one_replica_does_not_stop_the_others(machine):
    class Net(Spy):
        def forward(self, x):
            self.seen.append(x)
            if x.device.index == 1:
                raise KeyError("broken")
            return x

    model = nn.DataParallel(Net().cuda())
    with pytest.raises(KeyError, match="Caught KeyError in replica 1 on device 1"):
        model(torch.randn(8, 2))
    assert len(model.module.seen) == 4


def test_unequal_cards_are_warned_of(exact):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        nn.DataParallel(nn.Linear(2, 2))
    exact.devices[1].memory.capacity //= 2
    with pytest.warns(UserWarning, match=re.escape("There is an imbalance between your GPUs")):
        nn.DataParallel(nn.Linear(2, 2))


def test_recurrent_and_embedding_layers(exact):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(10, 4)
            self.rnn = nn.LSTM(4, 6, batch_first=True)

        def forward(self, x):
            return self.rnn(self.embed(x))[0][:, -1]

    model = nn.DataParallel(Net().cuda())
    model(torch.randint(10, (6, 5))).sum().backward()
    assert model.module.embed.weight.grad.device == torch.device("cuda:0")


@pytest.mark.parametrize("frozen", [0, 2], ids=["the first layer", "the last layer"])
def test_frozen_layers_train_on(machine, frozen):
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)).cuda()
    model[frozen].requires_grad_(False)
    nn.DataParallel(model)(torch.randn(8, 4)).sum().backward()
    assert model[frozen].weight.grad is None
    assert model[2 - frozen].weight.grad.device == torch.device("cuda:0")


def test_wrapping_twice_is_refused_by_the_inner_one(machine):
    with pytest.raises(RuntimeError, match="replica 1 on device 1"):
        nn.DataParallel(nn.DataParallel(nn.Linear(2, 2).cuda()))(torch.randn(8, 2))


def test_adam_on_the_wrapped_model_and_on_the_module_is_the_same_object(machine):
    net = nn.Linear(2, 2)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.1)  # before the model is moved, as many do
    model = nn.DataParallel(net.cuda())
    model(torch.randn(4, 2)).sum().backward()
    optimizer.step()
    assert all(
        parameter is moved
        for parameter, moved in zip(optimizer.param_groups[0]["params"], model.parameters(), strict=True)
    )
