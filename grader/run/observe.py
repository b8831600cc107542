"""Facts read off tensors, modules and optimizers: plain functions without state."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from grader.run.wrappers import is_wrapper

_HISTORY_POINTS = 200


def tensors(values: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors in nested tuples, lists and dicts, in order."""
    if isinstance(values, torch.Tensor):
        yield values
    elif isinstance(values, dict):
        for value in values.values():
            yield from tensors(value)
    elif isinstance(values, (tuple, list)):
        for value in values:
            yield from tensors(value)


def first_tensor(values: Any) -> torch.Tensor | None:
    return next(tensors(values), None)


def count_rows(rows: dict[str, int], args: Any, kwargs: Any) -> None:
    """Add the rows of the first tensor among the arguments to its device's count."""
    tensor = first_tensor((args, kwargs))
    if tensor is not None and tensor.ndim:
        device = str(tensor.device)
        rows[device] = rows.get(device, 0) + tensor.shape[0]


def dtype(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def finite(value: float) -> float | None:
    """JSON has no NaN; a loss that is none is reported as missing."""
    return value if math.isfinite(value) else None


def fingerprints(images: torch.Tensor) -> list[int]:
    """CRC-32 of each row of a real tensor of at least one dimension, values as float32."""
    if images.ndim == 0 or images.layout is not torch.strided:
        return []
    rows = (
        images.detach().to("cpu", torch.float32).contiguous().flatten(1)
        if images.ndim > 1
        else images[:, None]
    )
    return [zlib.crc32(row.tobytes()) for row in rows.contiguous().numpy()]


def autocast() -> str | None:
    """The dtype of an autocast region that is active for the GPU or, under simulation, the CPU."""
    for kind in ("cuda", "cpu"):
        if torch.is_autocast_enabled(kind):
            return str(torch.get_autocast_dtype(kind)).removeprefix("torch.")
    return None


def lower_precision(values: Any) -> str | None:
    """The dtype of a half-precision tensor among the arguments of a layer: cast by hand inside forward."""
    found = (dtype(t) for t in tensors(values) if t.dtype in (torch.float16, torch.bfloat16))
    return next(found, None)


def gradients(used: torch.optim.Optimizer) -> int:
    """How many of an optimizer's parameters have a gradient."""
    return sum(p.grad is not None for group in used.param_groups for p in group["params"])


def precision() -> dict[str, str]:
    """Global switches that trade accuracy for speed.

    Not cuDNN's TF32 for convolutions: it is on by default, and switching it off only takes time.
    """
    try:
        matmul = torch.get_float32_matmul_precision()
    except RuntimeError:  # torch refuses to answer where its newer setting was used; ask that one
        matmul = "high" if torch.backends.cuda.matmul.fp32_precision == "tf32" else "highest"
    default = str(torch.get_default_dtype()).removeprefix("torch.")
    return {"float32_matmul_precision": matmul, "default_dtype": default}


def target_device(loss: torch.Tensor) -> str | None:
    """Where the targets of a negative log-likelihood lie, read from the autograd graph of `loss`."""
    frontier, seen = [loss.grad_fn], 0
    while frontier and seen < 32:
        node = frontier.pop(0)
        seen += 1
        if node is None:
            continue
        try:
            target = getattr(node, "_saved_target", None)
        except RuntimeError:  # freed by an earlier backward
            target = None
        if isinstance(target, torch.Tensor):
            return str(target.device)
        frontier += [parent for parent, _ in node.next_functions]
    return None


def plain_name(core: nn.Module, name: str) -> str:
    """`name` without the `module.` levels that wrappers inside `core` add."""
    parts, plain, module = name.split("."), [], core
    for part in parts:
        wrapped = is_wrapper(module) and part == "module"
        if not wrapped:
            plain.append(part)
        module = getattr(module, part, None) if isinstance(module, nn.Module) else None  # type: ignore[assignment]
    return ".".join(plain)


def architecture(core: nn.Module) -> dict[str, Any]:
    """Return the fields of an `Architecture`."""
    trainable = {name for name, parameter in core.named_parameters() if parameter.requires_grad}
    state = {
        plain_name(core, name): {
            "shape": list(value.shape),
            "dtype": dtype(value),
            "trainable": name in trainable,
        }
        for name, value in core.state_dict().items()
        if isinstance(value, torch.Tensor)
    }
    modules = {
        plain_name(core, name) if name else "": type(module).__name__
        for name, module in core.named_modules()
        if not is_wrapper(module)
    }
    return {"class_name": type(core).__name__, "modules": modules, "state": state}


def optimizer(used: torch.optim.Optimizer, core: nn.Module, site: Any) -> dict[str, Any]:
    """Return the fields of an `Optimizer`, its parameters by their names in `core`."""
    names = {id(parameter): plain_name(core, name) for name, parameter in core.named_parameters()}
    groups = [{k: _plain(v) for k, v in g.items() if k != "params"} for g in used.param_groups]
    held = [parameter for group in used.param_groups for parameter in group["params"]]
    return {
        "class_name": f"{type(used).__module__}.{type(used).__qualname__}",
        "hyperparameters": groups,
        "parameters": sorted(names[id(p)] for p in held if id(p) in names),
        "foreign_parameters": sum(id(p) not in names for p in held),
        "site": site,
    }


def _plain(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, torch.Tensor):
        return value.item() if value.numel() == 1 else str(list(value.shape))
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, int) and abs(value) > 1 << 53:
        return "a very large number"
    return value if isinstance(value, (bool, int, float, str, type(None))) else repr(value)[:200]


def devices(machine: Any, window: tuple[float, float] | None) -> list[dict[str, Any]]:
    """Return the fields of one `DeviceUse` per device; memory over `window` (virtual seconds)."""
    if machine is None:
        return [
            {
                "device": f"cuda:{index}",
                "peak_bytes": torch.cuda.max_memory_allocated(index),
                "capacity_bytes": torch.cuda.get_device_properties(index).total_memory,
            }
            for index in range(torch.cuda.device_count())
        ]
    return [
        {
            "device": f"cuda:{index}",
            "busy_seconds": device.busy_seconds,
            "peak_bytes": device.memory.peak,
            "capacity_bytes": device.memory.capacity,
            "memory": _history(device.memory.history, window),
        }
        for index, device in enumerate(machine.devices)
    ]


def _history(points: Any, window: tuple[float, float] | None) -> list[tuple[float, int]]:
    """Thin a history of (seconds, bytes) within the window to what a drawing can show."""
    if window is None:
        return []
    start, end = window
    inside = [(mark.seconds - start, mark.allocated) for mark in points if start <= mark.seconds <= end]
    before = [mark.allocated for mark in points if mark.seconds < start]
    inside = [(0.0, before[-1] if before else 0), *inside]
    stride = max(1, len(inside) // _HISTORY_POINTS)
    return [
        max(inside[first : first + stride], key=lambda point: point[1])
        for first in range(0, len(inside), stride)
    ]
