"""The process that proofs run in: imports torch once, then forks for every program."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from grader.run import sandbox

MEMORY_GIGABYTES = 4
OUTPUT_BYTES = 200_000


def serve() -> None:
    """Answer requests, one JSON a line on standard input, until it ends."""
    import torch
    import torch._dynamo  # noqa: F401  (every optimizer imports it)

    from grader.simgpu import simulate  # noqa: F401  (the first name brings in the whole simulation)

    torch.set_num_threads(1)
    _adopt_orphans()
    print(json.dumps({"torch": torch.__version__.split("+")[0]}), flush=True)
    for line in sys.stdin:
        print(json.dumps(_answer(json.loads(line))), flush=True)


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    started = time.monotonic()
    pid = os.fork()
    if pid == 0:
        try:
            _become(request)
        finally:
            os._exit(70)
    ended, status = 0, 0
    deadline = started + request["seconds"]
    pause = 0.002
    while not ended and time.monotonic() < deadline:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if not ended:
            time.sleep(pause)
            pause = min(pause * 1.5, 0.02)
    timed_out = not ended
    _end_all(pid)
    if not ended:
        ended, status = os.waitpid(pid, 0)
    _reap()
    return {"timed_out": timed_out, "status": os.waitstatus_to_exitcode(status),
            "seconds": round(time.monotonic() - started, 3)}  # fmt: skip


def _become(request: dict[str, Any]) -> None:
    import resource

    os.setsid()
    sandbox.end_with_parent()
    folder = Path(request["folder"])
    os.chdir(folder)
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    os.environ.update(HOME=str(folder), TMPDIR=str(folder))
    sandbox.limit_memory(MEMORY_GIGABYTES)
    resource.setrlimit(resource.RLIMIT_FSIZE, (OUTPUT_BYTES * 50, OUTPUT_BYTES * 50))
    if request["processes"] > 1:
        from grader.simgpu.settings import FIRST, Settings

        settings = Settings(request["gpus"], quiet=True)
        root = str(Path(__file__).resolve().parents[3])
        variables = settings.variables({**os.environ, "PYTHONPATH": root})
        program = str(Path(__file__).with_name("program.py"))
        line = [sys.executable, "-m", "torch.distributed.run", "--standalone",
                f"--nproc-per-node={request['processes']}", program, str(folder)]  # fmt: skip
        os.environ.pop("CUDA_VISIBLE_DEVICES", None)  # empty, it would hide the simulated GPUs, too
        os.execve(sys.executable, line, {**os.environ, **variables, FIRST: "1"})
    from grader.quiz.proof.program import execute
    from grader.simgpu import simulate, visible

    with simulate(request["gpus"]) as machine:
        # What hid real GPUs is not the program's; what the program says holds, as under `simgpu run`.
        visible.hide(None, os.environ.get(visible.VARIABLE), partial(_see, machine))
        execute(folder, 0)


def _see(machine: Any, said: str | None) -> None:
    """The program says this in CUDA_VISIBLE_DEVICES; as with CUDA, until CUDA is initialized."""
    import torch

    from grader.simgpu import visible

    if not torch.cuda.is_initialized():
        machine.restrict(visible.numbers(said, machine.clocks.count))


def _end_all(pid: int) -> None:
    for target in [-1] if os.getpid() == 1 else [-pid]:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(target, signal.SIGKILL)


def _reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def _adopt_orphans() -> None:
    if sys.platform == "linux" and os.getpid() != 1:
        import ctypes

        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER


if __name__ == "__main__":
    serve()
