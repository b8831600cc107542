"""All runs of one grading, in order: the baseline's from the cache where possible, then the submission's."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

from grader.devices import Devices, parse_choice, resolve
from grader.evidence import Evidence, RunEvidence, RunOutcome, Runs, Timing
from grader.exercise import Exercise
from grader.run import cache, measure, nvml, sandbox, submission
from grader.run.assemble import assemble
from grader.run.evaluate import Material, WeightsRefused
from grader.run.exchange import RawRun, Request
from grader.run.launch import Server
from grader.run.protocol import Fence, printable

_PATIENCE = 6  # a submission may take so many times the baseline's time, and a minute at least
_PATIENCE_SECONDS = 60.0
_STEPS = 5
_BATCHES_WITH_VALUES = 3


class Progress(Protocol):
    """Told what is being done; `done` of `total` steps are finished."""

    def __call__(self, text: str, done: int, total: int) -> None: ...


def gather(
    exercise: Exercise,
    submitted: Path | None = None,
    gpus: str = "auto",
    progress: Progress | None = None,
    use_cache: bool = True,
    server: Server | None = None,
    in_turn: bool | None = None,
) -> Evidence:
    """Run what needs to be run and return the evidence.

    `server` is a run server to use (it stays open); by default one is started and closed again.
    `in_turn` times both scripts in turn on this process's clock, by default on real GPUs only.
    Raises BadDeviceChoice, NoSuchDevices, SubmissionMissing or ServerBroken; whatever the submission
    does is evidence, never an exception.
    """
    script, helpers = submission.files(exercise, submitted)
    devices, machine = resolve(parse_choice(gpus), exercise.devices.simulated, exercise.devices.minimum)
    with contextlib.suppress(OSError):
        cache.cache_folder().mkdir(parents=True, exist_ok=True)  # so that it can be covered
    with contextlib.ExitStack() as stack:
        if server is None:
            hidden = [exercise.solution.parent] if exercise.solution else []
            server = stack.enter_context(Server(visible_gpus(devices), hidden))
        server.start()  # imports torch while this process does the same
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="grade-data-")))
        grading = _Grading(exercise, devices, machine, server, folder, progress or (lambda *_: None))
        if in_turn is not None:
            grading.in_turn = in_turn
        return grading.evidence(script, helpers, str(submitted or script), use_cache)


class _Grading:
    def __init__(
        self,
        exercise: Exercise,
        devices: Devices,
        machine: str | None,
        server: Server,
        folder: Path,
        progress: Progress,
    ) -> None:
        self.exercise, self.devices, self.machine = exercise, devices, machine
        self.server, self.progress = server, progress
        self.in_turn = machine is None
        self.clock = measure.wall_clock if machine is None else measure.virtual_clock
        self.notes = [] if sandbox.isolation() else [sandbox.NOT_ISOLATED]
        self._done = 0
        with self._step("loading the data"):
            self.material = Material(exercise)
            self.accuracy_data = self.material.write(folder)

    @contextlib.contextmanager
    def _step(self, text: str) -> Iterator[None]:
        self.progress(text, self._done, _STEPS)
        yield
        self._done += 1
        self.progress(text, self._done, _STEPS)

    def evidence(self, script: Path, helpers: list[Path], name: str, use_cache: bool) -> Evidence:
        """Run the baseline, then the submission, and evaluate both; stop at the first that does not end."""
        known = self._baseline(use_cache)
        baseline, timing = known.runs, Timing()
        accuracy = speed = _not_run(baseline.accuracy, "the baseline")
        seconds = max(_PATIENCE_SECONDS, _PATIENCE * baseline.accuracy.wall_seconds)
        if _completed(baseline):
            with self._step(f"accuracy run of {printable(script.name)}"):
                accuracy = self._accuracy_run(script, helpers, seconds, known.weight_bytes)[0]
            speed = _not_run(accuracy, "the accuracy run")
        if _completed(baseline) and accuracy.outcome is RunOutcome.COMPLETED:
            with self._step(f"speed run of {printable(script.name)}"):
                baseline, speed, timing = self._timed(baseline, script, helpers, seconds)
        return Evidence(
            exercise=self.exercise.name,
            submission=name,
            devices=self.devices,
            baseline=baseline,
            submitted=Runs(accuracy=accuracy, speed=speed),
            timing=timing,
            notes=self.notes,
            known_samples=self.material.known_samples,
        )

    def _timed(
        self, baseline: Runs, script: Path, helpers: list[Path], seconds: float
    ) -> tuple[Runs, RunEvidence, Timing]:
        runner = self._run(script, helpers, "speed", seconds)
        if not self.in_turn:
            speed, ours = measure.simulated(runner, self.exercise.speed_run.epochs)
            if speed.outcome is RunOutcome.ERROR:
                baseline, speed, ours = self._timed_with_values(baseline, script, helpers, seconds)
            theirs = [epoch.seconds for epoch in baseline.speed.epochs if epoch.seconds is not None]
            return baseline, speed, measure.compare(theirs, ours)
        before = nvml.disturbances(self.devices.count, set())
        own = self._run(
            self.exercise.folder / self.exercise.baseline, [], "speed", self.exercise.limits.seconds
        )
        before_speed, speed, timing = measure.in_turn(own, runner, self.exercise.thresholds.saving)
        notes = list(dict.fromkeys([*before, *nvml.disturbances(self.devices.count, set())]))
        runs = Runs(accuracy=baseline.accuracy, speed=before_speed)
        return runs, speed, timing.model_copy(update={"notes": notes})

    def _timed_with_values(
        self, baseline: Runs, script: Path, helpers: list[Path], seconds: float
    ) -> tuple[Runs, RunEvidence, list[float]]:
        """Time both scripts with arithmetic, over fewer images: this one depends on values it reads.

        The virtual clock is the same with arithmetic and without, and so is the ratio of the times.
        """
        batch = max((epoch.largest_batch for epoch in baseline.speed.epochs), default=1)
        data, epochs = f"synthetic:{_BATCHES_WITH_VALUES * batch}", self.exercise.speed_run.epochs
        own = self._run(self.exercise.folder / self.exercise.baseline, [], "speed", seconds, data)
        theirs, _ = measure.simulated(own, epochs)
        speed, ours = measure.simulated(self._run(script, helpers, "speed", seconds, data, math=True), epochs)
        self.notes.append(
            "The script depends on values that it reads, so its epoch was timed with arithmetic, over "
            f"{_BATCHES_WITH_VALUES} batches only, and so was the baseline's."
        )
        return Runs(accuracy=baseline.accuracy, speed=theirs), speed, ours

    def _baseline(self, use_cache: bool) -> cache.Entry:
        machine = self.machine or f"real {self.devices.label}"
        machine += " in turn" * self.in_turn
        name = cache.key(self.exercise, machine, os.environ.get("OMP_NUM_THREADS", ""))
        known = cache.load(name) if use_cache else None
        if known is not None:
            self._done += 2
            self.progress("the baseline's runs are in the cache", self._done, _STEPS)
            return known
        script = self.exercise.folder / self.exercise.baseline
        seconds = self.exercise.limits.seconds
        with self._step("accuracy run of the baseline"):
            accuracy, weights = self._accuracy_run(script, [], seconds, b"")
        with self._step("speed run of the baseline"):
            speed = _not_run(accuracy, "")  # it is run in turn with the submission
            if not self.in_turn and accuracy.outcome is RunOutcome.COMPLETED:
                speed = measure.simulated(
                    self._run(script, [], "speed", seconds), self.exercise.speed_run.epochs
                )[0]
        runs = Runs(accuracy=accuracy, speed=speed)
        entry = cache.entry(runs, weights)
        if accuracy.outcome is RunOutcome.COMPLETED and speed.outcome is RunOutcome.COMPLETED:
            cache.store(name, entry)
        return entry

    def _run(
        self,
        script: Path,
        helpers: list[Path],
        run: str,
        seconds: float,
        data: str = "",
        math: bool | None = None,
    ) -> measure.Runner:
        exercise = self.exercise
        request = Request(
            script=script,
            extra=[*helpers, exercise.folder / "data.py"],
            run=run,
            machine=self.machine,
            data=data or (self.accuracy_data if run == "accuracy" else exercise.speed_run.data),
            math=math,
            limits=exercise.limits.model_copy(update={"seconds": min(seconds, exercise.limits.seconds)}),
        )

        def runner(on_fence: Callable[[Fence], bool]) -> RawRun:
            return self.server.run(request, on_fence)

        return runner

    def _accuracy_run(
        self, script: Path, helpers: list[Path], seconds: float, baseline_weights: bytes
    ) -> tuple[RunEvidence, bytes]:
        """Run a script to its last epoch and evaluate the weights that come back; they are returned, too."""
        watch = measure.Stopwatch(self.clock, warm_up=0, wanted=0)
        raw = self._run(script, helpers, "accuracy", seconds)(watch)
        evidence = assemble(raw, watch.seconds)
        if raw.weights is None:
            return evidence, b""
        try:
            found: dict[str, object] = {"accuracy": self.material.accuracy(raw.weights)}
            if baseline_weights:
                found["weights_difference"] = self.material.difference(raw.weights, baseline_weights)
        except WeightsRefused as refusal:
            found = {"detail": str(refusal)}
        return evidence.model_copy(update=found), raw.weights


def visible_gpus(devices: Devices) -> str | None:
    """Return CUDA_VISIBLE_DEVICES for a run: no real GPU under a simulation, else the first `count`."""
    if devices.simulated:
        return ""
    known = os.environ.get("CUDA_VISIBLE_DEVICES")
    ids = known.split(",") if known else [str(index) for index in range(devices.count)]
    return ",".join(ids[: devices.count])


def _completed(runs: Runs) -> bool:
    return runs.accuracy.outcome is runs.speed.outcome is RunOutcome.COMPLETED


def _not_run(other: RunEvidence, name: str) -> RunEvidence:
    """Stands for a run that was not made because another, `name`, did not end well."""
    detail = f"not run, since {name} did not complete" if name else ""
    return RunEvidence(outcome=other.outcome, detail=detail)
