"""What an exception is explained by, shown on the errors that people really get."""

from __future__ import annotations

from pathlib import Path

import pytest

from grader.explain import Entry, catalogue, cause, explain

REPLICA = """Caught RuntimeError in replica 1 on device 1.
Original Traceback (most recent call last):
  File "torch/nn/parallel/parallel_apply.py", line 97, in _worker
    output = module(*input, **kwargs)
             ^^^^^^^^^^^^^^^^^^^^^^^^
  File "train.py", line 31, in forward
    return x + self.offset
RuntimeError: Expected all tensors to be on the same device, but found at least two devices, \
cuda:1 and cuda:0!
"""


@pytest.mark.parametrize("entry", catalogue(), ids=lambda entry: entry.id)
def test_each_entry_explains_its_own_example(entry: Entry) -> None:
    found = explain(entry.example.type, entry.example.message)
    assert found is not None
    assert found.id == entry.id
    assert "{" not in found.explanation + found.look_at
    assert found.explanation.rstrip().endswith(".")
    assert found.look_at.rstrip().endswith(".")


def test_the_catalogue_is_wide_and_each_id_stands_once() -> None:
    ids = [entry.id for entry in catalogue()]
    assert len(ids) >= 25
    assert len(set(ids)) == len(ids)


def test_a_replica_s_error_is_explained_by_its_cause_and_says_which_gpu() -> None:
    found = explain("RuntimeError", REPLICA)
    assert found is not None
    assert found.id == "two-gpus-meet"
    assert found.explanation.startswith("This happened in the copy of the model on GPU 1.")
    assert "cuda:1 and cuda:0" in found.explanation
    assert "register_buffer" in found.look_at


def test_wrapping_inside_of_wrapping_is_taken_off_layer_by_layer() -> None:
    outer = "Caught RuntimeError in replica 0 on device 0.\nOriginal Traceback (most recent call last):\n"
    nested = outer + '  File "a.py", line 1, in f\n    g()\nRuntimeError: ' + REPLICA
    type_name, message, where = cause("RuntimeError", nested)
    assert type_name == "RuntimeError"
    assert message.endswith("cuda:1 and cuda:0!")
    assert where == "in replica 1 on device 1"


def test_of_a_chain_of_exceptions_the_last_is_the_cause() -> None:
    text = (
        "Caught ValueError in DataLoader worker process 0.\nOriginal Traceback (most recent call last):\n"
        '  File "a.py", line 1, in f\nKeyError: 3\n\n'
        "During handling of the above exception, another exception occurred:\n\n"
        "Traceback (most recent call last):\n"
        '  File "a.py", line 3, in f\nValueError: first line\n  second line\n'
    )
    assert cause("ValueError", text) == (
        "ValueError",
        "first line\n  second line",
        "in DataLoader worker process 0",
    )


@pytest.mark.parametrize(
    ("type_name", "message", "phrase"),
    [
        (
            "RuntimeError",
            "module must have its parameters and buffers on device cuda:2 (device_ids[0]) but found one of"
            " them on device: cuda:0",
            "The model is on cuda:0, but the first entry of device_ids is cuda:2",
        ),
        (
            "torch.OutOfMemoryError",
            "CUDA out of memory. Tried to allocate 512.00 MiB. GPU 1 has a total capacity of 14.56 GiB",
            "no room for another 512.00 MiB",
        ),
        ("TypeError", "'int' object is not iterable", "returns a plain int"),
        ("AttributeError", "'DataParallel' object has no attribute 'l'", "l belongs to the model"),
        (
            "RuntimeError",
            "Caught RuntimeError in replica 0 on device 0.\nOriginal Traceback (most recent call last):\n"
            '  File "train.py", line 9, in forward\nRuntimeError: Input type (double) and bias type (float)'
            " should be the same\n",
            "one precision (double)",
        ),
    ],
)
def test_the_explanation_speaks_of_the_learner_s_own_values(
    type_name: str, message: str, phrase: str
) -> None:
    found = explain(type_name, message)
    assert found is not None
    assert phrase in found.explanation


@pytest.mark.parametrize("message", ["", "something nobody has seen", "Caught X in replica"])
def test_an_unknown_error_has_no_explanation(message: str) -> None:
    assert explain("CustomError", message) is None


@pytest.mark.parametrize(
    ("change", "phrase"),
    [("message: (", "regular expression"), ("look_at: See {nothing}.", "not a group of")],
)
def test_a_mistake_in_a_catalogue_is_named(tmp_path: Path, change: str, phrase: str) -> None:
    lines = {"message": "message: x", "look_at": "look_at: See."}
    lines[change.split(":")[0]] = change
    file = tmp_path / "catalogue.yaml"
    file.write_text(
        f"- id: a\n  {lines['message']}\n  explanation: What.\n  {lines['look_at']}\n"
        "  example: {type: A, message: x}\n"
    )
    with pytest.raises(ValueError, match=phrase):
        catalogue(file)
