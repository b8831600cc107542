"""A machine that is taken away leaves torch, the standard library and the environment as they were."""

import os
import subprocess
import sys
import threading
import time
import timeit

import pytest
import torch
from torch import nn

from grader import simgpu
from grader.simgpu.machine import installed

pytestmark = pytest.mark.filterwarnings("ignore:.*reduce_op:FutureWarning")  # which looking at it gives

WATCHED = ("torch", "time", "timeit", "threading", "os", "traceback", "multiprocessing", "random")
CHANGING = {  # what torch and Python themselves count, cache or note down
    "torch._dynamo",
    "torch._inductor",
    "torch.fx",
    "torch._guards",
    "torch._logging",
    "torch.utils._sympy",
    "torch.testing",
}


def attributes():
    """Every attribute of the watched modules and of the classes in them."""
    found, seen = {}, set()
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] not in WATCHED or any(name.startswith(part) for part in CHANGING):
            continue
        for key, value in list(vars(module).items()):
            found[name, key] = value
            if isinstance(value, type) and value not in seen and value.__module__.startswith(WATCHED):
                seen.add(value)
                for own, of_class in list(vars(value).items()):
                    found[f"{value.__module__}.{value.__qualname__}", own] = of_class
    return found


def state():
    """Flags and modes that are no attributes."""
    return {
        "environment": dict(os.environ),
        "modes": torch._C._len_torch_dispatch_stack(),
        "functions": torch._C._len_torch_function_stack(),
        "lifting": torch._C._only_lift_cpu_tensors(),
        "dtype": torch.get_default_dtype(),
        "device": torch.get_default_device(),
        "autocast": torch.is_autocast_enabled("cpu"),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "backends": dict(torch.distributed.Backend.backend_capability),
        "hooks": (sys.excepthook, threading.excepthook, list(sys.meta_path), list(sys.path)),
        "module hooks": len(nn.modules.module._global_forward_hooks),
    }


def train(spec="2xT4"):
    """Much of what touches the simulation."""
    with simgpu.simulate(spec) as machine:
        net = nn.DataParallel(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))).cuda()
        optimizer = torch.optim.Adam(net.parameters())
        with torch.autocast("cuda", dtype=torch.float16):
            loss = net(torch.randn(8, 4).cuda()).sum()
        loss.backward()
        optimizer.step()
        thread = threading.Thread(target=lambda: torch.ones(2, device="cuda:1").sum().item())
        thread.start()
        thread.join()
        time.sleep(1)
        torch.cuda.synchronize()
        return machine.now(), [parameter.device for parameter in net.parameters()]


@pytest.fixture(scope="module", autouse=True)
def _warm():
    train()  # what is imported and cached on first use is no trace of the machine


def differences(before, after):
    changed = {key for key in before.keys() & after.keys() if before[key] is not after[key]}
    return sorted(map(str, changed | (before.keys() ^ after.keys())))


def test_every_attribute_and_flag_is_as_before():
    before, flags = attributes(), state()
    train()
    assert differences(before, attributes()) == []
    assert state() == flags


def test_what_is_changed_would_be_seen():
    before = attributes()
    with simgpu.simulate("2xT4"):
        changed = differences(before, attributes())
    assert {"('torch.cuda', 'device_count')", "('time', 'sleep')", "('torch.Tensor', 'device')"} <= {*changed}
    assert len(changed) > 100


def test_an_error_leaves_nothing_behind():
    before, flags = attributes(), state()
    with pytest.raises(RuntimeError, match="same device"), simgpu.simulate("2xT4"):
        torch.ones(2, device="cuda:0") + torch.ones(2, device="cuda:1")
    assert differences(before, attributes()) == []
    assert state() == flags
    assert installed() is None


def test_two_machines_follow_each_other():
    first = train("2xT4")
    with simgpu.simulate("4xV100") as machine:
        assert torch.cuda.device_count() == 4
        assert machine.now() == 0
    assert train("2xT4") == first


def test_a_machine_can_be_installed_again():
    machine = simgpu.Machine("2xT4")
    machine.install()
    tensor = torch.ones(3, device="cuda:1")
    machine.uninstall()
    assert tensor.device.type == "cpu" and tensor.sum().item() == 3
    machine.install()
    try:
        assert tensor.device == torch.device("cuda:1")
        assert machine.devices[1].memory.allocated >= 12
    finally:
        machine.uninstall()


def test_a_machine_within_another_is_refused():
    with simgpu.simulate("2xT4") as machine:
        with pytest.raises(RuntimeError, match="another simulated machine is installed"):
            simgpu.Machine("2xV100").install()
        assert installed() is machine and torch.cuda.get_device_name(1) == "Tesla T4"


def test_a_long_sleep_takes_no_real_time_even_beside_another_process():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        with simgpu.simulate("2xT4") as machine:
            started = machine.now()
            time.sleep(100_000)
            assert machine.now() - started >= 100_000
        assert other.poll() is None
        other.communicate(b"\n")


def test_clocks_are_real_again():
    with simgpu.simulate("2xT4"):
        time.sleep(1000)
    assert timeit.default_timer is time.perf_counter
    started = time.monotonic()
    time.sleep(0.001)
    assert 0.001 <= time.monotonic() - started < 100
