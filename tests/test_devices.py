"""`--gpus`: what it understands, and what a host without GPUs answers."""

from __future__ import annotations

import pytest

from grader import devices
from grader.devices import BadDeviceChoice, DeviceKind, NoSuchDevices, parse_choice, resolve


@pytest.mark.parametrize(
    ("text", "count", "profile"),
    [
        ("auto", 2, "T4"),
        ("sim", 2, "T4"),
        ("sim:4", 4, "T4"),
        ("sim:V100", 2, "V100"),
        ("sim:4xV100", 4, "V100"),
    ],
)
def test_simulated_choices(monkeypatch, text, count, profile):
    monkeypatch.setattr(devices, "real_gpus", list)
    found, machine = resolve(parse_choice(text), "2xT4", 2)
    assert (found.kind, found.count, found.profile) == (DeviceKind.SIMULATED, count, profile)
    assert machine == f"{count}x{profile}"
    assert found.label == f"{count} simulated {profile}"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "gpu",
        "auto:2",
        "real:0",
        "real:x",
        "sim:",
        "sim:0",
        "sim:2xT99",
        "sim:2x",
        "sim:-1xT4",
        "sim:999xT4",
    ],
)
def test_nonsense_is_refused_with_what_would_be_right(text):
    with pytest.raises(BadDeviceChoice) as refusal:
        parse_choice(text)
    assert "--gpus" in str(refusal.value)


def test_one_simulated_gpu_is_too_few():
    with pytest.raises(BadDeviceChoice, match="at least 2"):
        resolve(parse_choice("sim:1xT4"), "2xT4", 2)


@pytest.mark.parametrize(
    ("names", "has"), [([], "no GPU that torch can use"), (["NVIDIA H200"], "1 GPU (NVIDIA H200)")]
)
def test_real_gpus_that_are_not_there(monkeypatch, names, has):
    monkeypatch.setattr(devices, "real_gpus", lambda: names)
    with pytest.raises(NoSuchDevices) as refusal:
        resolve(parse_choice("real"), "2xT4", 2)
    assert has in str(refusal.value) and "--gpus sim" in str(refusal.value)


def test_one_real_gpu_is_exercised_and_not_graded(monkeypatch):
    monkeypatch.setattr(devices, "real_gpus", lambda: ["NVIDIA H200"])
    found, machine = resolve(parse_choice("real:1"), "2xT4", 2)
    assert machine is None and found.count == 1 and not found.graded


def test_auto_takes_real_gpus_where_there_are_enough(monkeypatch):
    monkeypatch.setattr(devices, "real_gpus", lambda: ["NVIDIA H200"] * 3)
    found, machine = resolve(parse_choice("auto"), "2xT4", 2)
    assert machine is None and found.count == 3 and found.graded
    assert found.label == "3 x NVIDIA H200"
