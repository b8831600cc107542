"""torch.cuda and torch.accelerator answer for the simulated GPUs, or say what they do not have."""

import subprocess
import sys

import pytest
import torch
from torch import nn

from grader import simgpu
from grader.simgpu.surface import unsupported


@pytest.fixture
def machine():
    with simgpu.simulate("2xT4", math=False) as machine:
        yield machine


def test_every_callable_of_torch_cuda_is_simulated_or_refuses_by_name(machine):
    refused = set()
    for name in torch.cuda.__all__:
        thing = getattr(torch.cuda, name, None)
        if not callable(thing) or name in unsupported.AS_THEY_ARE:
            continue
        if getattr(thing, "not_simulated", False):
            refused.add(name)
            with pytest.raises(NotImplementedError, match=rf"torch\.cuda\.{name} is not simulated"):
                thing()
    assert {
        "CUDAGraph",
        "memory_snapshot",
        "utilization",
        "temperature",
        "MemPool",
        "make_graphed_callables",
    } <= refused
    assert not refused & {
        "is_available",
        "synchronize",
        "Stream",
        "memory_allocated",
        "manual_seed",
        "get_rng_state",
    }


@pytest.mark.parametrize("name", ["nccl.all_reduce", "graphs.graph", "memory.memory_snapshot"])
def test_submodules_refuse_by_name_too(machine, name):
    module, function = name.split(".")
    with pytest.raises(NotImplementedError, match=f"torch.cuda.{name} is not simulated"):
        getattr(getattr(torch.cuda, module), function)("x")


def test_properties(machine):
    properties = torch.cuda.get_device_properties("cuda:1")
    assert properties.name == torch.cuda.get_device_name(1) == "Tesla T4"
    assert (properties.major, properties.minor) == torch.cuda.get_device_capability() == (7, 5)
    assert properties.multi_processor_count == 40
    assert properties.total_memory == machine.devices[1].memory.capacity
    with pytest.raises(AssertionError, match="Invalid device id"):
        torch.cuda.get_device_properties(2)


def test_memory_statistics(machine):
    assert torch.cuda.memory_allocated() == 0
    tensor = torch.empty(1 << 20, device="cuda")
    view = tensor[5:].detach()
    assert torch.cuda.memory_allocated() == torch.cuda.memory_allocated("cuda:0") == 4 << 20
    assert torch.cuda.memory_allocated(1) == 0
    del tensor
    assert torch.cuda.memory_allocated() == 4 << 20
    del view
    assert torch.cuda.memory_allocated() == 0
    assert torch.cuda.max_memory_allocated() == 4 << 20
    torch.cuda.reset_peak_memory_stats()
    assert torch.cuda.max_memory_allocated() == 0
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info(0)
    assert free == total == machine.devices[0].memory.capacity
    assert torch.cuda.memory_stats()["allocated_bytes.all.current"] == 0
    assert torch.accelerator.memory_allocated() == 0
    assert "simulated T4" in torch.cuda.memory_summary()


def test_activations_are_freed_by_backward(machine):
    net = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256)).cuda()
    parameters = torch.cuda.memory_allocated()
    loss = net(torch.empty(1024, 256, device="cuda")).sum()
    assert torch.cuda.memory_allocated() > parameters + 1024 * 256 * 4
    loss.backward()
    del loss
    assert torch.cuda.memory_allocated() == 2 * parameters


@pytest.mark.parametrize("math", [True, False])
def test_too_much_memory(math):
    with simgpu.simulate("2xT4", math=math):
        with pytest.raises(
            torch.OutOfMemoryError, match=r"CUDA out of memory. Tried to allocate .* GiB. GPU 1 has a total"
        ):
            torch.empty(10**12, device="cuda:1")
        with pytest.raises(torch.cuda.OutOfMemoryError):
            kept = [torch.empty(1 << 30, device="cuda") for _ in range(10)]
        assert "kept" not in locals()
        assert torch.cuda.memory_allocated() == 0


def test_the_accelerator(machine):
    assert torch.accelerator.is_available()
    assert torch.accelerator.device_count() == 2
    with torch.accelerator.device_index(1):
        assert torch.accelerator.current_device_index() == torch.cuda.current_device() == 1
    torch.accelerator.set_device_index(1)
    assert torch.cuda.current_device() == 1
    torch.accelerator.synchronize()
    assert torch.accelerator.current_stream().device.index == 1


def test_nothing_is_capturing(machine):
    assert not torch.cuda.is_current_stream_capturing()
    assert not torch.accelerator.current_stream().is_capturing()


def test_a_script_that_only_looks_around(machine):
    torch.backends.cudnn.benchmark = True
    assert torch.cuda.is_bf16_supported()
    assert torch.get_device_module("cuda") is torch.cuda
    torch.cuda.ipc_collect()


def test_several_machines_in_a_fresh_process_leave_nothing_behind():
    program = (
        "import torch; from grader import simgpu\n"
        "x = torch.ones(2)\n"
        "for math in (True, False):\n"
        "    with simgpu.simulate('3xT4', math=math): y = x.cuda(2) + 1; assert y.device.index == 2\n"
        "assert not torch.cuda.is_available() and (x + 1).device.type == 'cpu'\n"
        "assert torch.utils._python_dispatch._get_current_dispatch_mode() is None\n"
        "try: x.cuda()\n"
        "except (AssertionError, RuntimeError) as error: print('fine')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("fine\n", 0), done.stderr
