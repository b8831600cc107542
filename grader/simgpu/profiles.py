"""Profiles of simulated machines: a GPU, the links between its copies, and the host that drives them.

A profile is a YAML file whose every figure names its source. The catalogue has whole machines
(catalogue/*.yaml) and parts of them (catalogue/gpus, links, hosts). A machine's file holds each part itself
or names one of the catalogue; a user's own file is accepted wherever a machine's name is.

A specification is COUNT x MACHINE, with other parts in place of the machine's own after plus signs:

    2xT4                        two T4, with the link and the host of the T4's profile
    4xA100+pcie4                four A100 on PCIe 4 in place of NVSwitch
    2xT4+pcie3-peer+host-today  other link and other host, in any order
    2x/path/to/mine.yaml        a machine of one's own
"""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from .parts import GPU, Host, Link, MachineProfile, Quantity, Rate, json_schema

__all__ = [
    "CATALOGUE", "DEFAULT", "GPU", "BadProfile", "Host", "Link", "MachineProfile", "Quantity", "Rate",
    "Selection", "json_schema", "known", "known_parts", "load", "read",
]  # fmt: skip

CATALOGUE = Path(__file__).parent / "catalogue"
DEFAULT = "T4"
MOST = 120  # as many as torch is built for: C10_COMPILE_TIME_MAX_GPUS in c10/cuda/CUDAMacros.h
_FILES = 256  # so many are remembered
_Stamp = tuple[int, int, int]
_PARTS: dict[str, Any] = {"gpu": GPU, "link": Link, "host": Host}
_FOLDERS = {"gpu": "gpus", "link": "links", "host": "hosts"}
_SPEC = re.compile(r"(?:(?P<count>\d+)x)?(?P<which>.+)$", re.DOTALL)
_MACHINE = re.compile(r"(.+\.ya?ml|[^+]*)(.*)$", re.DOTALL)  # a plus may be part of the path of a file


class BadProfile(ValueError):
    """A specification or a profile file that cannot be used; the message says what would be right."""


class Selection(NamedTuple):
    """How many GPUs of which profile."""

    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody asks a selection for
    profile: MachineProfile


def known() -> list[str]:
    """Return the names of the catalogue's machines, sorted."""
    return sorted(path.stem for path in CATALOGUE.glob("*.yaml"))


def known_parts(part: str) -> list[str]:
    """Return the names of the catalogue's parts, sorted; `part` is "gpu", "link" or "host"."""
    return sorted(path.stem for path in (CATALOGUE / _FOLDERS[part]).glob("*.yaml"))


def load(spec: str) -> Selection:
    """Read a specification, see above; names match whatever their case. Without a count it is one GPU.

    Raises BadProfile for a count below 1 or above MOST, an unknown name, or a file that breaks the schema.
    """
    match = _SPEC.match(spec.strip())
    if match is None:
        raise BadProfile("no GPUs were named; write for example 2xT4")
    count = int(match["count"] or 1)
    if count < 1:
        raise BadProfile(f"{spec!r} asks for {count} GPUs; ask for at least one, for example 2xT4")
    if count > MOST:
        raise BadProfile(f"{spec!r} asks for {count} GPUs; one computer has at most {MOST} of them")
    machine, others = _MACHINE.match(match["which"]).groups()  # type: ignore[union-attr]  # matches anything
    profile = _machine(machine)
    for other in others.split("+")[1:]:
        profile = _with_part(profile, other)
    return Selection(count, profile)


def read(path: Path) -> MachineProfile:
    """Read a machine's YAML file. Raises BadProfile naming the file, the line and every fault."""
    plain = dict(_machine_of(path, _stamp(path)))
    if "gpu" not in plain and "achieved_tflops" in plain:
        raise BadProfile(
            f"{path} holds the figures of a GPU alone; write beside it the file of a machine, with name, "
            f"note, gpu: {path.name}, link: pcie4-peer and host: host-today, and give that one"
        )
    faults = []
    for part in _PARTS:
        if isinstance(plain.get(part), str):
            try:
                plain[part] = _named_part(part, plain[part], path.parent)
            except BadProfile as error:
                faults.append(f"{path}:{_line(path, (part,))}: {part}: {error}")
    unread = {part for part in _PARTS if isinstance(plain.get(part), str)}
    return _validated(MachineProfile, plain, path, faults, unread)


def _named_part(part: str, which: str, folder: Path) -> Any:
    """A part by its name in the catalogue, or by its own file's path, seen from the machine's file."""
    if not _is_file_name(which):
        return _read_part(part, _name(which, known_parts(part), part))
    path = folder / Path(which).expanduser()
    if not path.is_file():
        raise BadProfile(f"{path} is not a file; give one, or one of {', '.join(known_parts(part))}")
    return _part(part, path, _stamp(path))


def _machine(which: str) -> MachineProfile:
    if _is_file_name(which):
        path = Path(which).expanduser()
        if not path.is_file():
            raise BadProfile(f"{which} is not a file; give a profile's file or one of {', '.join(known())}")
        return read(path)
    return read(
        CATALOGUE / f"{_name(which, known(), 'GPU profile', ' or give the path of a YAML file')}.yaml"
    )


def _with_part(profile: MachineProfile, which: str) -> MachineProfile:
    homes = {name: part for part in ("link", "host") for name in known_parts(part)}
    name = _name(which, list(homes), "link or host")
    part = homes[name]
    update = {part: _read_part(part, name), "name": f"{profile.name}+{name}"}
    return profile.model_copy(update={**update, "note": f"{profile.note} The {part} is that of {name}."})


def _read_part(part: str, name: str) -> Any:
    path = CATALOGUE / _FOLDERS[part] / f"{name}.yaml"
    return _part(part, path, _stamp(path))


@functools.lru_cache(_FILES)
def _part(part: str, path: Path, stamp: _Stamp) -> Any:
    """A part by its file, read again when that has changed; parts are frozen, so that all may share one."""
    return _validated(_PARTS[part], _yaml(path, f"the figures of a {part}"), path)


@functools.lru_cache(_FILES)
def _machine_of(path: Path, stamp: _Stamp) -> dict[str, Any]:
    """What a machine's file holds, which nobody may change."""
    return _yaml(path, "the keys name, note, gpu, link and host")


def _stamp(path: Path) -> _Stamp:
    """By what a file is known to be unchanged."""
    try:
        found = path.stat()
    except OSError as error:
        raise BadProfile(f"{path}: {error}") from None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _is_file_name(which: str) -> bool:
    return which.endswith((".yaml", ".yml"))


def _key(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _name(which: str, names: list[str], kind: str, also: str = "") -> str:
    keys = {_key(name): name for name in names}
    key = _key(which)
    if key in keys:
        return keys[key]
    near = difflib.get_close_matches(key, keys, n=1, cutoff=0.5)
    hint = f"did you mean {keys[near[0]]}? Known" if near else "known"
    raise BadProfile(f"no {kind} is named {which!r}; {hint}: {', '.join(names)}{';' + also if also else ''}")


def _yaml(path: Path, expected: str, kind: str = "safe") -> Any:
    try:
        data = YAML(typ=kind).load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, YAMLError) as error:
        raise BadProfile(f"{path}: {error}") from None
    if not isinstance(data, dict):
        raise BadProfile(f"{path}: expected {expected}, found {data!r}")
    return data


def _validated(
    model: Any,
    plain: dict[str, Any],
    path: Path,
    faults: Sequence[str] = (),
    unread: Collection[str] = (),
) -> Any:
    """The model; `faults` are those found before, of the parts `unread`."""
    found = list(faults)
    try:
        made = model.model_validate(plain)
    except ValidationError as error:
        found += [
            f"{path}:{_line(path, place)}: {'.'.join(map(str, place))}: {said}"
            for fault in error.errors()
            if fault["loc"][:1] not in {(part,) for part in unread}
            for place, said in _places(fault)
        ]
    if found:
        raise BadProfile("\n".join(found))
    return made


def _places(fault: Any) -> list[tuple[tuple[Any, ...], str]]:
    """Where a fault stands, and what it is; figures beyond what is possible stand in places of their own."""
    inner = fault.get("ctx", {}).get("faults")
    if inner is None:
        return [(fault["loc"], _said(fault))]
    return [((*fault["loc"], *place), said) for place, said in inner]


def _said(fault: Any) -> str:
    """A fault in the words of whoever writes a profile."""
    if fault["type"] == "missing":
        return "is missing"
    if fault["type"] != "extra_forbidden":
        return str(fault["msg"])
    figures = {*MachineProfile.model_fields, *Quantity.model_fields}
    for part in _PARTS.values():
        figures |= {*part.model_fields}
    near = difflib.get_close_matches(str(fault["loc"][-1]), sorted(figures), n=1)
    return f"is no part of a profile; did you mean {near[0]}?" if near else "is no part of a profile"


def _line(path: Path, location: tuple[Any, ...]) -> int:
    data = _yaml(path, "a profile", "rt")  # slow, but it knows where everything stands
    line = 1
    for key in location:
        marks = getattr(data, "lc", None)
        if marks is None or not isinstance(data, dict | list):
            break
        try:
            line = (marks.key(key) if isinstance(data, dict) else marks.item(key))[0] + 1
            data = data[key]
        except (KeyError, IndexError, TypeError):
            break
    return line
