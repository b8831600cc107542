"""The parent's own look at a trained model: returned weights in the untouched network, held-out images."""

from __future__ import annotations

import functools
import importlib.util
import math
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from grader.evidence import Accuracy
from grader.exercise import SPECIFICATION, BrokenExercise, Exercise
from grader.located import Fault

_ROWS_AT_ONCE = 256


class WeightsRefused(ValueError):
    """The returned weights are not those of the exercise's network; the text says how."""


@contextmanager
def _beside(folder: Path) -> Iterator[None]:
    """Let the exercise's modules import each other, and forget them afterwards."""
    before = sys.modules.pop("data", None)
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        sys.modules.pop("data", None)
        if before is not None:
            sys.modules["data"] = before


class Material:
    """The exercise's data and network, loaded into the parent. Only the exercise's own files are imported."""

    def __init__(self, exercise: Exercise) -> None:
        with _beside(exercise.folder):
            self._data = _load(exercise.folder / "data.py")
            self._baseline = _load(exercise.folder / exercise.baseline)
        self._exercise = exercise
        source = exercise.accuracy_run.data
        try:
            self.train, self.validation, self.held_out = self._data.splits(source)
        except SystemExit as problem:  # how data.py tells a person that there is no such data
            fault = Fault(exercise.folder / SPECIFICATION, f"accuracy_run.data: {source}", str(problem))
            raise BrokenExercise("The exercise's data cannot be had.", [fault]) from None

    def write(self, folder: Path) -> str:
        """Write what the script may see to `folder`; return the EXERCISE_DATA that names it."""
        from safetensors.torch import save_file

        for images, name in ((self.train, "train"), (self.validation, "validation")):
            tensors = {"images": images.images.contiguous(), "targets": images.targets.contiguous()}
            save_file(tensors, folder / f"{name}.safetensors")
        return f"folder:{folder}"

    @functools.cached_property
    def known_samples(self) -> dict[int, str]:
        """CRC-32 of every image, and which split it belongs to: "held-out", "validation" or "train"."""
        known: dict[int, str] = {}
        splits = ((self.held_out, "held-out"), (self.validation, "validation"), (self.train, "train"))
        for images, name in splits:
            if images is None:
                continue
            known |= {zlib.crc32(row.tobytes()): name for row in images.images.flatten(1).numpy()}
        return known

    def accuracy(self, weights: bytes) -> Accuracy:
        """Evaluate safetensors weights; raises WeightsRefused."""
        model = self._network()
        _fill(model, weights)
        judged = self.held_out if self.held_out is not None else self.validation
        return Accuracy(train=_share_right(model, self.train), validation=_share_right(model, judged))

    def difference(self, weights: bytes, baseline: bytes) -> float:
        """Return ||w - b|| / ||b - initial|| over all parameters; raises WeightsRefused."""
        import torch

        ours, theirs, start = self._network(), self._network(), self._data.initial_weights(self._network())
        _fill(ours, baseline)
        _fill(theirs, weights)
        vectors = [
            torch.cat([parameter.detach().double().flatten() for parameter in model.parameters()])
            for model in (theirs, ours, start)
        ]
        moved = (vectors[1] - vectors[2]).norm().item()
        distance = (vectors[0] - vectors[1]).norm().item()
        return distance / max(moved, 1e-12) if math.isfinite(distance) else math.inf

    def _network(self) -> Any:
        return getattr(self._baseline, self._exercise.model)()


def _load(path: Path) -> ModuleType:
    specification = importlib.util.spec_from_file_location(path.stem, path)
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[path.stem] = module
    try:
        specification.loader.exec_module(module)
    finally:
        if path.stem != "data":  # the other modules of the exercise import it by this name
            del sys.modules[path.stem]
    return module


def _fill(model: Any, weights: bytes) -> None:
    import safetensors.torch
    import torch

    try:
        state = safetensors.torch.load(weights)
    except Exception as fault:  # whatever the library makes of a forged file
        raise WeightsRefused(f"the returned weights cannot be read ({type(fault).__name__})") from None
    wanted = model.state_dict()
    state = _without_prefix(state, set(wanted))
    if missing := sorted(set(wanted) ^ set(state)):
        raise WeightsRefused(f"the returned weights are of another network: {', '.join(missing[:4])}")
    for name, tensor in wanted.items():
        if tensor.shape != state[name].shape:
            shapes = f"{list(state[name].shape)} instead of {list(tensor.shape)}"
            raise WeightsRefused(f"the returned weights are of another network: {name} has shape {shapes}")
    with torch.no_grad():
        for name, tensor in wanted.items():
            tensor.copy_(state[name])


def _without_prefix(state: dict[str, Any], wanted: set[str]) -> dict[str, Any]:
    """Take off what a module of the script's own around the model puts before every name."""
    for name in state:
        prefix = name.removesuffix(next((f".{w}" for w in wanted if name.endswith(f".{w}")), name)) + "."
        if {prefix + w for w in wanted} == set(state):
            return {name.removeprefix(prefix): tensor for name, tensor in state.items()}
    return state


def _share_right(model: Any, images: Any) -> float:
    import torch

    model.eval()
    right = 0
    with torch.inference_mode():
        for first in range(0, len(images.targets), _ROWS_AT_ONCE):
            rows = slice(first, first + _ROWS_AT_ONCE)
            right += (model(images.images[rows]).argmax(1) == images.targets[rows]).sum().item()
    return right / len(images.targets)
