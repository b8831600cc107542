"""Measured DistributedDataParallel throughput of ResNet-50 and BERT on 1 to 8 GPUs, beside the simulated one.

    python benchmarks/throughput.py            # the table: one GPU, and how much more N GPUs do
    python benchmarks/throughput.py --fit      # also the rates that the catalogue takes from it

The measurements (lambdal/deeplearning-benchmark, NVIDIA's example models) are of a batch as large as the card
holds. The models here are torchvision's resnet50, and nn.TransformerEncoder in the sizes of BERT base and
large with sequences of 384, trained with SGD and AdamW, TF32 allowed, without dropout. All-reduces of 25 MB
buckets start when their last gradient is there, and overlap the rest of the backward pass.
"""

from __future__ import annotations

import argparse
import csv
import functools
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from scipy.optimize import least_squares
from steps import SHARED, Constants, Step, record, vision
from torch import nn

from grader.simgpu import cost, links, profiles

PROFILES = {
    "LambdaCloud V100 16GB": "V100", "RTX 3090": "RTX3090", "LambdaCloud A10": "A10",
    "LambdaCloud A100 40GB PCIe": "A100-PCIe", "A100 80GB PCIe": "A100-80GB-PCIe",
    "A100 80GB SXM4": "A100-80GB", "RTX 6000 Ada": "RTX6000Ada", "RTX A6000": "A6000", "RTX 4090": "RTX4090",
    "LambdaCloud H100 80GB PCIe": "H100-PCIe", "LambdaCloud H100 80GB SXM5": "H100",
    "LambdaCloud GH200 96GB": "GH200", "LambdaCloud B200 192GB SXM5": "B200",
}  # fmt: skip
MODELS = ("resnet50", "bert_base_squad", "bert_large_squad")
LENGTH, BUCKET, FIRST_BUCKET = 384, 25 * 2**20, 2**20


class Bert(nn.Module):
    """Embedding, encoder and the two outputs of question answering, of BERT's sizes."""

    def __init__(self, width: int, layers: int, heads: int) -> None:
        super().__init__()
        self.words = nn.Embedding(30522, width)
        self.places = nn.Parameter(torch.empty(512, width))
        self.kinds = nn.Embedding(2, width)
        self.norm = nn.LayerNorm(width)
        # Without dropout: on shapes alone it is three operators, where a GPU has one kernel.
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, 0.0, activation="gelu", batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.spans = nn.Linear(width, 2)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.words(words) + self.places[: words.shape[1]] + self.kinds(torch.zeros_like(words))
        return self.spans(self.encoder(self.norm(x)))


SIZES = {"bert_base_squad": (768, 12, 12), "bert_large_squad": (1024, 24, 16)}


@functools.cache
def recorded(model: str, batch: int) -> Step:
    """A training step with `batch` samples on one GPU."""
    if model == "resnet50":
        return record(
            lambda: vision("resnet50"),
            lambda: (torch.empty(batch, 3, 224, 224), torch.empty(batch, dtype=torch.long)),
            lambda net, x, y: nn.functional.cross_entropy(net(x), y),
            optimizer=lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, foreach=True),
        )
    return record(
        lambda: Bert(*SIZES[model]),
        lambda: (torch.empty(batch, LENGTH, dtype=torch.long),),
        lambda net, x: net(x).square().mean(),
        optimizer=lambda p: torch.optim.AdamW(p, foreach=True),
    )


def seconds(step: Step, having: Constants, link: Any, ranks: int) -> float:
    """A step of DistributedDataParallel with the recorded batch on each GPU."""
    lengths = np.array([cost.duration(work, having.rates) for work in step.works])[step.order]
    count, forward, backward = len(step.order), step.forward, step.backward
    launched = having.launch * np.arange(1, count + 1.0) + step.input_bytes / having.pageable
    launched[forward:] = launched[forward - 1] + having.backward_launch * np.arange(1, count - forward + 1)
    ends = np.cumsum(lengths) + np.maximum.accumulate(launched - (np.cumsum(lengths) - lengths))
    done = ends[forward + backward - 1]
    after = ends[-1] - done
    free = waiting = 0.0
    limit, bytes_left = FIRST_BUCKET, sum(nbytes for _, nbytes in step.gradients)
    for place, nbytes in step.gradients if ranks > 1 else ():
        waiting += nbytes
        bytes_left -= nbytes
        if waiting >= limit or not bytes_left:
            ready = ends[min(forward + place, forward + backward) - 1]
            free = max(free, ready) + links.all_reduce_seconds(link, waiting, ranks)
            waiting, limit = 0.0, BUCKET
    return float(max(done, free) + after)


def rows() -> list[tuple[str, int, str, float, int]]:
    """Profile, GPUs, model, samples a second, samples of a step over all GPUs."""
    found = []
    with (SHARED / "ddp_throughput_fp32.csv").open() as a, (SHARED / "ddp_batch_sizes_fp32.csv").open() as b:
        sizes = {(line["name_gpu"]): line for line in csv.DictReader(b)}
        for line in csv.DictReader(a):
            name, gpus = line["name_gpu"], int(line["num_gpu"])
            plain = name.replace(f"{gpus}x ", "")
            if plain in PROFILES:
                found += [
                    (PROFILES[plain], gpus, model, float(line[model]), int(sizes[name][model]))
                    for model in MODELS
                ]
    return found


def predict(profile: Any, gpus: int, model: str, batch: int) -> float:
    """Samples a second."""
    return batch / seconds(recorded(model, batch // gpus), Constants.of(profile), profile.link, gpus)


# Shares of the peaks: TF32 (float32 where there is none) of convolutions and multiplications, and bandwidth.
PRIOR = {"convolution": 0.6, "matmul": 0.5, "bandwidth": 0.65}
HELD = 0.15


def shared(profile: Any, share: dict[str, float]) -> Constants:
    """The machine's constants with other shares of its GPU's peaks."""
    peaks = profile.gpu.peak_tflops
    single = (peaks.get("tfloat32") or peaks["float32"]).value * 1e12
    table = {
        family: {"float32": single * share["matmul" if family in ("matmul", "attention") else "convolution"]}
        for family in cost.FAMILIES
    }
    bandwidth = share["bandwidth"] * profile.gpu.peak_bandwidth_gb_s.value * 1e9
    base = Constants.of(profile)
    rates = base.rates._replace(families=table, bandwidth=bandwidth, half_bandwidth=bandwidth)
    return replace(base, rates=rates)


def calibrate(profile: Any, measured: list[tuple[str, float, int]]) -> dict[str, float]:
    """The shares with which ResNet-50 and BERT base reach what was measured on one GPU."""

    def made(logarithms: Any) -> dict[str, float]:
        return {
            key: prior * float(np.exp(x - 1))
            for (key, prior), x in zip(PRIOR.items(), logarithms, strict=True)
        }

    def residuals(logarithms: Any) -> Any:
        having = shared(profile, made(logarithms))
        errors = [
            np.log(seconds(recorded(m, batch), having, None, 1) * speed / batch)
            for m, speed, batch in measured
        ]
        return np.concatenate([errors, HELD * (np.asarray(logarithms) - 1)])

    return made(least_squares(residuals, np.ones(len(PRIOR)), diff_step=1e-3).x)


def bus(profile: Any, share: dict[str, float], measured: list[tuple[str, int, float, int]]) -> float:
    """The bus bandwidth in GB/s with which the ratios to one GPU come nearest to the measured ones."""
    having = shared(profile, share)
    single = {model: (speed, batch) for model, gpus, speed, batch in measured if gpus == 1}

    def error(gb_s: float) -> float:
        link = profile.with_figures(link={"bus_gb_s": gb_s}).link
        total = 0.0
        for model, gpus, speed, batch in measured:
            if gpus > 1:
                step = recorded(model, batch // gpus)
                ratio = gpus * seconds(step, having, link, 1) / seconds(step, having, link, gpus)
                total += abs(np.log(ratio * single[model][0] / speed))
        return total

    return min((float(gb_s) for gb_s in np.geomspace(0.8, 800, 61)), key=error)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--fit", action="store_true", help="also fit the rates of each GPU")
    arguments = parser.parse_args()
    if not (SHARED / "ddp_throughput_fp32.csv").is_file():
        raise SystemExit(
            f"The measured throughputs are not there ({SHARED}); name their folder in SIMGPU_MEASURED."
        )
    torch.backends.cuda.matmul.allow_tf32 = True
    table = rows()
    if arguments.fit:
        for name in dict.fromkeys(row[0] for row in table):
            mine = [(m, s, b) for p, n, m, s, b in table if p == name and n == 1 and m != "bert_large_squad"]
            profile = profiles.load(name).profile
            share = calibrate(profile, mine)
            several = [row[2:3] + (row[1],) + row[3:] for row in table if row[0] == name]
            found = bus(profile, share, several) if any(row[1] > 1 for row in several) else None
            print(
                f"{name:16}",
                *(f"{key} {value:.3f}" for key, value in share.items()),
                "bus",
                found and f"{found:.3g}",
            )
    one = {}
    for name, gpus, model, speed, batch in table:
        simulated = predict(profiles.load(name).profile, gpus, model, batch)
        one.setdefault((name, model), (simulated, speed))
        first = one[name, model]
        ratio, real = simulated / first[0], speed / first[1]
        line = f"{name:16}{gpus} {model:18} measured {speed:8.0f}/s simulated {simulated:8.0f}/s"
        several = (
            f"   x{real:.2f} measured x{ratio:.2f} simulated {ratio / real - 1:+5.0%}" if gpus > 1 else ""
        )
        print(f"{line} {simulated / speed - 1:+6.0%}{several}", flush=True)


if __name__ == "__main__":
    main()
