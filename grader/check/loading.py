"""From an exercise's `checks.py` to checks that fit its specification."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType

from grader.check.vocabulary import Check, marked
from grader.exercise import BrokenExercise, Exercise, Fault


def load_module(path: Path) -> ModuleType:
    """Import a `checks.py` by its path alone: no folder is put on `sys.path`, none is searched.

    Raises whatever the file raises.
    """
    name = f"grader_checks_{hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:16]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def load_checks(exercise: Exercise) -> tuple[ModuleType, list[Check]]:
    """Return the exercise's checks module and its checks, in the order in which they run.

    Raises `BrokenExercise`, with every fault at once, where the module cannot be imported or its
    checks do not fit each other or the specification.
    """
    path = exercise.folder / exercise.checks
    try:
        module = load_module(path)
    except Exception as problem:  # whatever an instructor's file may raise
        fault = Fault(
            path, f"{type(problem).__name__}: {problem}", "a file that imports", *_place(problem, path)
        )
        raise BrokenExercise(f"The checks of {exercise.name} cannot be loaded.", [fault]) from problem
    checks = [found for function in vars(module).values() if (found := marked(function))]
    faults = _faults(path, checks, exercise)
    if faults:
        raise BrokenExercise(f"The checks of {exercise.name} do not fit together.", faults)
    return module, checks


def _faults(path: Path, checks: list[Check], exercise: Exercise) -> list[Fault]:
    faults = []
    if not checks:
        faults.append(Fault(path, "no check", "at least one function decorated with `@check(...)`"))
    above: list[str] = []
    for item in checks:
        if item.id in above:
            faults.append(Fault(path, f"a second check `{item.id}`", "an id that is used once", item.line, 1))
        if item.id not in exercise.points:
            expected = f"`{item.id}: POINTS` under `points` in exercise.yaml"
            faults.append(Fault(path, f"no points for the check `{item.id}`", expected, item.line, 1))
        for needed in item.depends_on:
            if needed not in above:
                expected = f"the id of a check above it: {', '.join(above) or 'there is none'}"
                found = f"`{item.id}` depends on `{needed}`"
                faults.append(Fault(path, found, expected, item.line, 1))
        above.append(item.id)
    for unused in exercise.points.keys() - set(above):
        faults.append(Fault(path, f"no check `{unused}`", "a check for every id under `points`"))
    return faults


def _place(problem: Exception, path: Path) -> tuple[int | None, int | None]:
    """The line and column of the file that raised, as far as they are known."""
    if isinstance(problem, SyntaxError) and problem.filename == str(path):
        return problem.lineno, problem.offset
    lines = [f.lineno for f in traceback.extract_tb(problem.__traceback__) if f.filename == str(path)]
    return (lines[-1], 1) if lines and lines[-1] is not None else (None, None)
