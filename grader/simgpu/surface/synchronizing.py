"""torch.cuda.set_sync_debug_mode: tell of every operation that makes the host wait for a GPU."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from ..clock import HOST

if TYPE_CHECKING:
    from ..machine import Machine

_MODES = ("default", "warn", "error")
_TEXT = "called a synchronizing CUDA operation"


class SyncDebug:
    """The mode of a machine: while it is not "default", copies that block go through here."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.mode = 0

    def get_sync_debug_mode(self) -> int:
        """0 for "default", 1 for "warn", 2 for "error"."""
        return self.mode

    def set_sync_debug_mode(self, debug_mode: int | str) -> None:
        """Do nothing, warn, or raise when an operation makes the host wait."""
        if isinstance(debug_mode, str):
            if debug_mode not in _MODES:
                raise RuntimeError("invalid value of debug_mode, expected one of `default`, `warn`, `error`")
            debug_mode = _MODES.index(debug_mode)
        if not 0 <= debug_mode < len(_MODES):
            raise RuntimeError("invalid value of debug_mode, expected one of 0,1,2")
        clocks = self.machine.clocks
        clocks.__dict__.pop("copy", None)
        if debug_mode:
            clocks.__dict__["copy"] = self._watched(clocks.copy)
        self.mode = debug_mode

    def _watched(self, copy: Any) -> Any:
        def copy_and_tell(source: int, destination: int, nbytes: int, blocking: bool, *how: Any) -> Any:
            if blocking and HOST in (source, destination):
                if self.mode == _MODES.index("error"):
                    raise RuntimeError(_TEXT)
                warnings.warn(_TEXT, stacklevel=2)
            return copy(source, destination, nbytes, blocking, *how)

        return copy_and_tell


def functions(machine: Machine) -> dict[str, Any]:
    """The names under torch.cuda that this module answers."""
    debug = SyncDebug(machine)
    return {name: getattr(debug, name) for name in ("get_sync_debug_mode", "set_sync_debug_mode")}
