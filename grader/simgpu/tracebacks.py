"""Tracebacks of a simulated program show its own frames and torch's, not those of the simulation.

An error that CUDA would raise comes out of the simulation here; what lies between the program's line and the
error is of no use to whoever reads it.
"""

from __future__ import annotations

import os
import sys
import threading
import traceback
from types import TracebackType
from typing import Any

_OURS = os.path.dirname(os.path.abspath(__file__)) + os.sep
# What torch calls a dispatch mode through, and what a mode calls the operator through.
_BETWEEN = tuple(
    os.path.join("torch", *parts)
    for parts in (
        ("_compile.py",),
        ("_ops.py",),
        ("_dynamo", "eval_frame.py"),
        ("utils", "_python_dispatch.py"),
        ("utils", "_contextlib.py"),
    )
)


def install() -> None:
    """Let every traceback that this process prints be short, until it ends."""
    original = traceback.TracebackException.__init__

    def init(self: Any, kind: Any, error: Any, frames: Any, *args: Any, **kwargs: Any) -> None:
        shorten(error)
        original(self, kind, error, shortened(frames), *args, **kwargs)

    traceback.TracebackException.__init__ = init  # type: ignore[method-assign, assignment]
    show, show_in_thread = sys.excepthook, threading.excepthook

    def excepthook(kind: Any, error: BaseException, frames: TracebackType | None) -> None:
        shorten(error)
        show(kind, error, error.__traceback__)

    def thread_excepthook(args: Any) -> None:
        shorten(args.exc_value)
        show_in_thread(args)

    sys.excepthook, threading.excepthook = excepthook, thread_excepthook


def shorten(error: BaseException | None) -> None:
    """Shorten the tracebacks of an error and of all that it came from; what the simulation itself caught is
    left out."""
    seen: set[int] = set()
    waiting = [error]
    while waiting:
        one = waiting.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        one.__traceback__ = shortened(one.__traceback__)
        if one.__context__ is not None and _is_ours(one.__context__.__traceback__):
            one.__context__ = None
        waiting += [one.__cause__, one.__context__, *getattr(one, "exceptions", ())]


def _is_ours(frames: TracebackType | None) -> bool:
    """Whether the error was raised and caught in the simulation."""
    return frames is not None and frames.tb_frame.f_code.co_filename.startswith(_OURS)


def shortened(frames: TracebackType | None) -> TracebackType | None:
    """The traceback without each run of frames in which there is one of the simulation.

    A traceback of nothing but such frames is returned as it is.
    """
    every: list[TracebackType] = []
    while frames is not None:
        every.append(frames)
        frames = frames.tb_next
    kept: list[TracebackType] = []
    run: list[TracebackType] = []
    for one in [*every, None]:
        path = one.tb_frame.f_code.co_filename if one is not None else ""
        if one is not None and (path.startswith(_OURS) or path.endswith(_BETWEEN)):
            run.append(one)
            continue
        if not any(within.tb_frame.f_code.co_filename.startswith(_OURS) for within in run):
            kept += run
        run = []
        if one is not None:
            kept.append(one)
    if not kept:
        return every[0] if every else None
    head: TracebackType | None = None
    for one in reversed(kept):
        head = TracebackType(head, one.tb_frame, one.tb_lasti, one.tb_lineno)
    return head
