"""The pipes of one run: records, output and replies, and the limits that they are held to."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import selectors
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grader.evidence import RunOutcome, Site
from grader.exercise import Limits
from grader.run.protocol import AnyRecord, End, Fence, MalformedRecord, parse


@dataclass
class Request:
    """One run of one script."""

    script: Path  # the submission's main file
    extra: list[Path]  # further files of the submission, and the exercise's own, copied beside it
    run: str  # "accuracy" or "speed"
    machine: str | None  # simulated machine, None for real GPUs
    data: str  # EXERCISE_DATA
    limits: Limits
    math: bool | None = None  # arithmetic on simulated GPUs; by default in accuracy runs only


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
    stopped_at: Site | None = None  # where the script was when its time was up

    @property
    def end(self) -> End | None:
        return next((r for r in reversed(self.records) if isinstance(r, End)), None)


OnFence = Callable[[Fence], bool]  # returns whether the script may go on


class Exchange:
    """One run, read until the script has ended or broken a limit.

    `lost` is called when the process that runs it has died.
    """

    def __init__(
        self,
        control: socket.socket,
        request: Request,
        folder: Path,
        on_fence: OnFence,
        lost: Callable[[], None],
    ) -> None:
        self.control, self.request, self.folder = control, request, folder
        self.on_fence, self.lost = on_fence, lost
        self.raw = RawRun()
        self.token = secrets.token_hex(16)
        self.pending = b""
        self.received = 0
        self.killed = False

    def run(self) -> RawRun:
        """Hand the request to the run server and return what came back."""
        output_r, output_w = os.pipe()
        records_r, records_w = os.pipe()
        replies_r, self.replies_w = os.pipe()
        started = time.monotonic()
        try:
            if self._hand_over(output_w, records_w, replies_r):
                self._pump(output_r, records_r, started + self.request.limits.seconds)
            else:
                self._lost()
        finally:
            for descriptor in (output_r, records_r, self.replies_w):
                os.close(descriptor)
        self.raw.wall_seconds = time.monotonic() - started
        self._conclude()
        return self.raw

    def _hand_over(self, *descriptors: int) -> bool:
        """Give the request and the script's ends of the pipes to the run server; False if it is gone."""
        try:
            socket.send_fds(self.control, [json.dumps(self._message()).encode()], list(descriptors))
            return True
        except OSError:
            return False
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def _message(self) -> dict[str, Any]:
        request, folder = self.request, str(self.folder)
        return {
            "script": request.script.name,
            "folder": folder,
            "run": request.run,
            "machine": request.machine,
            "math": request.run == "accuracy" if request.math is None else request.math,
            "environment": {"EXERCISE_DATA": request.data, "HOME": folder, "TMPDIR": folder},
            "token": self.token,
            "tasks": request.limits.tasks,
            "seconds": request.limits.seconds,
            "memory_gigabytes": request.limits.memory_gigabytes,
        }

    def _pump(self, output: int, records: int, deadline: float) -> None:
        """Read until the server reports the end of the run."""
        with selectors.DefaultSelector() as selector:
            for descriptor in (output, records):
                os.set_blocking(descriptor, False)
                selector.register(descriptor, selectors.EVENT_READ)
            selector.register(self.control, selectors.EVENT_READ)
            ended = False
            while not ended:
                left = deadline - time.monotonic()
                if left <= 0:
                    self._kill(RunOutcome.TIMEOUT, f"still running after {self.request.limits.seconds:g} s")
                    deadline = float("inf")
                    continue
                for key, _ in selector.select(min(left, 1.0)):
                    if key.fileobj is self.control:
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
            report = self.control.recv(4096)
        except OSError:
            report = b""
        if not report:
            self._lost()
            return True
        fields = json.loads(report)
        status = os.waitstatus_to_exitcode(fields["status"])
        if not self.raw.detail:
            how = fields["reason"] or (f"killed by signal {-status}" if status < 0 else f"exit code {status}")
            self.raw.detail = f"the process ended without a record of how ({how})"
        return True

    def _lost(self) -> None:
        """The server died with the run: the script's doing. The next run starts a new one."""
        self.raw.detail = self.raw.detail or "the script killed the process that ran it"
        self.lost()

    def _kill(self, outcome: RunOutcome, detail: str) -> None:
        if self.killed:
            return
        self.killed = True
        self.raw.outcome, self.raw.detail = outcome, detail
        with contextlib.suppress(OSError):
            self.control.send(b"k")

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
