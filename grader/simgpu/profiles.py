"""Profiles of simulated machines: a GPU, the links between its copies, and the host that drives them.

A profile is a YAML file whose every figure names its source. The catalogue holds the known ones; a user's
own file is accepted wherever a name is.
"""

from __future__ import annotations

import difflib
import re
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

CATALOGUE = Path(__file__).parent / "catalogue"
DEFAULT = "T4"
_SPEC = re.compile(r"(?:(?P<count>\d+)x)?(?P<which>.+)$", re.DOTALL)


class BadProfile(ValueError):
    """A specification or a profile file that cannot be used; the message says what would be right."""


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Quantity(_Model):
    """A figure, where it comes from, and for an uncertain one the range in which it plausibly lies."""

    value: float = Field(ge=0)
    source: str = Field(min_length=10)
    low: float | None = Field(None, ge=0)
    high: float | None = Field(None, ge=0)

    @model_validator(mode="after")
    def _ordered(self) -> Quantity:
        if not (self.low if self.low is not None else 0) <= self.value <= (self.high or float("inf")):
            raise ValueError(f"the value {self.value} lies outside of its range {self.low} to {self.high}")
        return self


class GPU(_Model):
    """One kind of GPU. Rates are per data type, by torch's names: float32, float16, bfloat16, float64; and
    tfloat32, which is what convolutions of float32 use where the GPU has it."""

    name: str  # as torch.cuda.get_device_name() gives it
    capability: tuple[int, int]
    multiprocessors: Quantity
    memory_gib: Quantity  # what torch reports as total_memory
    peak_tflops: dict[str, Quantity]
    peak_bandwidth_gb_s: Quantity
    achieved_tflops: dict[str, Quantity]
    achieved_bandwidth_gb_s: Quantity
    grouped_share: Quantity  # of the achieved rate, what a convolution in groups reaches

    @model_validator(mode="after")
    def _has_float32(self) -> GPU:
        if "float32" not in self.achieved_tflops or self.achieved_bandwidth_gb_s.value == 0:
            raise ValueError("achieved_tflops needs float32, and achieved_bandwidth_gb_s more than 0")
        return self

    @property
    def memory_bytes(self) -> int:
        return int(self.memory_gib.value * 2**30)


class Link(_Model):
    """How bytes move. MB is 10**6 bytes; broadcast and reduce are those of nn.DataParallel, per parameter MB."""

    host_gb_s: Quantity  # one GPU and host memory, each direction
    peer_gb_s: Quantity  # two GPUs
    latency_us: Quantity  # of one copy
    broadcast_us_per_mb: Quantity
    reduce_us_per_mb: Quantity


class Host(_Model):
    """What Python, torch's dispatcher and the driver cost the CPU, in microseconds."""

    module_us: Quantity  # nn.DataParallel: per module and replica, replicate and dispatch together
    launch_us: Quantity  # per operator of a GPU, forward and optimizer
    backward_launch_us: Quantity  # per operator of a GPU, in the engine's thread of that GPU
    cpu_operator_us: Quantity  # per operator on CPU tensors


class MachineProfile(_Model):
    """A machine with any number of one kind of GPU."""

    name: str
    note: str  # what was measured, what was borrowed and from whom
    gpu: GPU
    link: Link
    host: Host

    def with_module_us(self, microseconds: float) -> MachineProfile:
        """Return the same machine with another host cost per module and replica."""
        return self.with_figures(host={"module_us": microseconds})

    def with_figures(self, **parts: dict[str, float]) -> MachineProfile:
        """Return a copy with figures replaced: with_figures(host={"module_us": 66}, link={...})."""
        changed = {}
        for part, figures in parts.items():
            model = getattr(self, part)
            quantities = {
                figure: Quantity(value=value, source=f"set in place of {getattr(model, figure).value}")
                for figure, value in figures.items()
            }
            changed[part] = model.model_copy(update=quantities)
        return self.model_copy(update=changed)


class Selection(NamedTuple):
    """How many GPUs of which profile."""

    count: int
    profile: MachineProfile


def known() -> list[str]:
    """Return the names of the catalogue's profiles, sorted."""
    return sorted(path.stem for path in CATALOGUE.glob("*.yaml"))


def load(spec: str) -> Selection:
    """Read "2xT4", "T4" (one of it) or "2x/path/to/profile.yaml"; names match whatever their case.

    Raises BadProfile for a count below 1, an unknown name, or a file that breaks the schema.
    """
    match = _SPEC.match(spec.strip())
    if match is None:
        raise BadProfile("no GPUs were named; write for example 2xT4")
    count = int(match["count"] or 1)
    if count < 1:
        raise BadProfile(f"{spec!r} asks for {count} GPUs; ask for at least one, for example 2xT4")
    which = match["which"]
    if which.endswith((".yaml", ".yml")):
        path = Path(which).expanduser()
        if not path.is_file():
            raise BadProfile(f"{which} is not a file; give a profile's file or one of {', '.join(known())}")
        return Selection(count, read(path))
    return Selection(count, read(CATALOGUE / f"{_name(which)}.yaml"))


def _name(which: str) -> str:
    names = {re.sub(r"[^a-z0-9]", "", name.lower()): name for name in known()}
    key = re.sub(r"[^a-z0-9]", "", which.lower())
    if key in names:
        return names[key]
    near = difflib.get_close_matches(key, names, n=1, cutoff=0.5)
    hint = f"; did you mean {names[near[0]]}?" if near else ""
    raise BadProfile(
        f"no GPU profile is named {which!r}{hint} "
        f"Known: {', '.join(names.values())}; or give the path of a profile's YAML file"
    )


@lru_cache
def read(path: Path) -> MachineProfile:
    """Read a profile's YAML file. Raises BadProfile naming the file, the line and every fault."""
    try:
        data = YAML(typ="rt").load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, YAMLError) as error:
        raise BadProfile(f"{path}: {error}") from None
    if not isinstance(data, dict):
        raise BadProfile(f"{path}: expected the keys name, note, gpu, link and host, found {data!r}")
    try:
        return MachineProfile.model_validate(data)
    except ValidationError as error:
        faults = (f"{path}:{_line(data, e['loc'])}: {'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
        raise BadProfile("\n".join(faults)) from None


def _line(data: object, location: tuple[int | str, ...]) -> int:
    line = 1
    for key in location:
        marks = getattr(data, "lc", None)
        if marks is None or not isinstance(data, dict | list):
            break
        try:
            line = (marks.key(key) if isinstance(data, dict) else marks.item(key))[0] + 1
            data = data[key]  # pyright: ignore
        except (KeyError, IndexError, TypeError):
            break
    return line
