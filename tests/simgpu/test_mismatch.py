"""Tensors on different devices, operator family by operator family, in the words of real CUDA."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn


def two(first: str, second: str) -> str:
    """What an element-wise operator says."""
    return (
        "Expected all tensors to be on the same device, but found at least two devices, "
        f"{first} and {second}!"
    )


def argument(odd: str, device: str, others: str, wrapper: str) -> str:
    """What the wrapper of a kernel says of one argument."""
    return (
        f"Expected all tensors to be on the same device, but got {odd} is on {device}, different from other "
        f"tensors on {others} (when checking argument in method wrapper_CUDA{wrapper})"
    )


def on(device: str, *size: int) -> torch.Tensor:
    return torch.ones(size, device=device)


def whole(device: str, *size: int) -> torch.Tensor:
    return torch.zeros(size, dtype=torch.int64, device=device)


G, H, CPU = "cuda:0", "cuda:1", "cpu"

ELEMENT_WISE = {
    "add": (lambda: on(G, 2) + on(CPU, 2), two(G, CPU)),
    "add, CPU first": (lambda: on(CPU, 2) + on(G, 2), two(G, CPU)),
    "two GPUs": (lambda: on(H, 2) * on(G, 2), two(H, G)),
    "in place": (lambda: on(CPU, 2).add_(on(G, 2)), two(G, CPU)),
    "number of a GPU into the CPU": (lambda: on(CPU, 2).mul_(on(G)), two(G, CPU)),
    "comparison": (lambda: on(G, 2) == on(CPU, 2), two(G, CPU)),
    "pow": (lambda: on(G, 2) ** on(CPU, 2), two(G, CPU)),
    "maximum": (lambda: torch.maximum(on(G, 2), on(CPU, 2)), two(G, CPU)),
    "addcmul": (lambda: torch.addcmul(on(G, 2), on(G, 2), on(CPU, 2)), two(G, CPU)),
    "lerp": (lambda: torch.lerp(on(G, 2), on(CPU, 2), 0.5), two(G, CPU)),
    "lerp with a number": (lambda: torch.lerp(on(G, 2), on(G, 2), torch.tensor(0.5)), two(G, CPU)),
    "addcdiv with a number": (lambda: torch.addcdiv(on(G, 2), on(G, 2), torch.tensor(2.0)), two(G, CPU)),
    "addcmul with a number": (
        lambda: torch.addcmul(on(G, 2), torch.tensor(2.0), on(G, 2)),
        "CPU Scalar support for tensor1 argument is not supported when calling addcmul on CUDA tensors. "
        "However, CPU Scalar support for tensor2 is supported, please swap your tensor1 and tensor2 terms.",
    ),
    "where": (lambda: torch.where(on(CPU, 2) > 0, on(G, 2), on(G, 2)), two(G, CPU)),
    "out": (lambda: torch.add(on(G, 2), on(G, 2), out=on(CPU, 2)), two(G, CPU)),
    "clamp": (
        lambda: torch.clamp(on(G, 2), min=on(CPU, 2)),
        argument("min", CPU, G, "_clamp_Tensor"),
    ),
    "foreach": (lambda: torch._foreach_add([on(G, 2)], [on(CPU, 2)]), two(G, CPU)),
    "equal": (lambda: torch.equal(on(G, 2), on(CPU, 2)), argument("other", CPU, G, "__equal")),
}
PRODUCTS = {
    "mm": (lambda: on(G, 2, 2) @ on(CPU, 2, 2), argument("mat2", CPU, G, "_mm")),
    "mm into the CPU": (
        lambda: torch.mm(on(G, 2, 2), on(G, 2, 2), out=on(CPU, 2, 2)),
        argument("self", G, CPU, "_mm_out_out"),
    ),
    "bmm": (lambda: on(G, 1, 2, 2) @ on(CPU, 1, 2, 2), argument("mat2", CPU, G, "_bmm")),
    "baddbmm": (
        lambda: torch.baddbmm(on(G, 1, 2, 2), on(CPU, 1, 2, 2), on(G, 1, 2, 2)),
        argument("batch1", CPU, G, "_baddbmm"),
    ),
    "addmm": (
        lambda: torch.addmm(on(G, 2, 2), on(G, 2, 2), on(H, 2, 2)),
        argument("mat2", H, G, "_addmm"),
    ),
    "mv": (lambda: on(G, 2, 2) @ on(CPU, 2), argument("mat", G, CPU, "_addmv_out_out")),
    "mv, matrix on the CPU": (lambda: on(CPU, 2, 2) @ on(G, 2), argument("mat", CPU, G, "_addmv_out_out")),
    "dot": (lambda: torch.dot(on(G, 2), on(CPU, 2)), argument("tensor", CPU, G, "__dot")),
    "einsum": (
        lambda: torch.einsum("bij,bjk->bik", on(G, 2, 2, 2), on(CPU, 2, 2, 2)),
        argument("mat2", CPU, G, "_bmm"),
    ),
    "linear, model on the CPU": (lambda: nn.Linear(2, 2)(on(G, 2, 2)), argument("mat1", G, CPU, "_addmm")),
    "linear, data on the CPU": (
        lambda: nn.Linear(2, 2).cuda()(on(CPU, 2, 2)),
        argument("mat1", CPU, G, "_addmm"),
    ),
    "linear without bias": (
        lambda: nn.Linear(2, 2, bias=False)(on(G, 2, 2)),
        argument("mat2", CPU, G, "_mm"),
    ),
}
LAYERS = {
    "convolution, model on the CPU": (
        lambda: nn.Conv2d(1, 1, 1)(on(G, 1, 1, 2, 2)),
        "Input type (torch.cuda.FloatTensor) and weight type (torch.FloatTensor) should be the same",
    ),
    "convolution, data on the CPU": (
        lambda: nn.Conv2d(1, 1, 1).cuda()(on(CPU, 1, 1, 2, 2)),
        "Input type (torch.FloatTensor) and weight type (torch.cuda.FloatTensor) should be the same "
        "or input should be a MKLDNN tensor and weight is a dense tensor",
    ),
    "convolution, bias on the CPU": (
        lambda: F.conv2d(on(G, 1, 1, 2, 2), on(G, 1, 1, 1, 1), on(CPU, 1)),
        "Input type (torch.cuda.FloatTensor) and bias type (torch.FloatTensor) should be the same",
    ),
    "convolution, two GPUs": (
        lambda: nn.Conv2d(1, 1, 1).to(H)(on(G, 1, 1, 2, 2)),
        argument("weight", H, G, "__cudnn_convolution"),
    ),
    "embedding": (
        lambda: nn.Embedding(3, 2).cuda()(whole(CPU, 2)),
        argument("index", CPU, G, "__index_select"),
    ),
    "embedding, model on the CPU": (
        lambda: nn.Embedding(3, 2)(whole(G, 2)),
        argument("index", G, CPU, "__index_select"),
    ),
    "batch norm": (
        lambda: nn.BatchNorm2d(2)(on(G, 2, 2, 2, 2)),
        argument("weight", CPU, G, "__cudnn_batch_norm"),
    ),
    "batch norm of rows": (
        lambda: nn.BatchNorm1d(2)(on(G, 2, 2)),
        argument("weight", CPU, G, "__native_batch_norm"),
    ),
    "batch norm, statistics on the CPU": (
        lambda: F.batch_norm(on(G, 2, 2, 2), on(CPU, 2), on(CPU, 2), on(G, 2), on(G, 2), training=True),
        argument("running_mean", CPU, G, "__cudnn_batch_norm"),
    ),
    "layer norm": (
        lambda: nn.LayerNorm(2)(on(G, 2, 2)),
        argument("weight", CPU, G, "__native_layer_norm"),
    ),
    "group norm": (
        lambda: nn.GroupNorm(1, 2)(on(G, 2, 2, 2)),
        argument("weight", CPU, G, "__native_group_norm"),
    ),
    "LSTM": (
        lambda: nn.LSTM(2, 2)(on(G, 1, 1, 2)),
        "Input and parameter tensors are not at the same device, "
        "found input tensor at cuda:0 and parameter tensor at cpu",
    ),
    "LSTM, data on the CPU": (
        lambda: nn.LSTM(2, 2).to(H)(on(CPU, 1, 1, 2)),
        "Input and parameter tensors are not at the same device, "
        "found input tensor at cpu and parameter tensor at cuda:1",
    ),
    "GRU, its state on the CPU": (
        lambda: nn.GRU(2, 2).cuda()(on(G, 1, 1, 2), on(CPU, 1, 1, 2)),
        "Input and hidden tensors are not at the same device, "
        "found input tensor at cuda:0 and hidden tensor at cpu",
    ),
    "RNN over packed sequences": (
        lambda: nn.RNN(2, 2)(nn.utils.rnn.pack_sequence([on(G, 2, 2)])),
        "Input and parameter tensors are not at the same device, "
        "found input tensor at cuda:0 and parameter tensor at cpu",
    ),
    "LSTM cell": (lambda: nn.LSTMCell(2, 2)(on(G, 1, 2)), argument("mat1", G, CPU, "_addmm")),
    "attention": (
        lambda: F.scaled_dot_product_attention(on(G, 1, 1, 2, 2), on(CPU, 1, 1, 2, 2), on(G, 1, 1, 2, 2)),
        "Expected query, key, and value to have the same device type, but got query.device: cuda:0 "
        "key.device: cpu and value.device: cuda:0 instead.",
    ),
    "grid sample": (
        lambda: F.grid_sample(on(G, 1, 1, 2, 2), on(CPU, 1, 2, 2, 2), align_corners=False),
        "grid_sampler(): expected input and grid to be on same device, "
        "but input is on cuda:0 and grid is on cpu",
    ),
    "prelu": (lambda: nn.PReLU()(on(G, 2)), argument("weight", CPU, G, "___prelu_kernel")),
}
INDICES = {
    "index of another GPU": (
        lambda: on(G, 2)[whole(H, 1)],
        "indices should be either on cpu or on the same device as the indexed tensor (cuda:0)",
    ),
    "the CPU by an index of a GPU": (
        lambda: on(CPU, 2)[whole(G, 1)],
        "indices should be either on cpu or on the same device as the indexed tensor (cpu)",
    ),
    "assignment": (lambda: on(G, 3).index_put_((whole(G, 2),), on(CPU, 2)), two(G, CPU)),
    "assignment that adds up": (
        lambda: on(G, 3).index_put_((whole(G, 2),), on(CPU, 2), accumulate=True),
        "expected device cuda:0 but got device cpu for value tensor",
    ),
    "index_select": (
        lambda: on(G, 2).index_select(0, whole(CPU, 1)),
        argument("index", CPU, G, "__index_select"),
    ),
    "gather": (lambda: on(G, 2).gather(0, whole(CPU, 1)), argument("index", CPU, G, "_gather")),
    "take": (lambda: on(G, 2).take(whole(CPU, 1)), argument("index", CPU, G, "__take")),
    "scatter": (
        lambda: on(G, 2).scatter(0, whole(G, 1), on(CPU, 1)),
        argument("src", CPU, G, "_scatter_src"),
    ),
    "scatter in place": (
        lambda: on(CPU, 2).scatter_(0, whole(G, 1), 1.0),
        argument("index", G, CPU, "_scatter__value"),
    ),
    "scatter_add": (
        lambda: on(G, 2).scatter_add(0, whole(G, 1), on(CPU, 1)),
        argument("src", CPU, G, "_scatter_add"),
    ),
    "index_add": (
        lambda: on(G, 2).index_add(0, whole(G, 1), on(CPU, 1)),
        argument("source", CPU, G, "_index_add"),
    ),
    "masked_fill": (
        lambda: on(G, 2).masked_fill(on(CPU, 2) > 0, 1.0),
        "expected self and mask to be on the same device, but got mask on cpu and self on cuda:0",
    ),
    "masked_select": (
        lambda: on(G, 2).masked_select(on(CPU, 2) > 0),
        argument("mask", CPU, G, "__masked_select"),
    ),
    "cat": (lambda: torch.cat([on(G, 2), on(CPU, 2)]), argument("tensors", CPU, G, "_cat")),
    "stack": (lambda: torch.stack([on(G, 2), on(H, 2)]), argument("tensors", H, G, "_cat")),
}
LOSSES = {
    "cross entropy": (
        lambda: F.cross_entropy(on(G, 2, 2), whole(CPU, 2)),
        argument("target", CPU, G, "_nll_loss_forward"),
    ),
    "cross entropy, data on the CPU": (
        lambda: F.cross_entropy(on(CPU, 2, 2), whole(G, 2)),
        argument("target", G, CPU, "_nll_loss_forward"),
    ),
    "cross entropy with weights": (
        lambda: F.cross_entropy(on(G, 2, 2), whole(G, 2), on(CPU, 2)),
        argument("weight", CPU, G, "_nll_loss_forward"),
    ),
    "cross entropy of images": (
        lambda: F.cross_entropy(on(G, 2, 2, 2, 2), whole(CPU, 2, 2, 2)),
        argument("target", CPU, G, "__nll_loss2d_forward"),
    ),
    "mse": (lambda: F.mse_loss(on(G, 2), on(CPU, 2)), two(G, CPU)),
    "l1": (lambda: F.l1_loss(on(G, 2), on(CPU, 2)), two(G, CPU)),
    "huber": (lambda: F.huber_loss(on(G, 2), on(CPU, 2)), argument("target", CPU, G, "__huber_loss")),
    "binary cross entropy": (lambda: F.binary_cross_entropy(on(G, 2), on(CPU, 2)), two(G, CPU)),
    "with logits": (lambda: F.binary_cross_entropy_with_logits(on(G, 2), on(CPU, 2)), two(G, CPU)),
    "kl": (lambda: F.kl_div(on(G, 2), on(CPU, 2), reduction="sum"), two(G, CPU)),
}
CASES = {**ELEMENT_WISE, **PRODUCTS, **LAYERS, **INDICES, **LOSSES}


@pytest.mark.parametrize("name", CASES)
def test_the_words_of_cuda(machine, name):
    act, words = CASES[name]
    with pytest.raises(RuntimeError) as caught:
        act()
    assert str(caught.value) == words


def test_the_optimizer_of_a_model_that_moved_later(machine):
    net = nn.Linear(2, 2)
    optimizer = torch.optim.Adam(net.parameters())
    net(on(CPU, 1, 2)).sum().backward()
    optimizer.step()
    net.cuda()
    net(on(G, 1, 2)).sum().backward()
    with pytest.raises(RuntimeError, match="Tensors of the same index must be on the same device"):
        optimizer.step()


@pytest.mark.parametrize(
    "act",
    [
        lambda number: on(G, 2) * number,
        lambda number: number - on(G, 2),
        lambda number: on(G, 2).add_(number),
        lambda number: torch.maximum(on(G, 2), number),
        lambda number: torch.where(on(G, 2) > 0, on(G, 2), number),
        lambda number: torch.where(on(G, 2) > 0, number, number),
        lambda number: torch.addcmul(on(G, 2), on(G, 2), number),
        lambda number: on(G, 2).masked_fill(on(G, 2) > 0, number),
        lambda number: on(G, 2).fill_(number),
        lambda number: torch._foreach_mul([on(G, 2)], number)[0],
        lambda number: on(G, 2).index_put_((on(G, 2) > 0,), number.reshape(1)),
        lambda number: on(G, 2).index_fill_(0, whole(G, 1), number),
        lambda number: on(G, 2).copy_(number),
        lambda number: on(G, 2)[whole(CPU, 2)],
    ],
)
def test_a_number_on_the_cpu_is_taken_where_cuda_takes_it(machine, act):
    assert act(torch.tensor(2.0)).device == torch.device(G)


@pytest.mark.parametrize(
    "act",
    [
        lambda number: torch.clamp(on(G, 2), min=number),
        lambda number: torch.lerp(on(G, 2), on(G, 2), number),
        lambda number: number.add_(on(G)),
        lambda number: torch.quantile(on(G, 2), number),
    ],
)
def test_a_number_on_the_cpu_is_refused_where_cuda_refuses_it(machine, act):
    with pytest.raises(RuntimeError, match="on the same device"):
        act(torch.tensor(0.5))
