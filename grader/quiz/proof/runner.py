"""Runs programs on simulated GPUs, apart from this process, and says how each of them ended."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType

from pydantic import BaseModel, ConfigDict, ValidationError

from grader.quiz.proof.server import OUTPUT_BYTES
from grader.run import sandbox

_ROOT = Path(__file__).resolve().parents[3]
_START = "import sys; sys.path.append({root!r}); from grader.quiz.proof.server import serve; serve()"


class Raised(BaseModel):
    """The exception that ended a program."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: str  # as torch.OutOfMemoryError
    message: str
    simulated: bool  # raised by the simulation in CUDA's stead, so that the text is only repeated


class _Ended(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    raised: Raised | None


class Outcome(BaseModel):
    """How a program ended. `problem` says why there is nothing to compare, where there is nothing."""

    printed: str = ""
    raised: Raised | None = None
    problem: str = ""
    seconds: float = 0.0


class Runner:
    """A server that forks for each program; use as a context manager."""

    def __init__(self) -> None:
        self.torch = ""
        self._server: subprocess.Popen[str] | None = None
        self._home = ""

    def __enter__(self) -> Runner:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def run(self, program: str, gpus: str, processes: int = 1, seconds: float = 60) -> Outcome:
        """Run a program to its end, or to its limits."""
        self._start()
        folder = Path(tempfile.mkdtemp(prefix="run-", dir=self._home))
        (folder / "program.py").write_text(program, encoding="utf-8")
        request = {"folder": str(folder), "gpus": gpus, "processes": processes, "seconds": seconds}
        assert self._server is not None and self._server.stdin is not None and self._server.stdout is not None
        try:
            self._server.stdin.write(json.dumps(request) + "\n")
            self._server.stdin.flush()
            answer = json.loads(self._server.stdout.readline())
        except (OSError, ValueError):
            self.close()
            return Outcome(problem="the program ended the process that ran it")
        outcome = _outcome(folder, answer, processes, seconds)
        shutil.rmtree(folder, ignore_errors=True)
        return outcome

    def close(self) -> None:
        """End the server and all that it started."""
        if self._server is not None:
            self._server.kill()
            self._server.wait()
            self._server = None
        if self._home:
            if not sandbox.isolation():
                sandbox.sweep(self._home)
            shutil.rmtree(self._home, ignore_errors=True)
            self._home = ""

    def _start(self) -> None:
        if self._server is not None:
            return
        self._home = tempfile.mkdtemp(prefix="quiz-")
        command = sandbox.shut_off([sys.executable, "-I", "-B", "-c", _START.format(root=str(_ROOT))], [])
        environment = sandbox.environment("", self._home) | {"OMP_NUM_THREADS": "1"}
        self._server = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True, cwd=self._home, start_new_session=True,
        )  # fmt: skip
        assert self._server.stdout is not None
        self.torch = json.loads(self._server.stdout.readline())["torch"]


def _outcome(folder: Path, answer: dict, processes: int, seconds: float) -> Outcome:
    took = answer["seconds"]
    if answer["timed_out"]:
        return Outcome(problem=f"still running after {seconds:g} s", seconds=took)
    printed, raised = "", None
    for rank in range(processes):
        try:
            ended = _Ended.model_validate_json((folder / f"ended-{rank}.json").read_bytes()[:100_000])
            said = (folder / f"printed-{rank}.txt").read_bytes()
        except (OSError, ValidationError):
            if raised is not None:
                break  # torchrun ends the others once one has failed
            return Outcome(problem=f"its process ended early (exit code {answer['status']})", seconds=took)
        if len(said) > OUTPUT_BYTES:
            return Outcome(problem=f"it printed more than {OUTPUT_BYTES // 1000} kB", seconds=took)
        if said.strip() and printed.strip():
            return Outcome(problem="two ranks printed, in no fixed order: print on one", seconds=took)
        printed += said.decode(errors="replace")
        raised = raised or ended.raised
    return Outcome(printed=printed, raised=raised, seconds=took)
