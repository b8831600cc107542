"""Fit the constants of the four measured machines, and check them on networks that were left out.

    python benchmarks/fit.py                   # the constants beside those of the catalogue, and the errors
    python benchmarks/fit.py --cross-validate  # also the errors on families of networks left out in turn

For each machine one set of constants for all networks, both types and 1 to 4 GPUs: least squares of the
logarithm of predicted over measured, with a loss that outliers pull less at. What few rows determine is held
by a prior: each constant may leave the mean over the four machines (rates as shares of peaks) only at a cost.
Steps are predicted by `steps.Step.seconds`, the simulator's model in one formula.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from scipy.optimize import least_squares
from steps import MACHINES, Constants, Row, Step, measured, record_vision
from tables import medians

from grader.simgpu import cost, profiles

# Where a fit begins, and the prior of its first round: rates as shares of the peak of float32 (TF32 where a
# GPU has it), float16 and bandwidth; the rest in the units of the profile.
START = {
    "convolution": 1.1, "convolution, half": 0.4, "grouped": 0.12, "grouped, half": 0.05, "depthwise": 0.05,
    "depthwise, half": 0.03, "bandwidth": 0.6, "bandwidth, half": 0.5, "launch_us": 100.0,
    "backward_launch_us": 15.0, "module_us": 75.0, "pageable_gb_s": 2.0, "peer_gb_s": 8.0, "us_per_mb": 100.0,
}  # fmt: skip
# The other links, and rates of TF32 on tensor cores, which knows no Winograd: 0.6 of the peak is the mean of
# the GPUs of benchmarks/throughput.py.
A100 = {"us_per_mb": 3.0, "pageable_gb_s": 5.0, "peer_gb_s": 200.0, "convolution": 0.6}
HELD = 0.15  # cost of leaving the prior, for a factor of e
LARGEST = 0.9  # of the peak of tensor cores and of bandwidth: no training step comes nearer to it
SCALE = 0.1  # relative error from which on the loss grows linearly
KERNEL_US = 5.0
GROUPS = (
    ("densenet",),
    ("mnasnet", "mobilenet"),
    ("resnet", "resnext"),
    ("shufflenet",),
    ("squeezenet",),
    ("vgg",),
)


def constants(profile: profiles.MachineProfile, having: dict[str, float]) -> Constants:
    """The constants of a machine for some figures of a fit."""
    gpu = profile.gpu
    peaks = gpu.peak_tflops
    single = (peaks.get("tfloat32") or peaks["float32"]).value * 1e12
    half = (peaks.get("float16") or peaks["float32"]).value * 1e12
    bandwidth = gpu.peak_bandwidth_gb_s.value * 1e9
    families = {
        family: {"float32": having[family] * single, "float16": having[f"{family}, half"] * half}
        for family in ("convolution", "grouped", "depthwise")
    }
    rates = cost.Rates(
        {**cost.Rates.of(gpu).families, **families},  # too few multiplications to fit their rates
        having["bandwidth"] * bandwidth,
        having["bandwidth, half"] * bandwidth,
        gpu.multiprocessors.value,
        KERNEL_US * 1e-6,
    )
    each = having["us_per_mb"] / 2 * 1e-12
    return Constants(
        rates, having["launch_us"] * 1e-6, having["backward_launch_us"] * 1e-6, having["module_us"] * 1e-6,
        having["pageable_gb_s"] * 1e9, having["peer_gb_s"] * 1e9, each, each,
    )  # fmt: skip


def highest(profile: profiles.MachineProfile, key: str) -> float:
    """Up to where a constant may be fitted: rates and bandwidths to what the GPU can do, others anywhere."""
    gpu = profile.gpu
    family, _, half = key.partition(", ")
    if family == "bandwidth":
        return LARGEST
    if family not in cost.FAMILIES:
        return np.inf
    dtype = "float16" if half else "tfloat32" if "tfloat32" in gpu.peak_tflops else "float32"
    peak = (gpu.peak_tflops.get(dtype) or gpu.peak_tflops["float32"]).value
    share = gpu.limit(family, dtype) / peak
    return share if share > 1 else LARGEST


class Fit:
    """All machines' constants, fitted to some rows."""

    def __init__(self, steps: dict[tuple[str, str], Step]) -> None:
        self.steps = steps
        self.machines = {name: profiles.load(name).profile for name in MACHINES.values()}

    def predict(self, name: str, having: dict[str, float], row: Row) -> float:
        made = constants(self.machines[name], having)
        return self.steps[row.model, row.dtype].seconds(made, row.gpus)

    def machine(
        self, name: str, rows: list[Row], prior: dict[str, float], start: dict[str, float], most: int = 15
    ):
        """The constants of one machine."""
        names = list(START)

        def unpack(logarithms: Any) -> dict[str, float]:
            return {key: prior[key] * float(np.exp(x - 1)) for key, x in zip(names, logarithms, strict=True)}

        def residuals(logarithms: Any) -> Any:
            made = constants(self.machines[name], unpack(logarithms))
            errors = [
                np.log(self.steps[row.model, row.dtype].seconds(made, row.gpus) / row.seconds) for row in rows
            ]
            return np.concatenate([errors, HELD * (np.asarray(logarithms) - 1)])

        def place(key: str, value: float) -> float:
            return 1 + np.log(value / prior[key])  # around 1, as steps are taken relative to it

        limits = {key: highest(self.machines[name], key) for key in names}
        begin = [place(key, min(start[key], 0.99 * limits[key])) for key in names]
        upper = [place(key, limits[key]) for key in names]
        found = least_squares(
            residuals, begin, bounds=(-np.inf, upper), loss="soft_l1", f_scale=SCALE, diff_step=1e-3,
            max_nfev=most,
        )  # fmt: skip
        return unpack(found.x)

    def all(
        self, rows: list[Row], start: Any = None, rounds: int = 3, most: int = 12
    ) -> dict[str, dict[str, float]]:
        """The constants of every machine; each round's prior is the mean of the round before."""
        used = [row for row in rows if not row.apart]
        found = start or {name: {**START, **(A100 if name == "A100" else {})} for name in self.machines}
        for _ in range(rounds):
            prior = mean(found)
            found = {
                name: self.machine(
                    name, [row for row in used if row.profile == name], own(prior, name), found[name], most
                )
                for name in self.machines
            }
        return found


def mean(found: dict[str, dict[str, float]]) -> dict[str, float]:
    """Geometric mean over the machines; without those constants in which the A100 is of another kind."""
    return {
        key: float(
            np.exp(
                np.mean(
                    [np.log(made[key]) for name, made in found.items() if name != "A100" or key not in A100]
                )
            )
        )
        for key in START
    }


def own(prior: dict[str, float], name: str) -> dict[str, float]:
    """The prior of a machine: NVSwitch is not drawn towards PCIe, nor TF32 towards Winograd."""
    return {**prior, **(A100 if name == "A100" else {})}


def family(model: str) -> str:
    return next(
        f
        for f in ("densenet", "mnasnet", "mobilenet", "resnext", "resnet", "shufflenet", "squeezenet", "vgg")
        if f in model
    )


def errors(fit: Fit, found: dict[str, dict[str, float]], rows: list[Row]) -> dict[Row, float]:
    return {row: fit.predict(row.profile, found[row.profile], row) for row in rows}


def shares(profile: profiles.MachineProfile) -> dict[str, float]:
    """The catalogue's figures in the units of a fit."""
    gpu, link, host = profile.gpu, profile.link, profile.host
    peaks = gpu.peak_tflops
    single, half = ((peaks.get(dtype) or peaks["float32"]).value for dtype in ("tfloat32", "float16"))
    rates = gpu.achieved_tflops
    bandwidth = gpu.peak_bandwidth_gb_s.value
    narrow = gpu.half_bandwidth_gb_s or gpu.achieved_bandwidth_gb_s
    found = {
        "convolution": (rates.get("tfloat32") or rates["float32"]).value / single,
        "convolution, half": rates["float16"].value / half,
        "bandwidth": gpu.achieved_bandwidth_gb_s.value / bandwidth,
        "bandwidth, half": narrow.value / bandwidth,
        "launch_us": host.launch_us.value,
        "backward_launch_us": host.backward_launch_us.value,
        "module_us": host.module_us.value,
        "pageable_gb_s": (link.pageable_gb_s or link.host_gb_s).value,
        "peer_gb_s": link.peer_gb_s.value,
        "us_per_mb": link.broadcast_us_per_mb.value + link.reduce_us_per_mb.value,
    }
    for family in ("grouped", "depthwise"):
        found[family] = gpu.family_tflops[family]["float32"].value / single
        found[f"{family}, half"] = gpu.family_tflops[family]["float16"].value / half
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--cross-validate", action="store_true", help="also leave families and models out in turn"
    )
    arguments = parser.parse_args()
    rows = measured()
    steps = {key: record_vision(*key) for key in sorted({(row.model, row.dtype) for row in rows})}
    fit = Fit(steps)
    found = fit.all(rows)
    print("Rates are shares of peaks (TF32 where a card has it). Fitted (and the catalogue's):\n")
    print(f"{'':22}", *(f"{name:>19}" for name in found), "        mean")
    known = {name: shares(profiles.load(name).profile) for name in found}
    for key in START:
        beside = (f"{made[key]:9.4g} ({known[name][key]:7.4g})" for name, made in found.items())
        print(f"{key:22}", *beside, f"{mean(found)[key]:12.4g}")
    medians("In sample", errors(fit, found, rows))
    if arguments.cross_validate:
        predicted: dict[Row, float] = {}
        for group in GROUPS:
            kept = fit.all([row for row in rows if family(row.model) not in group])  # priors, too, anew
            predicted |= errors(fit, kept, [row for row in rows if family(row.model) in group])
        medians("Families left out in turn", predicted)


if __name__ == "__main__":
    main()
