"""The parts of a machine's profile: figures with their sources, a GPU, a link, a host.

Every figure is a Quantity: a value, where it comes from, and where it is uncertain the range in which it
plausibly lies. `json_schema()` gives the JSON Schema of a profile's file, for editors.
"""

from __future__ import annotations

import math
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

# What arithmetic is done for. A family that a GPU has no rates of its own for goes at `achieved_tflops`.
FAMILIES = ("convolution", "grouped", "depthwise", "matmul", "attention")
# Winograd's algorithm F(2x2, 3x3) multiplies 16 times where a direct convolution, as which FLOPs are counted,
# does 36 times (Lavin and Gray, Fast Algorithms for Convolutional Neural Networks).
WINOGRAD = 2.25
_TENSOR_CORES = (7, 0)  # the compute capability that brought them, for float16


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

    @model_validator(mode="after")
    def _possible(self) -> GPU:
        faults = self._beyond()
        if faults:
            raise PydanticCustomError(
                "impossible", "{said}", {"said": "; ".join(said for _, said in faults), "faults": faults}
            )
        return self

    def limit(self, family: str, dtype: str) -> float:
        """The most TFLOP/s that are possible in a family and type: the peak; in convolutions without tensor
        cores Winograd's saving above it. A type without a peak is computed in float32."""
        peak = self.peak_tflops.get(dtype) or self.peak_tflops["float32"]
        halves = dtype in ("float16", "bfloat16")
        tensor_cores = dtype in self.peak_tflops and self.capability >= _TENSOR_CORES
        saves = dtype == "float32" or (halves and not tensor_cores)
        return peak.value * (WINOGRAD if saves and family not in ("matmul", "attention") else 1)

    def rates(self, family: str) -> dict[str, float]:
        """TFLOP/s by data type at which a family goes: its own; else those of dense convolutions.

        A type that the family has no rate for goes at its float32, but no faster than dense convolutions of
        that type, or its peak, allow.
        """
        general = {dtype: rate.value for dtype, rate in self.achieved_tflops.items()}
        own = {dtype: rate.value for dtype, rate in self.family_tflops.get(family, {}).items()} or general
        peaks = {dtype: rate.value for dtype, rate in self.peak_tflops.items()}
        return {dtype: min(own["float32"], most) for dtype, most in {**peaks, **general}.items()} | own

    def _beyond(self) -> list[tuple[tuple[str, ...], str]]:
        """Where a figure is more than the GPU can do, and what would be possible."""
        if "float32" not in self.peak_tflops:
            return [(("peak_tflops",), "float32 is missing, the peak of types that have none of their own")]
        faults: list[tuple[tuple[str, ...], str]] = []
        for place, rates, served in self._tables():
            for dtype, rate in rates.items():
                limits = {family: self.limit(family, dtype) for family in served}
                if rate.value > min(limits.values()):
                    faults.append(((*place, dtype), _too_fast(rate.value, limits, self, dtype)))
        peak = self.peak_bandwidth_gb_s.value
        for name in ("achieved_bandwidth_gb_s", "half_bandwidth_gb_s"):
            found = getattr(self, name)
            if found is not None and found.value > peak:
                faults.append(((name,), f"{found.value:g} GB/s is more than peak_bandwidth_gb_s, {peak:g}"))
        return faults

    def _tables(self) -> list[tuple[tuple[str, ...], dict[str, Rate], list[str]]]:
        """Each table of rates: where it stands, and the families that go by it."""
        found: list[tuple[tuple[str, ...], dict[str, Rate], list[str]]] = [
            (("family_tflops", family), rates, [family]) for family, rates in self.family_tflops.items()
        ]
        served = [family for family in FAMILIES if family not in self.family_tflops]
        return [(("achieved_tflops",), self.achieved_tflops, served), *found] if served else found

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


def _too_fast(value: float, limits: dict[str, float], gpu: GPU, dtype: str) -> str:
    peak = gpu.peak_tflops.get(dtype) or gpu.peak_tflops["float32"]
    beyond = [family for family, limit in limits.items() if value > limit]
    limit = min(limits[family] for family in beyond)
    said = f"{value:g} TFLOP/s is more than this GPU can do in {', '.join(beyond)}: at most {limit:.4g}, "
    said += f"its peak of {peak.value:g}" if limit == peak.value else "by Winograd's algorithm"
    if len(beyond) < len(limits):
        said += "; give those rates of their own in family_tflops"
    return said


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
