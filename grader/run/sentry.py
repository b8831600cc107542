"""Reports a script that goes looking for its observers, at the moment when it does.

An audit hook (PEP 578) cannot be removed again, and what it reports leaves the process at once. It
hears of searches through frames and through the garbage collector's objects; it does not hear of a
search through closures and attributes, which nothing inside one process can keep anyone from.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

_SEARCHES = {
    "gc.get_objects": "searched all objects of the process (gc.get_objects)",
    "gc.get_referrers": "searched the referrers of an object (gc.get_referrers)",
    "sys._getframe": "walked the stack (sys._getframe)",
    "sys._current_frames": "walked the stacks of all threads (sys._current_frames)",
    "sys._getframemodulename": "walked the stack (sys._getframemodulename)",
    "sys.settrace": "traced the execution (sys.settrace)",
    "sys.setprofile": "traced the execution (sys.setprofile)",
    "ctypes.PyObj_FromPtr": "made objects out of addresses (ctypes)",
}
_FRAME_ATTRIBUTES = ("tb_frame", "gi_frame", "cr_frame", "ag_frame")


def watch(folder: Path, report: Callable[[str], None]) -> None:
    """Call `report` with a sentence, once for each kind, when code in `folder` searches."""
    prefix, getframe, reported = f"{folder}/", sys._getframe, set()
    busy = False

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal busy
        if event == "object.__getattr__" and len(arguments) == 2 and arguments[1] in _FRAME_ATTRIBUTES:
            said = f"took the stack out of an object ({arguments[1]})"
        else:
            said = _SEARCHES.get(event, "")
        if not said or busy:
            return
        busy = True
        try:
            if said not in reported and getframe(1).f_code.co_filename.startswith(prefix):
                reported.add(said)
                report(said)
        finally:
            busy = False

    sys.addaudithook(hook)
