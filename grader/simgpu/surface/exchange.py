"""DLPack: a tensor of a simulated GPU that leaves torch and comes back is on that GPU still."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import torch
import torch.utils.dlpack

from ..local import local
from ..patches import Patches
from ..tags import Tag, tag_of

if TYPE_CHECKING:
    from ..machine import Machine


def install(machine: Machine, patches: Patches) -> None:
    """Remember what is exported, and recognize it on import."""
    # By address, as long as the storage lives: another one may be at the same address later.
    exported: weakref.WeakValueDictionary[int, Tag] = weakref.WeakValueDictionary()

    def exporting(original: Any) -> Any:
        def to_dlpack(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            tag = None if local.inside else tag_of(tensor)
            if tag is not None and tag.device is not None:
                exported[tensor.data_ptr()] = tag
                kwargs.pop("dl_device", None)  # physically it stays on the host
            return original(tensor, *args, **kwargs)

        return to_dlpack

    def importing(original: Any) -> Any:
        def from_dlpack(capsule: Any) -> torch.Tensor:
            tensor = original(capsule)
            tag = None if local.inside else exported.get(tensor.data_ptr())
            if tag is not None:
                # The bytes belong to the storage that was exported, which counts them.
                tensor.untyped_storage()._simulated = Tag(tag.device)
            return tensor

        return from_dlpack

    to_dlpack = exporting(torch._C._to_dlpack)
    for home, name in ((torch._C, "_to_dlpack"), (torch.utils.dlpack, "to_dlpack"), (torch, "to_dlpack")):
        if hasattr(home, name):
            patches.set(home, name, to_dlpack)
    if hasattr(torch._C, "_to_dlpack_versioned"):
        patches.set(torch._C, "_to_dlpack_versioned", exporting(torch._C._to_dlpack_versioned))
    patches.set(torch._C, "_from_dlpack", importing(torch._C._from_dlpack))
