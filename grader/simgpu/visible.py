"""CUDA_VISIBLE_DEVICES: what a program says in it goes for the simulated GPUs, and real ones stay hidden.

Python and C each have an environment. The program reads and sets Python's, where its own value stands; CUDA
reads C's, where a value stands that leaves it no GPU.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

VARIABLE = "CUDA_VISIBLE_DEVICES"
# C's value: a list of no GPU that CUDA knows. A child gets it that is not given Python's environment.
NONE = "simgpu"

_undo: Callable[[], None] | None = None  # while real GPUs are hidden


def numbers(value: str | None, count: int) -> list[int]:
    """Which of `count` GPUs a value leaves, in the order in which they are numbered anew.

    A list of numbers goes up to the first invalid one, and leaves nothing if it names one twice (CUDA C++
    Programming Guide, "CUDA Environment Variables"; torch.cuda's own reading for NVML).
    """
    if value is None:
        return list(range(count))
    found: list[int] = []
    for part in value.split(","):
        text = part.strip()
        if not text.isdecimal() or int(text) >= count:
            break
        found.append(int(text))
    return found if len(set(found)) == len(found) else []


def are_hidden() -> bool:
    """Whether no real GPU is visible, whatever the program says."""
    return _undo is not None or os.environ.get(VARIABLE) in ("", "-1")


def hide(inherited: str | None, hiding: str | None, changed: Callable[[str | None], None]) -> str | None:
    """Hide real GPUs from now on; return what the program says.

    `inherited` is what the program's parent said, `hiding` a value that only hid real GPUs. `changed` is
    called with what the program says from now on, None where it takes the variable away.
    """
    global _undo
    said = os.environ.get(VARIABLE)
    if said is not None and said in (NONE, hiding):
        said = inherited
        if said is None:
            del os.environ[VARIABLE]
        else:
            os.environ[VARIABLE] = said
    if _undo is None:
        _undo = _watch(changed)
    return said


def show() -> None:
    """Undo `hide`: C's environment has what Python's has."""
    global _undo
    if _undo is not None:
        _undo()
        _undo = None


def _watch(changed: Callable[[str | None], None]) -> Callable[[], None]:
    """Tell of changes instead of making them in C's environment; return what undoes this."""
    putenv, unsetenv = os.putenv, os.unsetenv
    watched = os.fsencode(VARIABLE)

    def put(name: Any, value: Any) -> None:
        if os.fsencode(name) == watched:
            changed(os.fsdecode(value))
        else:
            putenv(name, value)

    def unset(name: Any) -> None:
        if os.fsencode(name) == watched:
            changed(None)
        else:
            unsetenv(name)

    # os.environ looks both up each time that it is changed.
    os.putenv, os.unsetenv = put, unset
    putenv(VARIABLE, NONE)

    def undo() -> None:
        os.putenv, os.unsetenv = putenv, unsetenv
        if VARIABLE in os.environ:
            putenv(VARIABLE, os.environ[VARIABLE])
        else:
            unsetenv(VARIABLE)

    return undo
