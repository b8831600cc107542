"""How nn.DataParallel splits what it is given, and joins what comes back."""

from collections import OrderedDict, defaultdict, namedtuple
from dataclasses import dataclass

import pytest
import torch
from torch import nn
from torch.nn.parallel.scatter_gather import gather, scatter, scatter_kwargs

from grader import simgpu

CUDA0, CUDA1 = torch.device("cuda:0"), torch.device("cuda:1")


@pytest.fixture
def machine():
    with simgpu.simulate("2xT4") as machine:
        yield machine


@pytest.fixture
def four():
    with simgpu.simulate("4xT4") as machine:
        yield machine


class Given(nn.Module):
    """Calls a function with what its replica was given."""

    def __init__(self, act):
        super().__init__()
        self.act = act

    def forward(self, *args, **kwargs):
        return self.act(*args, **kwargs)


def apply(act, *args, **kwargs):
    return nn.DataParallel(Given(act))(*args, **kwargs)


def first(value, *_, **__):
    return value


# ----------------------------------------------------------------------------- what is split


def test_a_tensor_that_is_no_batch_is_split_too(machine):
    shapes = []

    def act(images, table):
        shapes.append(table.shape)
        return images

    apply(act, torch.rand(4, 2), torch.rand(21, 3))
    assert shapes == [(11, 3), (10, 3)]


def test_each_tensor_of_a_list_is_split_and_not_the_list(machine):
    lengths = []

    def act(tensors):
        lengths.append([tensor.size(0) for tensor in tensors])
        return tensors[0]

    apply(act, [torch.rand(4, 1), torch.rand(6, 1), torch.rand(2, 1)])
    assert lengths == [[2, 3, 1], [2, 3, 1]]


def test_nested_arguments_are_split_and_keep_their_types(machine):
    Pair = namedtuple("Pair", "image label")
    seen = []

    def act(batch):
        seen.append(batch)
        return batch["pair"].image

    batch = OrderedDict(pair=Pair(torch.rand(4, 2), torch.rand(4)), more=[(torch.rand(4), "name"), None], n=3)
    apply(act, batch)
    assert [type(share) for share in seen] == [OrderedDict, OrderedDict]
    assert seen[1]["pair"].label.device == CUDA1
    assert isinstance(seen[1]["pair"], Pair)
    assert seen[1]["more"][0][0].shape == (2,) and seen[1]["more"][0][1] == "name"
    assert seen[1]["more"][1] is None and seen[0]["n"] == 3


def test_an_object_of_a_class_of_ones_own_goes_whole_to_every_replica(machine):
    @dataclass
    class Batch:
        images: torch.Tensor

    seen = []

    def act(batch):
        seen.append(batch)
        return batch.images.cuda()

    batch = Batch(torch.rand(4, 2))
    out = nn.DataParallel(Given(act))(batch)
    assert all(share is batch for share in seen) and len(seen) == 2
    assert out.shape == (8, 2)  # every row twice, and nothing says so


def test_a_dictionary_with_a_default_cannot_be_made_again(machine):
    with pytest.raises(TypeError, match="first argument must be callable or None"):
        apply(first, defaultdict(list, images=torch.rand(4, 2)))


def test_lists_of_numbers_go_whole_to_every_replica(four):
    seen = []

    def act(images, names):
        seen.append((images.size(0), len(names)))
        return images

    apply(act, torch.rand(8, 2), ["a"] * 8)
    assert seen == [(2, 8)] * 4


def test_batches_smaller_than_the_number_of_gpus(four):
    for rows in (1, 2, 3):
        used = []

        def act(images, used=used):
            used.append(images.device.index)
            return images

        assert apply(act, torch.rand(rows, 2)).shape == (rows, 2)
        assert used == list(range(rows))


def test_an_empty_batch(machine):
    def act(images):
        return images

    assert apply(act, torch.rand(0, 2)).shape == (0, 2)


def test_along_another_dimension(machine):
    shapes = []

    def act(sequence):
        shapes.append(sequence.shape)
        return sequence

    model = nn.DataParallel(Given(act), dim=1)
    assert model(torch.rand(5, 4, 3)).shape == (5, 4, 3)
    assert shapes == [(5, 2, 3), (5, 2, 3)]
    shapes.clear()
    assert nn.DataParallel(Given(act))(torch.rand(5, 4, 3)).shape == (5, 4, 3)
    assert shapes == [(3, 4, 3), (2, 4, 3)]


def test_without_any_input(machine):
    net = Given(lambda: torch.ones(1, device=CUDA0))
    assert nn.DataParallel(net)().device == CUDA0


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((), {"images": 4}),
        (([],), {"images": 4}),
        (({},), {"images": 4}),
        (((),), {"images": 4}),
    ],
    ids=["only by name", "an empty list", "an empty dictionary", "an empty tuple"],
)
def test_only_keywords_hold_tensors(machine, args, kwargs):
    rows = []

    def act(nothing=None, *, images):
        assert not nothing
        rows.append(images.size(0))
        return images

    kwargs = {name: torch.rand(n, 2) for name, n in kwargs.items()}
    assert apply(act, *args, **kwargs).shape == (4, 2)
    assert rows == [2, 2]


def test_positional_and_named_arguments(machine):
    def act(images, *, scale, shift=0.0):
        return images * scale + shift

    images, scale = torch.rand(5, 2), torch.rand(5, 2)
    torch.testing.assert_close(apply(act, images, scale=scale).cpu(), images * scale)
    torch.testing.assert_close(apply(act, images, scale=2.0, shift=scale).cpu(), images * 2 + scale)


def test_an_input_may_be_on_any_device(machine):
    for where in ("cpu", "cuda:0", "cuda:1"):
        devices = []

        def act(images, devices=devices):
            devices.append(images.device)
            return images

        assert apply(act, torch.rand(4, 2).to(where)).device == CUDA0
        assert devices == [CUDA0, CUDA1]


def test_scatter_by_itself(machine):
    shares = scatter(torch.arange(5.0), [0, 1])
    assert [(share.tolist(), share.device) for share in shares] == [([0, 1, 2], CUDA0), ([3, 4], CUDA1)]
    inputs, named = scatter_kwargs((torch.rand(4),), {"a": torch.rand(3, 1)}, [0, 1])
    assert len(inputs) == len(named) == 2
    # Shares that are missing on one side become empty.
    inputs, named = scatter_kwargs((torch.rand(1),), {"a": torch.rand(2)}, [0, 1])
    assert inputs[1] == () and named[1]["a"].shape == (1,)


@pytest.mark.parametrize("where", ["cpu", "cuda:0", "cuda:1"])
def test_gradients_of_scatter(machine, where):
    from torch.nn.parallel import comm
    from torch.nn.parallel._functions import Scatter

    leaf = torch.rand(6, dtype=torch.float64).to(where).requires_grad_()
    shares = Scatter.apply([0, 1], [2, 4], 0, leaf)
    assert [share.size(0) for share in shares] == [2, 4]
    (shares[0].sum() * 2 + shares[1].sum().to(CUDA0) * 3).backward()
    assert leaf.grad.tolist() == [2.0] * 2 + [3.0] * 4
    assert leaf.grad.device == leaf.device
    assert [part.size(0) for part in comm.scatter(leaf.detach(), [0, 1], chunk_sizes=[1, 5])] == [1, 5]
    with pytest.raises(RuntimeError, match="Expected devices and chunk_sizes to be of same length"):
        comm.scatter(leaf.detach(), [0, 1], chunk_sizes=[6])

    def split(tensor):
        one, two = Scatter.apply([0, 1], None, 0, tensor)
        return one, two

    assert torch.autograd.gradcheck(split, (leaf,))
    assert torch.autograd.gradgradcheck(split, (leaf,))


# ----------------------------------------------------------------------------- what is joined


def test_nested_outputs_are_joined_and_keep_their_types(machine):
    Pair = namedtuple("Pair", "logits extra")

    def act(images):
        return {"pair": Pair(images, [images * 2]), "list": [images, (images,)], "none": None}

    images = torch.rand(6, 2)
    out = apply(act, images)
    torch.testing.assert_close(out["pair"].extra[0].cpu(), images * 2)
    assert isinstance(out["pair"], Pair) and out["list"][1][0].shape == (6, 2) and out["none"] is None


def test_outputs_of_one_row_lose_a_dimension_by_squeeze(four):
    with pytest.raises(
        RuntimeError, match="Expected all input tensors to have the same number of dimensions"
    ):
        apply(lambda images: images.squeeze(), torch.rand(5, 2))
    assert apply(lambda images: images.squeeze(-1), torch.rand(5, 1)).shape == (5,)


def test_outputs_of_other_widths_cannot_be_joined(machine):
    with pytest.raises(
        RuntimeError, match=r"Input tensor at index 1 has invalid shape \[1, 1\], but expected"
    ):
        apply(lambda images: images.new_zeros(images.size(0), images.size(0)), torch.rand(3, 2))


def test_outputs_left_on_the_cpu(machine):
    with pytest.raises(
        (RuntimeError, AssertionError, ValueError), match="CPU tensors|all input tensors to be CUDA"
    ):
        apply(lambda images: images.cpu(), torch.rand(4, 2))


@pytest.mark.parametrize("value", [1, 1.5, True])
def test_numbers_cannot_be_joined(machine, value):
    with pytest.raises(TypeError, match=f"'{type(value).__name__}' object is not iterable"):
        apply(lambda images: value, torch.rand(4, 2))


def test_tuples_of_different_lengths(machine):
    with pytest.raises(ValueError, match=r"zip\(\) argument 2 is shorter than argument 1"):
        apply(lambda images: (images,) * (2 - images.device.index), torch.rand(4, 2))


def test_dictionaries_of_different_lengths(machine):
    def act(images):
        return {str(i): images for i in range(2 - images.device.index)}

    with pytest.raises(ValueError, match="All dicts must have the same number of keys"):
        apply(act, torch.rand(4, 2))


def test_output_to_another_device_and_to_the_cpu(machine):
    net = nn.Linear(2, 2).cuda()
    leaf = torch.rand(4, 2)
    expected = net(leaf.cuda())
    for output_device, where in ((1, CUDA1), ("cuda:1", CUDA1), (CUDA0, CUDA0)):
        out = nn.DataParallel(net, output_device=output_device)(leaf)
        assert out.device == where
        torch.testing.assert_close(out.cpu(), expected.cpu())


def test_gather_by_itself(machine):
    parts = [torch.rand(2, 3, device=where, requires_grad=True) for where in (CUDA0, CUDA1)]
    for target in (0, CUDA1, "cuda:0"):
        joined = gather(parts, target)
        assert joined.shape == (4, 3)
    assert gather(parts, CUDA1, dim=1).shape == (2, 6)
    with pytest.warns(FutureWarning, match="Using -1 to represent CPU tensor is deprecated"):
        joined = gather(parts, -1)
    assert joined.device.type == "cpu"
    assert gather(parts, "cpu").device.type == "cpu"
    (gather(parts, 1) * torch.arange(12.0, device=CUDA1).view(4, 3)).sum().backward()
    assert parts[1].grad.device == CUDA1
    assert parts[1].grad.tolist() == [[6.0, 7.0, 8.0], [9.0, 10.0, 11.0]]


def test_scalars_are_joined_to_a_vector(machine):
    parts = [torch.tensor(float(i), device=f"cuda:{i}", requires_grad=True) for i in range(2)]
    with pytest.warns(UserWarning, match="all input tensors were scalars; will instead unsqueeze"):
        joined = gather(parts, 0)
    assert joined.tolist() == [0.0, 1.0]
    (joined * torch.tensor([2.0, 3.0], device=CUDA0)).sum().backward()
    assert [part.grad.item() for part in parts] == [2.0, 3.0]


def test_the_mean_of_means_is_not_the_mean_over_unequal_shares(machine):
    rows = torch.tensor([1.0, 1.0, 4.0])
    with pytest.warns(UserWarning, match="all input tensors were scalars"):
        loss = apply(lambda images: images.mean(), rows)
    assert loss.tolist() == [1.0, 4.0]
    assert loss.mean().item() == 2.5 and rows.mean().item() == 2.0


def test_complex_outputs(machine):
    values = torch.randn(4, 2, dtype=torch.complex64)
    out = apply(lambda images: images * 1j, values)
    assert out.dtype is torch.complex64 and out.device == CUDA0
    torch.testing.assert_close(out.cpu(), values * 1j)
