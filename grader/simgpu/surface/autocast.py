"""torch.autocast("cuda"): computed by the CPU's autocast, with the data type that was asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ..patches import Patches

if TYPE_CHECKING:
    from ..machine import Machine


def install(machine: Machine, patches: Patches) -> None:
    """Let autocast regions for "cuda" switch the CPU's autocast, too."""
    enter, leave = torch.autocast.__enter__, torch.autocast.__exit__

    def __enter__(self: Any) -> Any:
        entered = enter(self)
        if self.device == "cuda":
            stack = self.__dict__.setdefault("_simulated", [])
            stack.append((torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")))
            torch.set_autocast_enabled("cpu", self._enabled)
            torch.set_autocast_dtype("cpu", self.fast_dtype)
        return entered

    def __exit__(self: Any, *exception: object) -> Any:
        if self.device == "cuda":
            enabled, dtype = self._simulated.pop()
            torch.set_autocast_enabled("cpu", enabled)
            torch.set_autocast_dtype("cpu", dtype)
        return leave(self, *exception)

    patches.set(torch.autocast, "__enter__", __enter__)
    patches.set(torch.autocast, "__exit__", __exit__)
