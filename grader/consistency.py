"""What `exercise.yaml` says, held against the files around it: a fault for all that does not fit.

The Python files are parsed, never run.
"""

from __future__ import annotations

import ast
import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from grader.located import Document, Fault

DATA = "data.py"  # imported by the learner's script and by the baseline alike


def blame_surroundings(document: Document, defaults: Mapping[str, Any]) -> None:
    """Add to the document's faults what does not fit the exercise's folder.

    `defaults` holds the values of the keys that the file leaves out. A value of the wrong type has
    its fault already and is passed over.
    """
    folder = document.file.parent
    for key in ("script", "baseline", "checks"):
        name = document.at((key,), defaults[key])
        if isinstance(name, str) and not (folder / name).is_file():
            document.blame((key,), f"no file {name} in {folder}", _nearest_file(name, folder))
    if not (folder / DATA).is_file():
        expected = f"{DATA}, which the scripts take their data from"
        document.blame_place(None, f"no file {DATA} in {folder}", expected)
    solution = document.at(("solution",))
    if isinstance(solution, str) and not (folder / solution).is_file():
        expected = "the path of the solution's script, or no `solution` at all"
        document.blame(("solution",), f"no file {solution}, seen from {folder}", expected)
    _blame_model(document, folder, defaults)
    _blame_points(document, folder, defaults)
    _blame_devices(document, defaults)


def _nearest_file(name: str, folder: Path) -> str:
    near = difflib.get_close_matches(name, [path.name for path in folder.glob("*.py")], n=1)
    return f"{near[0]}, which is there, or the missing file" if near else "the name of a file that is there"


def _blame_model(document: Document, folder: Path, defaults: Mapping[str, Any]) -> None:
    name, baseline = (document.at((key,), defaults[key]) for key in ("model", "baseline"))
    tree = _parse(document, folder, baseline)
    if tree is None or not isinstance(name, str):
        return
    classes = [node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    if name not in classes:
        expected = f"the class that {baseline} trains"
        known = f": {' or '.join(classes)}" if classes else ""
        document.blame(("model",), f"no class {name} in {baseline}", expected + known)


def _blame_points(document: Document, folder: Path, defaults: Mapping[str, Any]) -> None:
    points, checks = document.at(("points",)), document.at(("checks",), defaults["checks"])
    tree = _parse(document, folder, checks)
    if tree is None or not isinstance(points, dict):
        return
    known = check_ids(tree)
    for check in points:
        if check not in known:
            near = difflib.get_close_matches(check, known, n=1)
            expected = f"`{near[0]}`?" if near else f"the id of a check in {checks}: {', '.join(known)}"
            document.blame(("points", check), f"points for the unknown check `{check}`", expected, key=True)
    missing = [check for check in known if check not in points]
    for check in missing:
        expected = f"`{check}: POINTS`, since {checks} has this check"
        document.blame(("points", check), f"no points for the check `{check}`", expected, key=True)
    numbers = [value for value in points.values() if isinstance(value, int | float)]
    if len(numbers) == len(points) and sum(numbers) == 0:
        document.blame(("points",), "no points at all", "points above 0 for at least one check", key=True)


def check_ids(tree: ast.Module) -> list[str]:
    """Return the ids of the checks that a module defines, in its order.

    A check is a function decorated with `check("ID", ...)` or `check(id="ID", ...)`.
    """
    ids = []
    for node in tree.body:
        for call in node.decorator_list if isinstance(node, ast.FunctionDef) else ():
            match call:
                case ast.Call(func=ast.Name(id="check") | ast.Attribute(attr="check")):
                    first = call.args[:1] or [word.value for word in call.keywords if word.arg == "id"]
                    ids += [
                        a.value for a in first if isinstance(a, ast.Constant) and isinstance(a.value, str)
                    ]
    return ids


def _blame_devices(document: Document, defaults: Mapping[str, Any]) -> None:
    spec = document.at(("devices", "simulated"), defaults["devices"].simulated)
    minimum = document.at(("devices", "minimum"), defaults["devices"].minimum)
    if not isinstance(spec, str) or not spec.strip():
        return
    from grader.simgpu import profiles  # here, since the simulation is slower to import than all of this

    try:
        count = profiles.load(spec).count
    except profiles.BadProfile as problem:
        document.blame(("devices", "simulated"), f"{spec!r}: {problem}", "COUNTxPROFILE, for example 2xT4")
        return
    if isinstance(minimum, int) and count < minimum:
        found = f"{spec}, {count} GPU{'s' * (count != 1)} where `minimum` is {minimum}"
        document.blame(("devices", "simulated"), found, f"at least {minimum} simulated GPUs: {minimum}x...")


def _parse(document: Document, folder: Path, name: Any) -> ast.Module | None:
    """Parse a Python file of the exercise; a syntax error becomes a fault of that file."""
    file = folder / name if isinstance(name, str) else None
    if file is None or not file.is_file():
        return None
    try:
        text = file.read_text(encoding="utf-8")
        return ast.parse(text)
    except UnicodeDecodeError:
        document.faults.append(Fault(file, "bytes that are not UTF-8", "a Python file in UTF-8"))
    except SyntaxError as problem:
        quoted = (problem.text or "").rstrip("\n")
        found = f"a syntax error: {problem.msg}"
        document.faults.append(Fault(file, found, "valid Python", problem.lineno, problem.offset, quoted))
    return None
