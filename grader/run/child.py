"""The run server: imports torch once, then forks one child for every run of a script.

Started by `launch.py` as a process of its own. It never runs learner code itself: each run is a fork
with its own session, environment, limits and pipes. Between two runs it kills whatever is left.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
import time
from typing import Any

from grader.run import sandbox

KILL = b"k"  # the parent's word to end the run in progress
_COUNT_EVERY = 0.1  # seconds between two counts of a run's processes
ALONE = os.getpid() == 1  # first process of its own PID namespace: everything else here is a run's


def serve(descriptor: int) -> None:
    """Answer requests on the control socket until it closes."""
    control = socket.socket(fileno=descriptor)
    _adopt_orphans()
    import safetensors.torch  # noqa: F401
    import torch._dynamo  # noqa: F401  (what the forks share; every optimizer imports it)

    import grader.run.program  # noqa: F401
    from grader.simgpu import simulate  # noqa: F401  (the first name brings in the whole simulation)

    with contextlib.suppress(OSError):
        _say(control, ready=True)
        while True:
            message, descriptors, _, _ = socket.recv_fds(control, 1 << 20, 3)
            if not message:
                break
            # A word to kill may have crossed with the end of the run that it was meant for.
            message = message.lstrip(KILL)
            if message:
                _run(control, json.loads(message), descriptors)
    _kill_the_rest()
    os._exit(0)


def _say(control: socket.socket, **fields: Any) -> None:
    control.sendall(json.dumps(fields).encode() + b"\n")


def _run(control: socket.socket, request: dict[str, Any], descriptors: list[int]) -> None:
    """Fork for one run, wait for its end (or for the parent's word to kill it), report its status."""
    pid = os.fork()
    if pid == 0:
        control.close()
        _become_the_script(request, descriptors)
    for descriptor in descriptors:
        os.close(descriptor)
    status, reason = _wait(control, pid, request["tasks"])
    _say(control, status=status, reason=reason)


def _become_the_script(request: dict[str, Any], descriptors: list[int]) -> None:
    """Run the script in this process; never returns."""
    os.setsid()
    sandbox.end_with_parent()
    output, records, replies = descriptors
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    for descriptor in (null, output):
        os.close(descriptor)
    os.chdir(request["folder"])
    os.environ.update(request["environment"])
    from grader.run.program import run_script

    run_script(request, records, replies)
    os._exit(0)


def _wait(control: socket.socket, pid: int, tasks: int) -> tuple[int, str]:
    """Return the exit status of `pid`, and why it was killed when it breeds or the parent says so."""
    control.setblocking(False)
    pause, counted = 0.0005, time.monotonic()
    try:
        while True:
            statuses = _reap()
            if pid in statuses:
                _kill_the_rest(pid)
                return statuses[pid], ""
            with contextlib.suppress(BlockingIOError):
                control.recv(1)  # any word, or the parent's end, means: kill
                return _kill_the_rest(pid).get(pid, signal.SIGKILL), "told to end"
            if time.monotonic() - counted > _COUNT_EVERY:
                counted = time.monotonic()
                if len(_descendants()) > tasks:
                    said = f"it started more than {tasks} processes"
                    return _kill_the_rest(pid).get(pid, signal.SIGKILL), said
            time.sleep(pause)
            pause = min(pause * 1.5, 0.02)
    finally:
        control.setblocking(True)


def _reap() -> dict[int, int]:
    """Collect the exit statuses of children that have ended."""
    statuses: dict[int, int] = {}
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            statuses[pid] = status
    return statuses


def _adopt_orphans() -> None:
    """Become the parent of what a run leaves behind (PR_SET_CHILD_SUBREAPER, prctl(2))."""
    if sys.platform == "linux" and not ALONE:
        import ctypes

        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)


def _descendants() -> list[int]:
    """Return the process ids below this one, zombies left out, read from /proc."""
    parents: dict[int, int] = {}
    for name in os.listdir("/proc") if os.path.isdir("/proc") else []:
        if name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                with open(f"/proc/{name}/stat") as stat:
                    state, parent = stat.read().rpartition(")")[2].split()[:2]
                if state != "Z":
                    parents[int(name)] = int(parent)
    found: list[int] = []
    frontier = {os.getpid()}
    while frontier:
        frontier = {child for child, parent in parents.items() if parent in frontier}
        found += frontier
    return found


def _kill_the_rest(pid: int = 0) -> dict[int, int]:
    """Kill every process of the run, also those that left its session; return their statuses."""
    statuses: dict[int, int] = {}
    for _ in range(200):
        if ALONE:
            targets = [-1]
        else:
            targets = _descendants()
            if pid and pid not in statuses:
                targets.append(-pid)
        for target in targets:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(target, signal.SIGKILL)
        statuses |= _reap()
        if not _descendants():
            break
        time.sleep(0.005)
    return statuses
