"""Starts the run server and runs scripts in it, and ends everything that they started."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from grader.evidence import RunOutcome, Site
from grader.run import sandbox
from grader.run.cache import cache_folder
from grader.run.errors import STUCK_FILE, innermost
from grader.run.exchange import Exchange, OnFence, RawRun, Request

_ROOT = Path(__file__).resolve().parents[2]
_START = "import sys; sys.path.append({root!r}); from grader.run.child import serve; serve({descriptor})"
_START_SECONDS = 300  # importing torch from a cold disk can take a minute


class ServerBroken(RuntimeError):
    """The run server could not be started; the grader's fault, not the learner's."""


class Server:
    """A process that has imported torch and forks once for every run; use as a context manager."""

    def __init__(self, visible: str | None, covered: Sequence[Path] = ()) -> None:
        """`visible`: the real GPUs to be seen, as CUDA_VISIBLE_DEVICES; "" for none, None for all.

        `covered`: folders that are empty for the scripts, besides the grader's cache.
        """
        self.visible = visible
        self.covered = [cache_folder(), *covered]
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
                sandbox.shut_off([sys.executable, "-I", "-B", "-c", start], self._coverable()),
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

    def _coverable(self) -> list[Path]:
        """The folders to cover, without those in which something lies that a run needs."""
        needed = [Path(p).resolve() for p in (sys.prefix, sys.base_prefix, _ROOT / "grader", self._home)]
        return [
            folder
            for folder in self.covered
            if not any(path.is_relative_to(folder.resolve()) for path in needed)
        ]

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
            if not sandbox.isolation():
                sandbox.sweep(self._home)
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
            assert self._control is not None
            raw = Exchange(self._control, request, folder, on_fence, lost=self.close).run()
            if raw.end is not None and raw.end.weights:
                raw.weights = _read(
                    folder / "weights.safetensors", int(request.limits.weights_megabytes * 1e6)
                )
            if raw.outcome is RunOutcome.TIMEOUT:
                raw.stopped_at = _stuck_at(folder)
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


def _stuck_at(folder: Path) -> Site | None:
    """Where the script was shortly before its time was up."""
    dump = _read(folder / STUCK_FILE, 100_000)
    place = innermost((dump or b"").decode(errors="replace"), folder)
    return Site(**place) if place else None


def _read(path: Path, most: int) -> bytes | None:
    """Read a regular file of at most `most` bytes; None for anything else."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        data = file.read(most + 1)
    return data if len(data) <= most else None
