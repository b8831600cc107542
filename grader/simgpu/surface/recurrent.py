"""Recurrent layers as cuDNN runs them: weights in one piece of memory, or a warning that they are not.

Without cuDNN the values are the same; what a script sees is the warning, and the memory moving.
"""

from __future__ import annotations

import functools
import warnings
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ..local import local
from ..mismatch import type_name
from ..patches import Patches
from ..tags import device_index

if TYPE_CHECKING:
    from ..machine import Machine

RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu")  # functions of torch and torch._VF
_IN_PIECES = (
    "RNN module weights are not part of single contiguous chunk of memory. This means they need to be "
    "compacted at every call, possibly greatly increasing memory usage. To compact weights again call "
    "flatten_parameters()."
)


def install(machine: Machine, patches: Patches) -> None:
    """Let flatten_parameters() join the weights, and recurrent layers look whether it did."""
    patches.set(nn.RNNBase, "flatten_parameters", flatten_parameters)
    for name in RECURRENT:
        looking = _looking(getattr(torch._VF, name))
        patches.set(torch._VF, name, looking)
        patches.set(torch, name, looking)
    patches.set(torch._VF, "_pack_padded_sequence", _lengths_on_the_host(torch._VF._pack_padded_sequence))


def flatten_parameters(self: nn.RNNBase) -> None:
    """Put the weights of a layer on a GPU one after another in one piece of memory."""
    weights: list[Any] = self._flat_weights
    if len(weights) != len(self._flat_weights_names) or not _joinable(weights):
        return
    with torch.no_grad():
        joined = torch.cat([weight.reshape(-1) for weight in weights])
        start = 0
        for weight in weights:
            weight.data = joined[start : start + weight.numel()].view(weight.shape)
            start += weight.numel()


def _joinable(weights: list[Any]) -> bool:
    if not all(isinstance(weight, torch.Tensor) for weight in weights):
        return False
    kinds = {(weight.dtype, device_index(weight)) for weight in weights}
    on_one_gpu = len(kinds) == 1 and None not in {place for _, place in kinds}
    return on_one_gpu and len({weight.data_ptr() for weight in weights}) == len(weights)


def _looking(original: Any) -> Any:
    @functools.wraps(original)
    def recurrent(*args: Any, **kwargs: Any) -> Any:
        if local.observed and not local.inside and torch.backends.cudnn.enabled:
            # (input, hidden, weights, has_biases, ...), or for packed sequences one argument more before.
            weights = next((a for a in args[2:4] if isinstance(a, list | tuple) and len(a) > 1), ())
            if _joinable(list(weights)):
                pieces = {weight.untyped_storage().data_ptr() for weight in weights}
                if len(pieces) > 1:
                    warnings.warn(_IN_PIECES, stacklevel=3)
        return original(*args, **kwargs)

    return recurrent


def _lengths_on_the_host(original: Any) -> Any:
    @functools.wraps(original)
    def pack(data: torch.Tensor, lengths: torch.Tensor, *args: Any) -> Any:
        index = device_index(lengths)
        if index is not None:
            kind = type_name(lengths, device_index).rpartition(".")[2].removesuffix("Tensor")
            raise RuntimeError(
                f"'lengths' argument should be a 1D CPU int64 tensor, but got {lengths.dim()}D cuda:{index} "
                f"{kind} tensor"
            )
        return original(data, lengths, *args)

    return pack
