"""Runs one script in the forked child: devices, probe, the script itself, and how it ended."""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import sys
import types
from pathlib import Path
from typing import Any

from safetensors.torch import save_file

from grader import simgpu
from grader.run import sandbox, sentry
from grader.run.errors import STUCK_FILE, describe, short_account
from grader.run.fences import RunStopped
from grader.run.probe import Probe

# Everything needed later is looked up now: the script may replace it, and may fill the memory.
_write, _read, _exit = os.write, os.read, os._exit


class Channel:
    """Writes records to the parent and waits for its reply at fences."""

    __slots__ = ("_encode", "_records", "_replies", "_token")

    def __init__(self, records: int, replies: int, token: str) -> None:
        self._records, self._replies, self._token = records, replies, token
        self._encode = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode

    def send(self, record: str, **fields: Any) -> None:
        line = self._encode({"token": self._token, "record": record, **fields}).encode() + b"\n"
        while line:
            line = line[_write(self._records, line) :]

    def reply(self) -> bytes:
        """Return the parent's word at a fence: b"c" to continue, b"s" or b"" (it is gone) to stop."""
        return _read(self._replies, 1)

    def give_up(self, outcome: str, detail: str) -> None:
        """Report why the script can be observed no longer and end the process."""
        self.send("end", outcome=outcome, detail=detail[-8000:])
        _exit(1)


def run_script(request: dict[str, Any], records: int, replies: int) -> None:
    """Run `request["script"]` under the probe; everything observed goes to the parent. Never returns."""
    channel = Channel(records, replies, request["token"])
    try:
        _run_script(request, channel)
    except BaseException as fault:  # not the script's: what it raises is caught where it runs
        channel.give_up("ungradable", short_account(fault))


def _run_script(request: dict[str, Any], channel: Channel) -> None:
    folder = Path(request["folder"])
    with _machine(request) as machine:
        sandbox.limit_memory(request["memory_gigabytes"], _simulated_bytes(machine))
        probe = Probe(channel, folder, machine, accuracy=request["run"] == "accuracy")
        probe.install()
        _hide_the_grader()
        sentry.watch(folder, lambda what: channel.send("tampering", what=what))
        _note_where_time_ends(request["seconds"], folder)
        outcome, error = _execute(folder, request["script"], probe)
        with simgpu.unobserved():
            weights = outcome == "completed" and _save_weights(probe, folder / "weights.safetensors")
            _finish(probe, channel)
            _flush()
            channel.send("end", outcome=outcome, error=error, weights=weights)
            _exit(0)


def _finish(probe: Probe, channel: Channel) -> None:
    """Send the summary; a model or a torch that cannot be looked at any more is the script's doing."""
    try:
        probe.finish()
    except Exception as fault:
        said = f"it left torch or its model in a state that cannot be observed ({type(fault).__name__})"
        channel.give_up("killed", said)


def _note_where_time_ends(seconds: float, folder: Path) -> None:
    """Write down, just before the limit, where the script is: a watchdog thread in C does it."""
    # A bare descriptor: a file object would be closed with the last reference to it.
    last_words = os.open(folder / STUCK_FILE, os.O_WRONLY | os.O_CREAT, 0o600)
    faulthandler.dump_traceback_later(max(seconds * 0.8, seconds - 3), file=last_words)


def _simulated_bytes(machine: Any) -> int:
    """Address space that tensors without values may take: never touched, it costs the host nothing."""
    return 0 if machine is None or machine.math else sum(d.memory.capacity for d in machine.devices)


def _hide_the_grader() -> None:
    """Leave no name by which the script could reach what observes it: it may import fresh copies."""
    for name in [name for name in sys.modules if name == "grader" or name.startswith("grader.")]:
        del sys.modules[name]


def _machine(request: dict[str, Any]) -> Any:
    """A context manager that gives the simulated machine, or None for real GPUs."""
    if request["machine"] is None:
        return contextlib.nullcontext()
    return simgpu.simulate(request["machine"], math=request["math"])


def _execute(folder: Path, script: str, probe: Probe) -> tuple[str, dict[str, Any] | None]:
    """Run the script as `__main__`; return how it ended and, if it raised, what."""
    path = folder / script
    sys.argv = [str(path)]
    sys.path.insert(0, str(folder))
    main = types.ModuleType("__main__")
    main.__dict__.update(__file__=str(path), __builtins__=__builtins__)
    sys.modules["__main__"] = main
    # Without arithmetic a value that is read is 0, and an assertion about one would say nothing.
    optimize = 1 if probe.machine is not None and not probe.machine.math else 0
    try:
        exec(compile(path.read_bytes(), str(path), "exec", optimize=optimize), main.__dict__)
    except SystemExit as stop:
        if not (stop.code is None or isinstance(stop.code, int) and stop.code == 0):
            return "error", describe(stop, folder)
    except BaseException as fault:  # whatever a script can raise is its outcome, KeyboardInterrupt too
        with simgpu.unobserved():
            description = describe(fault, folder)
        out_of_memory = description["type"] in ("OutOfMemoryError", "MemoryError")
        return "out_of_memory" if out_of_memory else "error", description
    with contextlib.suppress(RunStopped):  # there is nothing left to stop
        probe.end_epoch()
    return "completed", None


def _save_weights(probe: Probe, path: Path) -> bool:
    """Write the trained model's state for the parent's evaluation."""
    try:
        state = probe.weights()
        if state:
            save_file(state, path)
    except Exception:  # of a model, or a disk, that the script has bent: then there are no weights
        return False
    return bool(state)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
