"""A machine as a script sees it: installed, used, and gone without a trace."""

import pytest
import torch
from torch import nn

from grader import simgpu
from grader.simgpu import mode


def test_cuda_is_there_and_gone_again():
    before = {name: getattr(torch.cuda, name) for name in torch.cuda.__all__ if hasattr(torch.cuda, name)}
    tensor_before = dict(vars(torch.Tensor))
    with simgpu.simulate("2xT4"):
        assert torch.cuda.is_available()
        assert torch.cuda.device_count() == 2
        assert torch.accelerator.current_accelerator() == torch.device("cuda")
        assert "T4" in torch.cuda.get_device_name(1)
    assert not torch.cuda.is_available()
    assert {name: getattr(torch.cuda, name) for name in before} == before
    assert dict(vars(torch.Tensor)) == tensor_before
    assert nn.DataParallel(nn.Linear(2, 2)).device_ids == []


def test_machines_follow_each_other_but_do_not_overlap():
    with simgpu.simulate("4xT4"):
        assert torch.cuda.device_count() == 4
        with pytest.raises(RuntimeError, match="uninstall it first"):
            simgpu.Machine("2xT4").install()
    with simgpu.simulate("2xT4") as machine:
        assert torch.cuda.device_count() == 2
        assert machine.now() == 0


@pytest.mark.parametrize("math", [True, False])
def test_data_parallel_trains_on_both_devices(math):
    with simgpu.simulate("2xT4", math=math) as machine:
        model = nn.DataParallel(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).cuda())
        optimizer = torch.optim.Adam(model.parameters())
        for _ in range(2):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(torch.randn(6, 8)), torch.randint(4, (6,)).cuda())
            loss.backward()
            optimizer.step()
        assert isinstance(loss.item(), float)
        assert machine.synchronize() > 0
        assert all(device.busy_seconds > 0 and device.memory.peak > 0 for device in machine.devices)
        assert {parameter.device for parameter in model.parameters()} == {torch.device("cuda:0")}


def test_values_are_those_of_the_cpu():
    def train(device):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3)).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        losses = []
        for _ in range(3):
            images, targets = torch.randn(5, 1, 8, 8).to(device), torch.randint(3, (5,)).to(device)
            loss = nn.functional.cross_entropy(model(images), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    expected = train("cpu")
    with simgpu.simulate("2xT4"):
        assert train("cuda:1") == expected


def test_numbers_that_change_in_each_step_are_nothing_new_to_learn():
    with simgpu.simulate("2xT4") as machine:
        net = nn.Linear(4, 4).cuda()
        optimizer = torch.optim.Adam(net.parameters())
        learned = []
        for _ in range(4):
            optimizer.param_groups[0]["lr"] *= 0.9
            optimizer.zero_grad()
            net(torch.ones(2, 4, device="cuda")).sum().backward()
            optimizer.step()
            learned.append(machine.learned)
        assert learned[1] == learned[3]


@pytest.mark.parametrize("math", [True, False])
def test_a_script_whose_shapes_never_repeat_does_not_fill_the_memory(math, monkeypatch):
    def run():
        with simgpu.simulate("2xT4", math=math) as machine:
            for size in range(1, 60):
                torch.ones(size, device="cuda").mul_(2).add(1)
            known = machine.known_lengths.values()
            return machine.synchronize(), sum(len(each) if isinstance(each, dict) else 1 for each in known)

    seconds, learned = run()
    monkeypatch.setattr(mode, "_MOST_LEARNED", 10)
    same_seconds, kept = run()
    assert learned > 100 and kept <= 10
    assert same_seconds == seconds


@pytest.mark.parametrize(
    "use",
    [
        lambda: torch.zeros(1, device="cuda"),
        lambda: torch.ones(1).cuda(),
        lambda: torch.ones(1).to("cuda:0"),
        lambda: torch.nn.Linear(1, 1).cuda(),
        torch.cuda.current_device,
        torch.cuda.synchronize,
    ],
    ids=["made there", "cuda()", "to()", "module", "current_device", "synchronize"],
)
def test_where_no_gpu_is_left_using_one_says_so(use):
    with simgpu.simulate("2xT4") as machine:
        machine.restrict([])
        assert not torch.cuda.is_available()
        assert torch.cuda.device_count() == 0
        function = getattr(torch.cuda, use.__name__, use)  # what stands there now
        with pytest.raises(RuntimeError, match="^No CUDA GPUs are available$"):
            function()
