"""How long one ATen operator keeps a simulated GPU busy: a roofline over its FLOPs and its bytes.

What the number is not: a prediction for a kernel. It knows no caches, no fusion and no choice of algorithm.
It is right on the average over the operators of a training step.

    arithmetic = FLOPs / (achieved FLOP/s of family and data type * share of the multiprocessors in use)
    seconds    = max(arithmetic, bytes / achieved bytes/s, kernels * shortest kernel) + bytes apart / bytes/s

Family is what is multiplied: a dense convolution, one in groups, one for each channel (depthwise), a matrix,
attention. All figures of the GPU are those of its profile, and most were fitted on whole training steps, so
whatever is not a term here is contained in them.

- FLOPs are those of torch.utils.flop_counter (a multiply-add counts as two), corrected in `work`.
- Bytes are those of every input read once and every output written once, with the exceptions of `work`.
- A multiplication is cut into tiles of 64 x 64 results and sums of 1024 products, each the work of one
  multiprocessor; fewer tiles than multiprocessors leave the others idle (NVIDIA, Matrix Multiplication
  Background User's Guide: tile and wave quantization). Tiles of other sizes are not told apart.
- A kernel takes some microseconds however little there is to do.
- Bytes apart are those of passes of their own: a convolution adds its bias, and sums the gradient of it, in a
  second kernel.
- Views and other operators that only touch metadata are free.

Float32 convolutions use TF32 where the GPU has it, multiplications only if asked to, as torch's own flags
say (see `precision`). Nothing is computed: shapes and types suffice, so tensors on the meta device serve too.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from . import precision
from .parts import FAMILIES, GPU
from .work import Work, flops, is_free, work

__all__ = ["Rates", "Work", "duration", "flops", "is_free", "seconds", "work"]


class Rates(NamedTuple):
    """A GPU's figures as plain numbers, in units of one: FLOP/s, bytes/s, seconds."""

    families: dict[str, dict[str, float]]
    bandwidth: float
    half_bandwidth: float
    multiprocessors: float
    kernel: float

    @classmethod
    def of(cls, gpu: GPU) -> Rates:
        """The figures of a profile."""
        half = gpu.half_bandwidth_gb_s or gpu.achieved_bandwidth_gb_s
        return cls(
            {
                family: {dtype: rate * 1e12 for dtype, rate in gpu.rates(family).items()}
                for family in FAMILIES
            },
            gpu.achieved_bandwidth_gb_s.value * 1e9,
            half.value * 1e9,
            gpu.multiprocessors.value,
            gpu.kernel_us.value * 1e-6,
        )


_RATES: dict[int, tuple[GPU, Rates]] = {}
_MOST_RATES = 100  # GPUs; a fit tries thousands of figures, each a GPU of its own


def rates(gpu: GPU) -> Rates:
    """Return the plain figures of a profile, worked out once."""
    known = _RATES.get(id(gpu))
    if known is None or known[0] is not gpu:
        if len(_RATES) >= _MOST_RATES:
            _RATES.clear()
        known = _RATES[id(gpu)] = (gpu, Rates.of(gpu))
    return known[1]


def seconds(func: Any, args: tuple, kwargs: dict, out: Any, gpu: GPU) -> float:
    """Return the seconds for which `func(*args, **kwargs)`, which gave `out`, keeps `gpu` busy.

    `func` is an OpOverload. A data type that the GPU has no rate for (bfloat16 before Ampere) goes at that of
    float32, in which such GPUs compute it.
    """
    if is_free(func):
        return 0.0
    return duration(work(func, args, kwargs, out), rates(gpu))


def duration(asked: Work, having: Rates) -> float:
    """Return the seconds that a GPU with these figures needs for some work; the formula is above."""
    bandwidth = having.half_bandwidth if asked.itemsize == 2 else having.bandwidth
    longest = max(asked.nbytes / bandwidth, asked.kernels * having.kernel)
    if asked.flops:
        table = having.families[asked.family]
        dtype = asked.dtype
        if dtype == "float32" and "tfloat32" in table and precision.tf32(asked.family):
            dtype = "tfloat32"
        rate = table.get(dtype) or table["float32"]
        if asked.tiles < having.multiprocessors:
            rate *= asked.tiles / having.multiprocessors
        longest = max(longest, asked.flops / rate)
    return longest + asked.apart / bandwidth
