"""The code for real GPUs, on hosts that have none: over simulated GPUs, and on the CPU."""

from __future__ import annotations

import sys
import types

import pytest

from grader.evidence import RunOutcome
from grader.exercise import load_exercise
from grader.run import nvml
from grader.run.exchange import Request
from grader.run.grading import gather
from grader.run.measure import EPOCHS_WANTED

from .conftest import DATA, LIMITS, LOOP, PREAMBLE


@pytest.fixture
def small(dataparallel, tmp_path, monkeypatch):
    """The exercise with little data, so that arithmetic takes no time."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    exercise = load_exercise(dataparallel)
    speed = exercise.speed_run.model_copy(update={"data": "synthetic:1024"})
    accuracy = exercise.accuracy_run.model_copy(update={"data": "synthetic:64"})
    return exercise.model_copy(update={"speed_run": speed, "accuracy_run": accuracy})


def test_both_scripts_are_timed_in_turn_on_the_parents_clock(small, server):
    steps = []
    evidence = gather(
        small,
        small.solution,
        "sim",
        lambda text, done, total: steps.append(text),
        server=server,
        in_turn=True,
    )
    timing = evidence.timing
    assert len(timing.baseline) >= EPOCHS_WANTED and len(timing.submission) >= EPOCHS_WANTED
    assert timing.confidence[0] <= timing.saving <= timing.confidence[1]
    assert evidence.baseline.speed.outcome is evidence.submitted.speed.outcome is RunOutcome.COMPLETED
    assert all(seconds > 0 for seconds in timing.baseline)
    assert any("speed run" in text for text in steps)


def test_a_run_without_a_simulated_machine_is_observed_all_the_same(server, tmp_path):
    script = tmp_path / "train.py"
    text = f"{PREAMBLE}EPOCHS = 1\nmodel = nn.DataParallel(initial_weights(Net()))\n{LOOP}"
    script.write_text(text.replace(".cuda()", ""))
    fences = []
    raw = server.run(
        Request(script, [DATA], "accuracy", None, "synthetic:80", LIMITS),
        lambda fence: not fences.append(fence),
    )
    assert raw.outcome is RunOutcome.COMPLETED
    assert [fence.edge for fence in fences] == ["begin", "end"]
    assert fences[0].virtual is None
    steps = [record.step for record in raw.records if record.record == "step"]
    assert [step.rows for step in steps] == [32, 32, 16]
    assert {device for step in steps for f in step.forwards for device in f.rows_per_device} == {"cpu"}
    assert len(steps[0].samples) == 32 and raw.weights


class Driver(types.ModuleType):
    """A stand-in for NVML with two GPUs, the second of them busy and hot."""

    class NVMLError(Exception):
        pass

    def __getattr__(self, name):
        return {
            "nvmlInit": lambda: None,
            "nvmlShutdown": lambda: None,
            "nvmlDeviceGetCount": lambda: 2,
            "nvmlDeviceGetHandleByIndex": lambda index: index,
            "nvmlDeviceGetName": lambda handle: f"GPU {handle}",
            "nvmlDeviceGetComputeRunningProcesses": lambda handle: [types.SimpleNamespace(pid=77)] * handle,
            "nvmlDeviceGetCurrentClocksEventReasons": lambda handle: 0x40 * handle,
        }[name]


def test_the_drivers_word_on_the_gpus(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", Driver("pynvml"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert nvml.names() == ["GPU 0", "GPU 1"]
    busy, hot = nvml.disturbances(2, own=set())
    assert "process 77" in busy and "cuda:1" in busy
    assert "thermal limit (hardware)" in hot
    assert nvml.disturbances(2, own={77}) == [hot]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert nvml.names() == ["GPU 1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert nvml.count() == 0


def test_a_host_without_a_driver_has_no_gpus(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert nvml.count() == 0 and nvml.disturbances(2, set()) == []


def test_a_script_that_depends_on_values_is_timed_with_arithmetic(small, server, tmp_path):
    guard = "        if loss.item() <= 0:\n            raise RuntimeError('no loss is zero')\n"
    script = tmp_path / "guarded.py"
    text = small.solution.read_text()
    script.write_text(text.replace("        loss.backward()\n", f"{guard}        loss.backward()\n"))
    evidence = gather(small, script, "sim", server=server)
    assert evidence.submitted.speed.outcome is RunOutcome.COMPLETED
    assert evidence.timing.saving > 0.4
    assert "with arithmetic" in evidence.notes[-1]
    assert len(evidence.submitted.speed.steps) == len(evidence.baseline.speed.steps) == 3


def test_a_script_that_is_broken_in_the_speed_run_alone_stays_broken(small, server, tmp_path):
    script = tmp_path / "broken.py"
    text = small.solution.read_text()
    script.write_text(
        text.replace("        loss.backward()\n", "        len(loader.dataset) < 100 or 1 / 0\n")
    )
    evidence = gather(small, script, "sim", server=server)
    assert evidence.submitted.speed.error.type == "ZeroDivisionError"
