"""Profiles of simulated machines: a GPU, the links between its copies, and the host that drives them.

A profile is a YAML file whose every figure names its source. The catalogue holds the known ones; a user's
own file is accepted wherever a name is.
"""

from __future__ import annotations

import difflib
import math
import re
from pathlib import Path
from typing import Any, NamedTuple

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

    value: float = Field(ge=0, allow_inf_nan=False)
    source: str = Field(min_length=10)
    low: float | None = Field(None, ge=0, allow_inf_nan=False)
    high: float | None = Field(None, ge=0, allow_inf_nan=False)

    @model_validator(mode="after")
    def _ordered(self) -> Quantity:
        low, high = (0 if self.low is None else self.low), (math.inf if self.high is None else self.high)
        if not low <= self.value <= high:
            raise ValueError(f"the value {self.value:g} lies outside of its range, {low:g} to {high:g}")
        return self


class Rate(Quantity):
    """A figure that something is divided by."""

    value: float = Field(gt=0, allow_inf_nan=False)


class GPU(_Model):
    """One kind of GPU. Rates are per data type, by torch's names: float32, float16, bfloat16, float64; and
    tfloat32, which is what convolutions of float32 use where the GPU has it."""

    name: str  # as torch.cuda.get_device_name() gives it
    capability: tuple[int, int]
    multiprocessors: Rate
    memory_gib: Rate  # what torch reports as total_memory
    peak_tflops: dict[str, Rate]
    peak_bandwidth_gb_s: Rate
    achieved_tflops: dict[str, Rate]
    achieved_bandwidth_gb_s: Rate
    grouped_share: Rate  # of the achieved rate, what a convolution in groups reaches

    @model_validator(mode="after")
    def _has_float32(self) -> GPU:
        if "float32" not in self.achieved_tflops:
            raise ValueError("achieved_tflops needs float32, the rate of everything that has none of its own")
        return self

    @property
    def memory_bytes(self) -> int:
        return int(self.memory_gib.value * 2**30)


class Link(_Model):
    """How bytes move. Broadcast and reduce are nn.DataParallel's, for each 10**6 bytes of parameters."""

    host_gb_s: Rate  # one GPU and host memory, each direction
    peer_gb_s: Rate  # two GPUs
    peer_access: bool = True  # whether one GPU reaches the memory of another without the host
    latency_us: Quantity  # of one copy
    bus_gb_s: Rate = Rate(value=5, source="estimate for PCIe 3.0 without peer access")  # NCCL's rings
    step_us: Quantity = Quantity(value=10, source="estimate of one step of a ring")
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

    def with_figures(self, **parts: dict[str, float]) -> MachineProfile:
        """Return a copy with other figures, for example with_figures(host={"module_us": 66})."""
        changed: dict[str, BaseModel] = {}
        for part, figures in parts.items():
            model = getattr(self, part)
            replaced = {}
            for figure, value in figures.items():
                before = getattr(model, figure)
                replaced[figure] = type(before)(value=value, source=f"set in place of {before.value:g}")
            changed[part] = model.model_copy(update=replaced)
        return self.model_copy(update=changed)


class Selection(NamedTuple):
    """How many GPUs of which profile."""

    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody asks a selection for
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
    hint = f"did you mean {names[near[0]]}? Known" if near else "known"
    raise BadProfile(
        f"no GPU profile is named {which!r}; {hint}: {', '.join(names.values())}; "
        "or give the path of a profile's YAML file"
    )


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
        faults = [
            f"{path}:{_line(data, fault['loc'])}: {'.'.join(map(str, fault['loc']))}: {fault['msg']}"
            for fault in error.errors()
        ]
        raise BadProfile("\n".join(faults)) from None


def _line(data: Any, location: tuple[Any, ...]) -> int:
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
