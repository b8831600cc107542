"""Starts the run server and runs scripts in it: pipes, limits, and an end to everything."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grader.evidence import RunOutcome
from grader.exercise import Limits
from grader.run import sandbox
from grader.run.protocol import AnyRecord, End, Fence, MalformedRecord, parse

_ROOT = Path(__file__).resolve().parents[2]
_START = "import sys; sys.path.append({root!r}); from grader.run.child import serve; serve({descriptor})"
_START_SECONDS = 300  # importing torch from a cold disk can take a minute


class ServerBroken(RuntimeError):
    """The run server could not be started; the grader's fault, not the learner's."""


@dataclass
class Request:
    """One run of one script."""

    script: Path  # the submission's main file
    extra: list[Path]  # further files of the submission, and the exercise's own, copied beside it
    run: str  # "accuracy" or "speed"
    machine: str | None  # simulated machine, None for real GPUs
    data: str  # EXERCISE_DATA
    limits: Limits


@dataclass
class RawRun:
    """What came back from one run, not yet judged."""

    outcome: RunOutcome = RunOutcome.KILLED
    records: list[AnyRecord] = field(default_factory=list)
    output: bytes = b""
    output_truncated: bool = False
    wall_seconds: float = 0.0
    detail: str = ""
    weights: bytes | None = None

    @property
    def end(self) -> End | None:
        return next((r for r in reversed(self.records) if isinstance(r, End)), None)


OnFence = Callable[[Fence], bool]  # returns whether the script may go on


class Server:
    """A process that has imported torch and forks once for every run; use as a context manager."""

    def __init__(self, visible: str | None) -> None:
        """`visible`: the real GPUs to be seen, as CUDA_VISIBLE_DEVICES; "" for none, None for all."""
        self.visible = visible
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._home = ""

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Start the process without waiting for it; `run` does so when needed."""
        if self._process is not None:
            return
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self._home = tempfile.mkdtemp(prefix="grade-")
        start = _START.format(root=str(_ROOT), descriptor=theirs.fileno())
        try:
            self._process = subprocess.Popen(
                [*sandbox.isolation(), sys.executable, "-I", "-B", "-X", "faulthandler=0", "-c", start],
                env=sandbox.environment(self.visible, self._home),
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                start_new_session=True,
                cwd=self._home,
            )
        except OSError as fault:
            raise ServerBroken(f"cannot start {sys.executable}: {fault}") from fault
        theirs.close()
        self._control = ours
        self._ready = False

    def close(self) -> None:
        """Kill the process and all that it started; nothing stays behind."""
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=2)
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            if self._process.stderr:
                self._process.stderr.close()
            self._process = None
        if self._home:
            shutil.rmtree(self._home, ignore_errors=True)
            self._home = ""

    def run(self, request: Request, on_fence: OnFence) -> RawRun:
        """Run a script to its end or its limits; whatever it does, a RawRun comes back.

        Raises ServerBroken if not even an empty script could be run.
        """
        self.start()
        self._wait_until_ready()
        folder = Path(tempfile.mkdtemp(prefix="run-", dir=self._home))
        try:
            for source in [request.script, *request.extra]:
                shutil.copy(source, folder / source.name)
            raw = _Exchange(self, request, folder, on_fence).run()
            if raw.end is not None and raw.end.weights:
                raw.weights = _read_weights(folder / "weights.safetensors", request.limits)
            return raw
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _wait_until_ready(self) -> None:
        assert self._control is not None and self._process is not None
        if self._ready:
            return
        self._control.settimeout(_START_SECONDS)
        try:
            self._ready = bool(self._control.recv(4096))
        except OSError:
            self._ready = False
        finally:
            self._control.settimeout(None)
        if not self._ready:
            self._process.kill()
            said = self._process.stderr.read().decode(errors="replace") if self._process.stderr else ""
            self.close()
            raise ServerBroken("the run server did not start:\n" + said[-4000:])

    @property
    def control(self) -> socket.socket:
        assert self._control is not None
        return self._control


class _Exchange:
    """The pipes of one run, read until the script has ended or broken a limit."""

    def __init__(self, server: Server, request: Request, folder: Path, on_fence: OnFence) -> None:
        self.server, self.request, self.folder, self.on_fence = server, request, folder, on_fence
        self.raw = RawRun()
        self.token = secrets.token_hex(16)
        self.pending = b""
        self.received = 0
        self.killed = False

    def run(self) -> RawRun:
        output_r, output_w = os.pipe()
        records_r, records_w = os.pipe()
        replies_r, self.replies_w = os.pipe()
        started = time.monotonic()
        try:
            try:
                message = json.dumps(self._message()).encode()
                socket.send_fds(self.server.control, [message], [output_w, records_w, replies_r])
            except OSError:
                self._lost()
            finally:
                for descriptor in (output_w, records_w, replies_r):
                    os.close(descriptor)
            self._pump(output_r, records_r, started + self.request.limits.seconds)
        finally:
            for descriptor in (output_r, records_r, self.replies_w):
                os.close(descriptor)
        self.raw.wall_seconds = time.monotonic() - started
        self._conclude()
        return self.raw

    def _message(self) -> dict[str, Any]:
        request = self.request
        return {
            "script": request.script.name,
            "folder": str(self.folder),
            "run": request.run,
            "machine": request.machine,
            "environment": {"EXERCISE_DATA": request.data, "HOME": str(self.folder), "TMPDIR": str(self.folder)},
            "token": self.token,
            "tasks": request.limits.tasks,
            "memory_gigabytes": request.limits.memory_gigabytes,
        }

    def _pump(self, output: int, records: int, deadline: float) -> None:
        """Read until the server reports the end of the run."""
        with selectors.DefaultSelector() as selector:
            for descriptor in (output, records):
                os.set_blocking(descriptor, False)
                selector.register(descriptor, selectors.EVENT_READ)
            selector.register(self.server.control, selectors.EVENT_READ)
            ended = False
            while not ended:
                left = deadline - time.monotonic()
                if left <= 0:
                    self._kill(RunOutcome.TIMEOUT, f"still running after {self.request.limits.seconds:g} s")
                    deadline = float("inf")
                    continue
                for key, _ in selector.select(min(left, 1.0)):
                    if key.fileobj is self.server.control:
                        ended = self._status()
                    else:
                        take = self._take_output if key.fd == output else self._take_records
                        if not take(key.fd):
                            selector.unregister(key.fd)
            self._take_output(output)
            self._take_records(records)

    def _status(self) -> bool:
        """Read the server's report that the run has ended; True also if the server is gone."""
        try:
            report = self.server.control.recv(4096)
        except OSError:
            report = b""
        if not report:
            self._lost()
            return True
        status = os.waitstatus_to_exitcode(json.loads(report)["status"])
        if not self.raw.detail:
            how = f"killed by signal {-status}" if status < 0 else f"exit code {status}"
            self.raw.detail = f"the process ended without a record of how ({how})"
        return True

    def _lost(self) -> None:
        """The server died with the run, which can only be the script's doing; the next run starts a new one."""
        self.raw.detail = self.raw.detail or "the script killed the process that ran it"
        self.server.close()

    def _kill(self, outcome: RunOutcome, detail: str) -> None:
        if self.killed:
            return
        self.killed = True
        self.raw.outcome, self.raw.detail = outcome, detail
        with contextlib.suppress(OSError):
            self.server.control.send(b"k")

    def _take_output(self, descriptor: int) -> bool:
        """Keep what was printed up to the cap; return whether more can come."""
        data = _drain(descriptor)
        room = self.request.limits.output_kilobytes * 1000 - len(self.raw.output)
        self.raw.output += (data or b"")[:room]
        self.raw.output_truncated |= len(data or b"") > room
        return data is not None

    def _take_records(self, descriptor: int) -> bool:
        """Take in whole records; return whether more can come."""
        data = _drain(descriptor)
        self.received += len(data or b"")
        if self.received > self.request.limits.events_megabytes * 1e6:
            cap = f"{self.request.limits.events_megabytes:g} MB"
            self._kill(RunOutcome.MALFORMED, f"sent more than {cap} of records")
        elif data:
            *lines, self.pending = (self.pending + data).split(b"\n")
            for line in lines:
                self._take_record(line)
        return data is not None

    def _take_record(self, line: bytes) -> None:
        if self.killed:
            return
        try:
            record = parse(line, self.token)
        except MalformedRecord as fault:
            self._kill(RunOutcome.MALFORMED, str(fault))
            return
        if self.raw.end is not None:
            self._kill(RunOutcome.MALFORMED, "a record after the end")
            return
        self.raw.records.append(record)
        if isinstance(record, Fence):
            with contextlib.suppress(OSError):  # the script may have died while we thought
                os.write(self.replies_w, b"c" if self.on_fence(record) else b"s")

    def _conclude(self) -> None:
        if self.killed or self.raw.outcome is RunOutcome.MALFORMED:
            return
        end = self.raw.end
        if self.pending:
            self.raw.outcome, self.raw.detail = RunOutcome.MALFORMED, "the last record is cut short"
        elif end is not None:
            self.raw.outcome, self.raw.detail = RunOutcome(end.outcome), end.detail


def _drain(descriptor: int) -> bytes | None:
    """Return what can be read now, up to a megabyte, so that no flood keeps the clock from being read.

    None at the end of the stream.
    """
    data = b""
    with contextlib.suppress(BlockingIOError):
        while len(data) < 1 << 20:
            chunk = os.read(descriptor, 1 << 16)
            if not chunk:
                return data or None
            data += chunk
    return data


def _read_weights(path: Path, limits: Limits) -> bytes | None:
    """Read a regular file of at most the allowed size; anything else is no weights."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        data = file.read(int(limits.weights_megabytes * 1e6) + 1)
    return data if len(data) <= limits.weights_megabytes * 1e6 else None
