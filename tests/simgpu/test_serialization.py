"""Saving, loading, copying and handing on tensors of simulated GPUs."""

import copy
import io
import pickle

import pytest
import torch
from torch import nn

from grader import simgpu

CUDA0, CUDA1 = torch.device("cuda:0"), torch.device("cuda:1")


@pytest.fixture
def machine():
    with simgpu.simulate("2xT4") as machine:
        yield machine


def saved(value, **how):
    buffer = io.BytesIO()
    torch.save(value, buffer, **how)
    buffer.seek(0)
    return buffer


@pytest.mark.parametrize(
    ("map_location", "where"),
    [
        (None, "cuda:1"),
        ("cuda", "cuda:0"),
        ("cuda:0", "cuda:0"),
        (torch.device("cpu"), "cpu"),
        (CUDA0, "cuda:0"),
        ({"cuda:1": "cpu"}, "cpu"),
        ({"cuda:0": "cpu"}, "cuda:1"),
        (lambda storage, location: storage, "cpu"),
        (lambda storage, location: storage.cuda(0), "cuda:0"),
        (lambda storage, location: None, "cuda:1"),
    ],
)
@pytest.mark.parametrize("how", [{}, {"_use_new_zipfile_serialization": False}], ids=["zip", "legacy"])
def test_where_a_saved_tensor_is_loaded(machine, map_location, where, how):
    tensor = torch.arange(3.0, device=CUDA1)
    loaded = torch.load(saved({"a": tensor}, **how), map_location=map_location)["a"]
    assert loaded.device == torch.device(where)
    assert loaded.tolist() == [0.0, 1.0, 2.0]


def test_no_index_is_the_current_device(machine):
    file = saved(torch.ones(2))
    torch.cuda.set_device(1)
    assert torch.load(file, map_location="cuda").device == CUDA1


def test_what_a_function_is_given(machine):
    seen = []
    torch.load(
        saved(torch.ones(2, device=CUDA1)),
        map_location=lambda storage, location: seen.append((location, str(storage.device))),
    )
    assert seen == [("cuda:1", "cpu")]


def test_loading_from_a_mapped_file(machine, tmp_path):
    torch.save({"a": torch.ones(2, device=CUDA1)}, tmp_path / "weights.pt")
    assert torch.load(tmp_path / "weights.pt", mmap=True)["a"].device == CUDA1
    assert torch.load(tmp_path / "weights.pt", mmap=True, map_location="cpu")["a"].device.type == "cpu"


def test_a_checkpoint_with_everything(machine):
    net = nn.Linear(2, 2).to(CUDA1)
    optimizer = torch.optim.Adam(net.parameters())
    net(torch.ones(1, 2, device=CUDA1)).sum().backward()
    optimizer.step()
    file = saved(
        {"model": net.state_dict(), "optimizer": optimizer.state_dict(), "rng": torch.cuda.get_rng_state()}
    )
    other = nn.Linear(2, 2).cuda()
    resumed = torch.optim.Adam(other.parameters())
    checkpoint = torch.load(file, map_location="cpu", weights_only=True)
    other.load_state_dict(checkpoint["model"])
    resumed.load_state_dict(checkpoint["optimizer"])
    torch.cuda.set_rng_state(checkpoint["rng"])
    assert resumed.state[other.weight]["exp_avg"].device == CUDA0
    assert torch.equal(other.weight.cpu(), net.weight.cpu())
    assert torch.load(saved(net), weights_only=False).weight.device == CUDA1


def test_copies_and_pickles(machine):
    tensor = torch.ones(2, device=CUDA1)
    for made in (copy.copy(tensor), copy.deepcopy(tensor), pickle.loads(pickle.dumps(tensor))):
        assert made.device == CUDA1 and made.tolist() == [1.0, 1.0]
    held = torch.cuda.memory_allocated(1)
    other = copy.deepcopy(tensor)
    assert torch.cuda.memory_allocated(1) == held + 512
    del other


def test_storages(machine):
    storage = torch.ones(2, device=CUDA1).untyped_storage()
    assert storage.device == CUDA1 and storage.is_cuda and storage.get_device() == 1
    assert storage.cpu().device.type == "cpu" and storage.cuda(0).device == CUDA0
    assert storage.clone().device == CUDA1
    tensor = torch.ones(2, device=CUDA1)
    assert tensor.share_memory_().is_shared()


def test_dlpack(machine):
    tensor = torch.arange(3.0, device=CUDA0)
    assert tuple(map(int, tensor.__dlpack_device__())) == (2, 0)
    same = torch.from_dlpack(tensor)
    assert same.device == CUDA0 and same.data_ptr() == tensor.data_ptr()
    held = torch.cuda.memory_allocated()
    again = torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(tensor))
    assert again.device == CUDA0 and torch.cuda.memory_allocated() == held
    with pytest.raises(BufferError, match="different CUDA device"):
        torch.from_dlpack(tensor.to(CUDA1))
    assert torch.from_dlpack(torch.ones(2)).device.type == "cpu"


def test_dlpack_of_a_part(machine):
    tensor = torch.arange(4.0, device="cuda:0")
    part = torch.from_dlpack(tensor[1:])
    assert part.device == tensor.device and part.tolist() == [1, 2, 3]


def test_dlpack_of_the_host_where_a_gpu_s_tensor_was(machine):
    for _ in range(100):
        torch.from_dlpack(torch.ones(1000, device="cuda:0"))
        again = torch.ones(1000)  # as a rule at the address that has just become free
        assert torch.from_dlpack(again).device.type == "cpu"


def test_the_interface_for_other_libraries(machine):
    assert torch.ones(2, 3, device=CUDA1).__cuda_array_interface__["shape"] == (2, 3)
    with pytest.raises(AttributeError, match="Can't get __cuda_array_interface__ on non-CUDA tensor"):
        _ = torch.ones(2).__cuda_array_interface__
