"""What may not be moved to a simulated GPU, or not in that way."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from grader import simgpu

CUDA0 = torch.device("cuda:0")


@pytest.fixture(params=[True, False], ids=["math", "no-math"])
def machine(request):
    with simgpu.simulate("2xT4", math=request.param) as machine:
        yield machine


NO_DATA = "Cannot copy out of meta tensor; no data!"
MODULES = (
    " Please use torch.nn.Module.to_empty() instead of torch.nn.Module.to() when moving module from meta "
    "to a different device."
)


@pytest.mark.parametrize(
    ("move", "words"),
    [
        (lambda: torch.empty(2, device="meta").cuda(), NO_DATA),
        (lambda: torch.empty(2, device="meta").cpu(), NO_DATA),
        (lambda: torch.empty(2, device=CUDA0).copy_(torch.empty(2, device="meta")), NO_DATA),
        (lambda: nn.Linear(2, 2, device="meta").cuda(), NO_DATA),
        (lambda: nn.Linear(2, 2, device="meta").to(CUDA0), NO_DATA + MODULES),
    ],
    ids=["cuda", "cpu", "copy_", "module.cuda", "module.to"],
)
def test_a_meta_tensor_cannot_be_copied(machine, move, words):
    with pytest.raises(NotImplementedError) as caught:
        move()
    assert str(caught.value) == words


def test_a_meta_tensor_is_named_as_such(machine):
    with pytest.raises(RuntimeError, match="at least two devices, cuda:0 and meta!"):
        torch.ones(2, device=CUDA0) + torch.ones(2, device="meta")


def test_a_meta_module_is_made_on_the_gpu_without_values(machine):
    assert nn.Linear(2, 2, device="meta").to_empty(device=CUDA0).weight.device == CUDA0


@pytest.mark.parametrize("take", [lambda t: t, torch.Tensor.untyped_storage], ids=["tensor", "storage"])
def test_a_tensor_cannot_take_the_storage_of_another_device(machine, take):
    host, gpu = torch.ones(3), torch.ones(3, device=CUDA0)
    for tensor, source in ((gpu, host), (host, gpu)):
        with pytest.raises(RuntimeError) as caught:
            tensor.set_(take(source))
        assert str(caught.value) == (
            f'Attempted to set the storage of a tensor on device "{tensor.device}" to a storage on different '
            f'device "{source.device}".  This is no longer allowed; the devices must match.'
        )
    assert (host.device.type, gpu.device) == ("cpu", CUDA0)
    assert torch.empty(0, device=CUDA0).set_(take(gpu)).device == CUDA0


def test_lazy_modules_with_buffers_are_moved_before_their_shapes_are_known(machine):
    layers = nn.Sequential(nn.LazyConv2d(4, 3), nn.LazyBatchNorm2d()).to(CUDA0)
    assert layers(torch.ones(2, 3, 8, 8, device=CUDA0)).shape == (2, 4, 6, 6)
    assert layers[1].running_mean.device == CUDA0


def test_to_refuses_what_it_does_not_know_in_torchs_words(machine):
    with pytest.raises(TypeError, match=r"got \(str, int\)"):
        torch.ones(1).to("cuda", 1)


@pytest.mark.parametrize(
    "cloned", [lambda g: g.clone_state(), copy.deepcopy], ids=["clone_state", "deepcopy"]
)
def test_a_copied_generator_is_on_the_gpu_and_goes_on_from_there(cloned):
    with simgpu.simulate("2xT4"):
        generator = torch.Generator("cuda:1").manual_seed(3)
        torch.rand(3, device="cuda:1", generator=generator)
        other = cloned(generator)
        assert other.device == torch.device("cuda:1")
        drawn = [torch.rand(3, device="cuda:1", generator=each) for each in (generator, other)]
        assert torch.equal(*drawn)


@pytest.mark.parametrize("make", [torch.randn, torch.ones], ids=lambda make: make.__name__)
def test_memory_runs_out_before_anything_is_computed(machine, make):
    torch.cuda.set_per_process_memory_fraction(0.01)
    before = torch.cuda.get_rng_state()
    with pytest.raises(
        torch.OutOfMemoryError, match=r"Tried to allocate 4096\.00 GiB.* 150\.94 MiB allowed; "
    ) as caught:
        make(2**40, device=CUDA0)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    assert torch.equal(before, torch.cuda.get_rng_state())


def test_memory_that_this_computer_does_not_have_either_is_cudas_error_alone(machine):
    with pytest.raises(torch.OutOfMemoryError) as caught:
        torch.empty(10**13, device=CUDA0)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_what_takes_less_than_its_size_says_is_not_refused(machine):
    torch.cuda.set_per_process_memory_fraction(0.01)
    assert torch.empty_strided((2**40,), (0,), device=CUDA0).numel() == 2**40
    if machine.math:
        sparse = torch.sparse_coo_tensor([[1]], [2.0], (2**40,), device=CUDA0)
        assert sparse.device == torch.zeros(2**40, layout=torch.sparse_coo, device=CUDA0).device == CUDA0
