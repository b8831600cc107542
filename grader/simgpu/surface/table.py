"""The supported surface as a table, worked out from what an installed machine has replaced."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType
from typing import Any, NamedTuple

import torch

from ..machine import simulate

MODULES = (
    "torch.cuda", "torch.cuda.amp", "torch.cuda.comm", "torch.cuda.graphs", "torch.cuda.memory",
    "torch.cuda.nccl", "torch.cuda.nvtx", "torch.cuda.profiler", "torch.cuda.random", "torch.cuda.streams",
    "torch.cuda.tunable", "torch.cuda.gds", "torch.cuda.green_contexts", "torch.cuda.jiterator",
    "torch.accelerator", "torch.amp", "torch.random", "torch.backends.cuda", "torch.backends.cudnn",
    "torch.profiler",
)  # fmt: skip
SIMULATED, AS_IT_IS, REFUSED = "simulated", "as it is", "refused"
_WORDS = {
    "cudart": "The runtime's profiler switches and memory figures",
    "current_stream": "The stream that is current on a device",
    "default_stream": "The default stream of a device",
    "device_count": "How many simulated GPUs there are",
    "device_memory_used": "Bytes reserved",
    "get_allocator_backend": "The name of CUDA's own allocator",
    "ipc_collect": "Nothing is shared with other processes, so nothing is collected",
    "is_acceptable": "No: cuDNN's operators themselves are not run",
    "is_available": "Yes",
    "is_built": "Yes",
    "is_current_stream_capturing": "No: graphs are not simulated",
    "max_memory_allocated": "Most bytes that were alive",
    "max_memory_cached": "Most bytes that were reserved",
    "max_memory_reserved": "Most bytes that were reserved",
    "memory_allocated": "Bytes alive",
    "memory_cached": "Bytes reserved",
    "memory_reserved": "Bytes reserved",
    "profile": "Without CUDA's part, or accepted where only NVIDIA's profilers look",
    "set_stream": "Make a stream current",
    "supported_activities": "That of the CPU",
    "version": "That of this build, or of a common one where it has none",
}
_HEADING = """\
# The surface of the simulated GPUs

Written by `python -m grader.simgpu.surface --write docs/simgpu-surface.md` from what a simulated machine
replaces in torch {version}; not to be edited by hand.

- **simulated**: answered for the simulated devices.
- **as it is**: torch's own code, which stands on what is simulated.
- **refused**: raises `NotImplementedError` with its name. Nothing on this page does nothing in silence,
  except what marks a run for a profiler of NVIDIA's (`torch.cuda.nvtx`, `torch.cuda.profiler`), as on a
  real GPU that no such profiler watches.

What is not a function of these modules is described in [simulated GPUs](simulated-gpus.md): tensors and their
devices, operators, `torch.nn.parallel`, `torch.distributed`. Deliberately different from a real GPU:

- Random numbers are those of the CPU's generator, not Philox; states have its size.
- `torch.compile` runs eagerly and says so once; `torch.jit` works, except that a scripted function which
  asks a tensor for its device is told that of this computer.
- `torch.profiler` sees this computer's CPU and says so once.
- The fast path of Transformer layers in evaluation is off; outputs at padded positions are computed.
- Under `torch.autocast("cpu")` alone, tensors of a GPU are cast, too.
- `torch.nested` tensors cannot be made on a simulated GPU.

"""


class Row(NamedTuple):
    """One public function or class."""

    name: str
    status: str
    what: str  # in a few words, where it is ours


def rows(module: str) -> list[Row]:
    """The public callables of a module, in alphabetical order; none if this torch does not have it."""
    try:
        found = import_module(module)
    except ImportError:
        return []
    before = dict(_callables(found))
    with simulate("2xT4"):
        after = dict(_callables(found))
    return [_row(name, before.get(name), after[name]) for name in sorted(after, key=str.lower)]


def _callables(module: ModuleType) -> Iterator[tuple[str, Any]]:
    listed = getattr(module, "__all__", None)
    for name in listed if listed is not None else [*vars(module), *vars(type(module))]:
        thing = getattr(module, name, None)
        if name.startswith("_") or not callable(thing):
            continue
        home = getattr(thing, "__module__", "") or ""
        if listed is not None or home == module.__name__ or home.startswith("grader."):
            yield name, thing


def _row(name: str, before: Any, after: Any) -> Row:
    if getattr(after, "not_simulated", False):
        return Row(name, REFUSED, "")
    if after is before:
        return Row(name, AS_IT_IS, "")
    return Row(name, SIMULATED, _what(name, after))


def _what(name: str, thing: Any) -> str:
    if name in _WORDS:
        return _WORDS[name]
    if name.endswith("Tensor"):
        return "A type: makes and recognizes tensors of the current device"
    ours = (getattr(thing, "__module__", "") or "").startswith("grader.")
    text = (inspect.getdoc(thing) or "") if ours else ""
    return " ".join(re.split(r"[.:;](?:\s|$)", text)[0].split()).replace("|", "\\|")


def text() -> str:
    """The whole page, for the torch that is installed."""
    version = torch.__version__.partition("+")[0]
    parts = [_HEADING.format(version=version)]
    for module in MODULES:
        found = rows(module)
        if found:
            parts.append(f"## {module}\n\n| name | | what |\n| --- | --- | --- |\n")
            parts += [f"| `{row.name}` | {row.status} | {row.what} |\n" for row in found]
            parts.append("\n")
    return "".join(parts).rstrip() + "\n"
