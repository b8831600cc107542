"""The parent's evaluation: whatever weights come back, they are judged or refused with a reason."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import save

from grader.exercise import BrokenExercise, load_exercise
from grader.run.evaluate import Material, WeightsRefused


@pytest.fixture(scope="module")
def exercise(dataparallel):
    exercise = load_exercise(dataparallel)
    return exercise.model_copy(
        update={"accuracy_run": exercise.accuracy_run.model_copy(update={"data": "synthetic:60"})}
    )


@pytest.fixture(scope="module")
def material(exercise):
    return Material(exercise)


def initial(material):
    return material._data.initial_weights(material._network()).state_dict()


def test_weights_are_evaluated_on_both_splits(material):
    accuracy = material.accuracy(save(initial(material)))
    assert 0 <= accuracy.train <= 1 and 0 <= accuracy.validation <= 1


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda state: state.pop("conv1.bias"), "conv1.bias"),
        (lambda state: state.update(extra=torch.ones(1)), "extra"),
        (lambda state: state.update({"conv1.bias": torch.ones(7)}), r"shape \[7\] instead of \[48\]"),
    ],
)
def test_weights_of_another_network_are_refused(material, change, said):
    state = initial(material)
    change(state)
    with pytest.raises(WeightsRefused, match=said):
        material.accuracy(save(state))


def test_a_module_around_the_model_does_not_matter(material):
    state = {f"around.net.{name}": tensor for name, tensor in initial(material).items()}
    assert material.accuracy(save(state)) == material.accuracy(save(initial(material)))


@pytest.mark.parametrize(
    "forged", [b"", b"\x80\x04cposix\nsystem\n", b"\xff" * 64, (2**40).to_bytes(8, "little") + b"{}"]
)
def test_a_file_that_is_no_safetensors_is_refused(material, forged):
    with pytest.raises(WeightsRefused, match="cannot be read"):
        material.accuracy(forged)


def test_the_difference_is_measured_against_how_far_the_baseline_moved(material):
    start = initial(material)
    moved = {name: tensor + 1 for name, tensor in start.items()}
    half = {name: tensor + 0.5 for name, tensor in start.items()}
    assert material.difference(save(moved), save(moved)) == 0
    assert material.difference(save(start), save(moved)) == pytest.approx(1)
    assert material.difference(save(half), save(moved)) == pytest.approx(0.5)


def test_weights_that_are_no_numbers_classify_nothing_rightly_by_luck(material):
    state = {name: torch.full_like(tensor, float("nan")) for name, tensor in initial(material).items()}
    assert material.accuracy(save(state)).validation <= 0.5
    assert material.difference(save(state), save(initial(material))) == float("inf")


def test_every_image_is_known_by_its_split(material):
    assert sorted(set(material.known_samples.values())) == ["train", "validation"]
    assert list(material.known_samples.values()).count("train") == 60


def test_the_held_out_digits_are_known_too(dataparallel):
    known = Material(load_exercise(dataparallel)).known_samples
    assert set(known.values()) == {"train", "validation", "held-out"}


def test_the_data_that_is_written_holds_nothing_held_out(material, tmp_path):
    assert material.write(tmp_path) == f"folder:{tmp_path}"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["train.safetensors", "validation.safetensors"]


def test_data_that_cannot_be_had_is_a_fault_of_the_exercise(exercise):
    nonsense = exercise.accuracy_run.model_copy(update={"data": "mnits:here"})
    with pytest.raises(BrokenExercise, match="mnits:here"):
        Material(exercise.model_copy(update={"accuracy_run": nonsense}))


def test_the_graders_own_modules_are_not_shadowed_by_the_exercises(material):
    import sys

    assert "data" not in sys.modules and "baseline" not in sys.modules
