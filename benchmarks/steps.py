"""Measured training steps, and what a step asks of a machine, recorded once for many sets of constants.

`Step.seconds` is the simulator's own model of a step (grader/simgpu: cost, links, times) as one formula over
all operators at once, so that a fit can try thousands of constants. `benchmarks/scaling.py` runs the
simulator itself.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
import torchvision
from torch.utils._python_dispatch import TorchDispatchMode

from grader.simgpu import cost

ROOT = Path(__file__).resolve().parents[1]
SHARED = Path(os.environ.get("SIMGPU_MEASURED", ROOT.parent / "shared" / "scaling"))
MACHINES = {  # name in the measurements: profile
    "GeForce RTX 2080 Ti": "RTX2080Ti",
    "TITAN RTX": "TITANRTX",
    "TITAN Xp": "TITANXp",
    "A100-SXM4-40GB": "A100",
}
BATCH, SIZE = 12, 224  # images for each GPU, pixels of an edge
MICRO = 1e-6


class Row(NamedTuple):
    """One measured nn.DataParallel step: copy to device, forward, loss, backward."""

    profile: str
    model: str
    dtype: str  # "float" or "half"
    gpus: int
    seconds: float

    @property
    def apart(self) -> bool:
        """Whether left out of the fit, as no term explains it: four TITAN Xp in float32, most of them 2 to 3
        times as slow as on three, and three RTX 2080 Ti, whose broadcast takes twice as long as on four."""
        return (self.profile, self.gpus, self.dtype) == ("TITANXp", 4, "float") or (
            self.profile,
            self.gpus,
        ) == ("RTX2080Ti", 3)


def measured(folder: Path = SHARED) -> list[Row]:
    """The measured steps. Raises SystemExit with a sentence where they are not to be had."""
    path = folder / "dataparallel_training.csv"
    if not path.is_file():
        raise SystemExit(f"The measured steps are not there ({path}); name their folder in SIMGPU_MEASURED.")
    with path.open(encoding="utf-8") as file:
        return [
            Row(MACHINES[line["machine"]], line["model"], line["dtype"], n, float(line[f"t{n}_ms"]) * 1e-3)
            for line in csv.DictReader(file)
            for n in (1, 2, 3, 4)
        ]


@dataclass(frozen=True)
class Constants:
    """What a step's time depends on: a machine's profile as plain numbers, seconds and bytes."""

    rates: cost.Rates
    launch: float
    backward_launch: float
    module: float
    pageable: float
    peer: float
    broadcast: float  # seconds per byte
    reduce: float

    @classmethod
    def of(cls, profile: Any) -> Constants:
        link, host = profile.link, profile.host
        pageable = link.pageable_gb_s or link.host_gb_s
        return cls(
            cost.Rates.of(profile.gpu),
            host.launch_us.value * MICRO,
            host.backward_launch_us.value * MICRO,
            host.module_us.value * MICRO,
            pageable.value * 1e9,
            link.peer_gb_s.value * 1e9,
            link.broadcast_us_per_mb.value * 1e-12,
            link.reduce_us_per_mb.value * 1e-12,
        )


@dataclass
class Step:
    """One training step on one GPU."""

    works: list[cost.Work]  # distinct ones
    order: Any  # index into works, operator by operator
    forward: int  # so many of them are of the forward pass, then as many as follow of the backward pass
    backward: int
    gradients: list[
        tuple[int, int]
    ]  # after how many operators of the backward pass there is one of how many bytes
    modules: int
    parameter_bytes: int
    buffer_bytes: int
    input_bytes: int

    def seconds(self, having: Constants, gpus: int) -> float:
        """A step of nn.DataParallel with the recorded batch on each GPU; on one, of the bare model."""
        table = np.array([cost.duration(work, having.rates) for work in self.works])
        lengths = table[self.order]
        begin = gpus * self.input_bytes / having.pageable
        end = 0.0
        if gpus > 1:
            begin += (gpus - 1) * self.input_bytes / having.peer
            begin += (self.parameter_bytes + self.buffer_bytes) * having.broadcast
            begin += gpus * self.modules * having.module
            end = self.parameter_bytes * having.reduce
        backward = len(self.order) - self.forward
        launched = begin + having.launch * np.arange(1, self.forward + 1)
        behind = launched[-1] + having.backward_launch * np.arange(1, backward + 1)
        return float(finished(lengths, np.concatenate([launched, behind]))) + end


def finished(lengths: Any, launched: Any) -> Any:
    """When the last of kernels is done that run one after another, none before its launch."""
    sums = np.cumsum(lengths)
    return sums[-1] + np.max(launched - (sums - lengths))


class _Calls(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.works: list[cost.Work] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if not cost.is_free(func):
            self.works.append(cost.work(func, args, kwargs or {}, out))
        return out


def vision(name: str) -> torch.nn.Module:
    """A torchvision model without auxiliary outputs."""
    more = {"aux_logits": False, "init_weights": False} if name in ("googlenet", "inception_v3") else {}
    return torchvision.models.get_model(name, weights=None, **more)


def record(
    build: Callable[[], torch.nn.Module],
    inputs: Callable[[], tuple[torch.Tensor, ...]],
    loss: Callable[..., torch.Tensor],
    dtype: torch.dtype = torch.float32,
    optimizer: Callable[[Any], torch.optim.Optimizer] | None = None,
) -> Step:
    """Record forward, loss, backward and update on shapes; `loss(model, *inputs)` runs the first two."""
    with torch.device("meta"):
        model = build().to(dtype)
        given = tuple(x.to(dtype) if x.dtype.is_floating_point else x for x in inputs())
    with _Calls() as forward:
        value = loss(model, *given)
    gradients: list[tuple[int, int]] = []
    with _Calls() as backward:
        for parameter in model.parameters():
            parameter.register_post_accumulate_grad_hook(
                lambda p: gradients.append((len(backward.works), p.numel() * p.element_size()))
            )
        value.backward()
    with _Calls() as update:
        if optimizer is not None:
            optimizer(model.parameters()).step()
    calls = forward.works + backward.works + update.works
    distinct = list(dict.fromkeys(calls))
    place = {work: i for i, work in enumerate(distinct)}
    return Step(
        distinct,
        np.array([place[work] for work in calls]),
        len(forward.works),
        len(backward.works),
        gradients,
        len(list(model.modules())),
        _nbytes(model.parameters()),
        _nbytes(model.buffers()),
        _nbytes(given),
    )


def record_vision(name: str, dtype: str = "float", batch: int = BATCH, size: int = SIZE) -> Step:
    """A step of a torchvision model on `batch` images."""
    return record(
        lambda: vision(name),
        lambda: (torch.empty(batch, 3, size, size), torch.empty(batch, dtype=torch.long)),
        lambda model, images, targets: F.cross_entropy(model(images), targets),
        getattr(torch, dtype),
    )


def _nbytes(tensors: Any) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
