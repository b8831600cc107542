"""Values that CUDA's kernels find impossible, and that take the device away from the process."""

import pytest
import torch
import torch.nn.functional as F

from grader import simgpu

G = "cuda:0"
FAILURE = getattr(torch, "AcceleratorError", RuntimeError)


@pytest.fixture
def machine():
    with simgpu.simulate("2xT4") as machine:
        yield machine


def numbers(*values: int) -> torch.Tensor:
    return torch.tensor(values, device=G)


CASES = {
    "cross entropy": (
        lambda: F.cross_entropy(torch.randn(2, 3, device=G), numbers(1, 3)),
        "Loss.cu:245: nll_loss_forward_reduce_cuda_kernel_2d: block: [0,0,0], thread: [1,0,0] "
        "Assertion `t >= 0 && t < n_classes` failed.",
    ),
    "a negative label": (
        lambda: F.nll_loss(torch.randn(2, 3, device=G), numbers(-1, 2)),
        "Assertion `t >= 0 && t < n_classes` failed.",
    ),
    "labels of pixels": (
        lambda: F.cross_entropy(torch.randn(1, 3, 1, 2, device=G), numbers(3, 0).reshape(1, 1, 2)),
        "nll_loss2d_forward_kernel: block: [0,0,0], thread: [0,0,0]",
    ),
    "embedding": (
        lambda: F.embedding(numbers(0, 5), torch.randn(5, 2, device=G)),
        "Assertion `srcIndex < srcSelectDimSize` failed.",
    ),
    "index": (
        lambda: torch.randn(3, device=G)[numbers(0, 1, 7)],
        "IndexKernel.cu:111: operator(): block: [0,0,0], thread: [2,0,0] "
        'Assertion `-sizes[i] <= index && index < sizes[i] && "index out of bounds"` failed.',
    ),
    "index on the CPU": (
        lambda: torch.randn(3, device=G)[torch.tensor([7])],
        "Assertion `-sizes[i] <= index",
    ),
    "assignment": (
        lambda: torch.randn(3, device=G).index_put_((numbers(4),), torch.tensor(0.0)),
        "Assertion `-sizes[i] <= index",
    ),
    "index_select": (lambda: torch.randn(3, device=G).index_select(0, numbers(3)), "srcIndex"),
    "gather": (
        lambda: torch.randn(3, device=G).gather(0, numbers(3)),
        "idx_dim >= 0 && idx_dim < index_size",
    ),
    "scatter": (lambda: torch.zeros(3, device=G).scatter_(0, numbers(3), 1.0), "idx_dim >= 0"),
    "index_add": (
        lambda: torch.zeros(3, device=G).index_add(0, numbers(3), torch.ones(1, device=G)),
        "dstIndex < dstAddDimSize",
    ),
    "one_hot": (lambda: F.one_hot(numbers(3), 3), "idx_dim >= 0"),
    "one_hot of a negative class": (lambda: F.one_hot(numbers(-1, 1)), "idx_dim >= 0"),
    "binary cross entropy": (
        lambda: F.binary_cross_entropy(torch.tensor([1.5], device=G), torch.ones(1, device=G)),
        "Loss.cu:94: operator(): block: [0,0,0], thread: [0,0,0] "
        "Assertion `input_val >= zero && input_val <= one` failed.",
    ),
    "multinomial": (
        lambda: torch.multinomial(torch.tensor([0.5, -1.0], device=G), 1),
        "_assert_async_cuda_kernel: block: [0,0,0], thread: [0,0,0] "
        "Assertion `probability tensor contains either `inf`, `nan` or element < 0` failed.",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_launch_returns_and_the_next_one_fails(machine, name, capfd):
    act, words = CASES[name]
    made = act()
    assert made.device == torch.device(G)
    assert words in capfd.readouterr().err
    for again in range(2):
        with pytest.raises(FAILURE, match="CUDA error: device-side assert triggered"):
            torch.ones(2, device=G) if again else made.sum()


@pytest.mark.parametrize(
    "ask",
    [
        lambda made: made.item(),
        lambda made: made.cpu(),
        lambda made: made.to("cuda:1"),
        lambda made: torch.zeros(1).to(G),
        lambda made: torch.cuda.synchronize(),
        lambda made: torch.cuda.current_stream().synchronize(),
        lambda made: made.backward(),
    ],
)
def test_whatever_is_asked_of_the_device_ends_in_the_same_error(machine, ask):
    scores = torch.randn(2, 3, device=G, requires_grad=True)
    loss = F.cross_entropy(scores, numbers(0, 9))
    with pytest.raises(FAILURE) as caught:
        ask(loss)
    assert str(caught.value) == (
        "CUDA error: device-side assert triggered\n"
        "Search for `cudaErrorAssert' in https://docs.nvidia.com/cuda/cuda-runtime-api/"
        "group__CUDART__TYPES.html for more information.\n"
        "CUDA kernel errors might be asynchronously reported at some other API call, "
        "so the stacktrace below might be incorrect.\n"
        "For debugging consider passing CUDA_LAUNCH_BLOCKING=1\n"
        "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.\n"
    )


def test_other_devices_and_the_cpu_go_on(machine):
    F.one_hot(numbers(3), 3)
    assert torch.ones(2, device="cuda:1").sum().item() == 2.0
    assert torch.ones(2).sum().item() == 2.0
    torch.cuda.synchronize(1)


def test_a_launch_that_blocks_raises_at_once(machine, monkeypatch):
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")
    with pytest.raises(FAILURE, match="device-side assert triggered"):
        F.embedding(numbers(5), torch.randn(5, 2, device=G))


def test_the_next_machine_is_whole(machine):
    F.one_hot(numbers(3), 3)
    machine.uninstall()
    with simgpu.simulate("1xT4"):
        assert torch.ones(1, device=G).item() == 1.0


@pytest.mark.parametrize(
    ("act", "error"),
    [
        (lambda: torch.randn(3)[torch.tensor([7])], IndexError),  # on the CPU
        (lambda: torch.randn(3, device=G)[7], IndexError),  # a number of the host
        (lambda: torch.randn(3, device=G).select(0, 3), IndexError),
        (lambda: torch.randn(3, device=G).gather(1, numbers(0)), IndexError),  # dimension, not index
        (lambda: F.cross_entropy(torch.randn(2), torch.tensor(5)), IndexError),
        (lambda: torch.randn(2, 3, device=G).index_select(0, numbers(0, 1).reshape(1, 2)), IndexError),
    ],
)
def test_mistakes_that_the_host_finds_stay_its_own(machine, act, error, capfd):
    with pytest.raises(error):
        act()
    assert "Assertion" not in capfd.readouterr().err
    assert torch.ones(1, device=G).item() == 1.0
