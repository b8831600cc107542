"""nn.Module on simulated GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ..local import local
from ..patches import Patches

if TYPE_CHECKING:
    from ..machine import Machine


def install(machine: Machine, patches: Patches) -> None:
    """Let modules be moved by GPU number, and charge replicas."""
    replicate_one = nn.Module._replicate_for_data_parallel

    def _replicate_for_data_parallel(self: nn.Module) -> nn.Module:
        if local.observed:
            machine.clocks.replica(1)
        return replicate_one(self)

    patches.set(nn.Module, "_replicate_for_data_parallel", _replicate_for_data_parallel)
    patches.set(torch._C._nn, "_parse_to", _parse_to(torch._C._nn._parse_to))
    patches.set(torch.backends.cudnn, "is_acceptable", lambda tensor: False)  # its operators have no CPU twin
    # Kept for the devices of an earlier machine.
    patches.set(torch.nn.parallel._functions, "_streams", None)


def _parse_to(original: Any) -> Any:
    def parse(*args: Any, **kwargs: Any) -> Any:
        if args and isinstance(args[0], int) and not isinstance(args[0], bool):
            args = (torch.device("cuda", args[0]), *args[1:])
        if isinstance(kwargs.get("device"), int):
            kwargs["device"] = torch.device("cuda", kwargs["device"])
        if args and isinstance(args[0], torch.Tensor):
            args = (args[0].device, args[0].dtype, *args[1:])
        return original(*args, **kwargs)

    return parse
