"""The parts of a machine's profile: figures with their sources, a GPU, a link, a host.

Every figure is a Quantity: a value, where it comes from, and where it is uncertain the range in which it
plausibly lies. `json_schema()` gives the JSON Schema of a profile's file, for editors.
"""

from __future__ import annotations

import math
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

# What arithmetic is done for. A family that a GPU has no rates of its own for goes at `achieved_tflops`.
FAMILIES = ("convolution", "grouped", "depthwise", "matmul", "attention")


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
    tfloat32, which is what float32 convolutions use where the GPU has it, and multiplications if asked to."""

    name: str  # as torch.cuda.get_device_name() gives it
    capability: tuple[int, int]
    multiprocessors: Rate
    memory_gib: Rate  # what torch reports as total_memory
    peak_tflops: dict[str, Rate]
    peak_bandwidth_gb_s: Rate
    achieved_tflops: dict[str, Rate]  # of dense convolutions, and of what has no rates of its own
    family_tflops: dict[str, dict[str, Rate]] = Field(default_factory=dict)
    achieved_bandwidth_gb_s: Rate
    half_bandwidth_gb_s: Rate | None = None  # by kernels on types of two bytes, where it differs
    kernel_us: Quantity  # the shortest that a kernel takes, however little there is to do

    @model_validator(mode="after")
    def _complete(self) -> GPU:
        if "float32" not in self.achieved_tflops:
            raise ValueError("achieved_tflops needs float32, the rate of everything that has none of its own")
        for family, rates in self.family_tflops.items():
            if family not in FAMILIES:
                raise ValueError(f"family_tflops knows no {family!r}, only {', '.join(FAMILIES)}")
            if "float32" not in rates:
                raise ValueError(f"family_tflops.{family} needs float32, the rate of other types")
        return self

    @property
    def memory_bytes(self) -> int:
        return int(self.memory_gib.value * 2**30)

    def figures(self) -> list[tuple[str, Quantity]]:
        """Every figure that a time depends on, with a name for people."""
        found: list[tuple[str, Quantity]] = [
            (f"achieved TFLOP/s, {dtype}", rate) for dtype, rate in self.achieved_tflops.items()
        ]
        for family, rates in self.family_tflops.items():
            found += [(f"achieved TFLOP/s, {family}, {dtype}", rate) for dtype, rate in rates.items()]
        found.append(("achieved GB/s", self.achieved_bandwidth_gb_s))
        if self.half_bandwidth_gb_s is not None:
            found.append(("achieved GB/s, half precision", self.half_bandwidth_gb_s))
        return [*found, ("multiprocessors", self.multiprocessors), ("shortest kernel, µs", self.kernel_us)]


class Link(_Model):
    """How bytes move. Broadcast and reduce are nn.DataParallel's, for each 10**6 bytes of parameters."""

    host_gb_s: Rate  # one GPU and pinned host memory, each direction
    pageable_gb_s: Rate | None = None  # one GPU and ordinary host memory; None: as pinned
    peer_gb_s: Rate  # two GPUs
    peer_access: bool  # whether a GPU reaches the memory of another without the host
    latency_us: Quantity  # of one copy
    broadcast_us_per_mb: Quantity
    reduce_us_per_mb: Quantity
    bus_gb_s: Rate  # of NCCL's rings, as nccl-tests' bus bandwidth
    step_us: Quantity  # of one step around a ring


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


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a profile's file; a part may also be the name of one in the catalogue."""
    schema = MachineProfile.model_json_schema()
    for part in ("gpu", "link", "host"):
        schema["properties"][part] = {"anyOf": [{"type": "string"}, schema["properties"][part]]}
    return schema
