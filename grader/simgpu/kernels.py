"""What torch's own list of operators says of their CUDA kernels.

The list is `native_functions.yaml`, from which torch's build generates a wrapper around each kernel. It comes
with every build of torch, those without CUDA included, as part of `torchgen`. Here only what decides how
the wrapper checks devices is read, as text and only for the operators that are asked for.
"""

from __future__ import annotations

import functools
import importlib.util
import re
from pathlib import Path
from typing import Any, NamedTuple


class Kernel(NamedTuple):
    """The CUDA kernel of one overload of an operator."""

    wrapper: str  # name of the generated function, which its errors give
    checks: bool  # whether that function compares the devices of its arguments


def kernel(func: Any) -> Kernel | None:
    """The kernel that CUDA runs for an operator; None where it is composed of others.

    The names follow torchgen/dest/register_dispatch_key.py.
    """
    schema = func._schema
    return named_kernel(schema.name.removeprefix("aten::"), schema.overload_name)


@functools.cache
def named_kernel(name: str, overload: str = "") -> Kernel | None:
    """The same by name: ("add", "Tensor")."""
    entry = _entry(name, overload)
    if entry is None:
        return None
    delegate = re.search(r"^  structured_delegate: (\w+)\.?(\w*)", entry, re.MULTILINE)
    dispatched = _entry(delegate[1], delegate[2]) if delegate else entry
    if dispatched is None or not re.search(r"^    [^#:\n]*\bCUDA\b[^:\n]*:", dispatched, re.MULTILINE):
        return None
    function = name + "_out" if _writes_out(entry) else name
    if delegate or "  structured: True" in entry:
        wrapper = f"wrapper_CUDA_{function}" + (f"_{overload}" if overload else "")
    else:
        wrapper = f"wrapper_CUDA_{overload}_{function}"
    return Kernel(wrapper, "device_check: NoCheck" not in entry)


def _writes_out(entry: str) -> bool:
    """Whether the operator writes into arguments that are given by keyword only."""
    arguments = entry.partition("\n")[0].rpartition("->")[0]
    return "!)" in arguments.partition(", *, ")[2]


def _entry(name: str, overload: str) -> str | None:
    full = re.escape(f"{name}.{overload}" if overload else name)
    found = re.search(rf"^- func: {full}\(.*?(?=^- func: |\Z)", _operators(), re.MULTILINE | re.DOTALL)
    return found[0] if found else None


@functools.cache
def _operators() -> str:
    package = importlib.util.find_spec("torchgen")
    if package is None or package.origin is None:
        return ""
    listed = Path(package.origin).parent / "packaged" / "ATen" / "native" / "native_functions.yaml"
    return listed.read_text(encoding="utf-8") if listed.is_file() else ""
