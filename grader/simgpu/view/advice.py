"""What to do about the term that rules a step: one rule each, with the threshold from which it speaks.

The thresholds are choices: a fifth to a half of the step, from which mending the term is felt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from . import split
from .record import Record
from .words import megabytes, percent, plural, size

REPLICATION = 0.25  # of the step: replicate() on the host
LAUNCH = 0.5  # launching on the host, while
LAUNCH_COMPUTE = 0.5  # the busiest GPU computes less than this
HOST_COPIES = 0.2  # copies from the host to the GPUs
SYNCHRONIZATION = 0.1  # the host waits at one line in every step, and
SYNCHRONIZATION_IDLE = 0.2  # the busiest GPU has nothing to do for this long
PARAMETERS = 0.25  # broadcast and reduce of parameters
IDLE = 0.2  # of the busiest GPU's compute, below which another counts as idle
IMBALANCE = 0.7  # ..., below which the load counts as unequal
BALANCE = 0.05  # of the step, below which nobody cares
MEMORY = 0.9  # of the capacity
COLLECTIVES = 0.2  # collectives that nothing hides
CPU = 0.25  # operators on CPU tensors
COMPUTE = 0.7  # the busiest GPU computes for this share or more: nothing else is worth mending
MOST = 3  # sentences shown at a time


class Advice(NamedTuple):
    """A sentence, and the share of the step that it is about."""

    rule: str
    share: float
    text: str


class Shares:
    """Shares of the time of a typical step that the rules look at."""

    def __init__(self, record: Record) -> None:
        self.record = record
        typical = record.typical
        self.length = typical.now or float("inf")
        self.host = {what: value / self.length for what, value in typical.host.items()}
        self.moved = {link: total.seconds / self.length for link, total in typical.moved.items()}
        used = [device.index for device in record.used]
        self.compute = {index: (typical.busy[index] - typical.copying[index]) / self.length for index in used}
        self.busy = {index: typical.busy[index] / self.length for index in used}
        self.communicating = {index: typical.communicating[index] / self.length for index in used}

    @property
    def most_compute(self) -> float:
        """That in which the busiest GPU computes."""
        return max(self.compute.values(), default=0.0)

    @property
    def from_host(self) -> float:
        """That in which bytes move from the host to the GPUs, all links together."""
        return sum(share for link, share in self.moved.items() if link.startswith("cpu > "))


def advise(record: Record) -> list[Advice]:
    """The sentences for a record, the weightiest first; one of its own where no rule speaks."""
    shares = Shares(record)
    found = [advice for rule in _RULES for advice in rule(shares)]
    found.sort(key=lambda advice: -advice.share)
    return found[:MOST] or [_nothing(shares)]


def _replication(shares: Shares) -> Iterator[Advice]:
    share, record = shares.host["replicate"], shares.record
    if share >= REPLICATION:
        what = "modules"
        if record.parallel is not None:
            what = f"{plural(record.parallel.modules, 'module')} for {record.parallel.devices} GPUs"
        yield Advice(
            "replication",
            share,
            f"The host spends {percent(share)} of the {record.unit} replicating {what}: "
            "DistributedDataParallel does that once. Fewer, larger modules help nn.DataParallel, too.",
        )


def _launch(shares: Shares) -> Iterator[Advice]:
    share = shares.host["launch"]
    if share >= LAUNCH and shares.most_compute < LAUNCH_COMPUTE:
        fullest = max((device.peak / device.capacity for device in shares.record.used), default=1.0)
        room = f" (memory is used to {percent(fullest)})" if fullest < 0.5 else ""
        yield Advice(
            "launch",
            share,
            f"Launching operators takes the host {percent(share)} of the {shares.record.unit}, while the "
            f"busiest GPU computes for {percent(shares.most_compute)}: its operators are too small for it. "
            f"A bigger batch{room} or wider layers give it more work for each launch; on real GPUs "
            "torch.compile or CUDA graphs launch less.",
        )


def _host_copies(shares: Shares) -> Iterator[Advice]:
    share, record = shares.from_host, shares.record
    if share < HOST_COPIES:
        return
    moved = sum(total.nbytes for link, total in record.typical.moved.items() if link.startswith("cpu > "))
    text = f"Copying {megabytes(moved)} from the host to the GPUs takes {percent(share)} of the {record.unit}"
    if shares.host["wait"] >= share / 2:
        text += (
            ", and the host waits for it: page-locked memory (DataLoader(pin_memory=True)) together with "
            "non_blocking=True lets it go on."
        )
    else:
        text += ": copy the next batch on a stream of its own while this one is computed, or send less of it."
    yield Advice("host copies", share, text)


def _synchronization(shares: Shares) -> Iterator[Advice]:
    record = shares.record
    idle = 1 - max(shares.busy.values(), default=0.0)
    if record.step is None or idle < SYNCHRONIZATION_IDLE:
        return
    each_step = {
        site: total
        for site, total in record.waits.items()
        if total.calls >= record.steps - 1 and not any(move in site for move in (".cuda(", ".to("))
    }
    if not each_step:
        return
    site = max(each_step, key=lambda site: each_step[site].seconds)
    share = each_step[site].seconds / (record.whole.now or float("inf"))
    if share >= SYNCHRONIZATION:
        yield Advice(
            "synchronization",
            share,
            f"In every step the host waits for the GPUs at {site} ({percent(share)} of the time); then they "
            f"wait for it, and are idle for {percent(idle)} of the step. Keep values on the GPU (sum up "
            "loss.detach()) and read them every hundred steps.",
        )


def _parameters(shares: Shares) -> Iterator[Advice]:
    share, record = shares.host["communicate"], shares.record
    if share >= PARAMETERS:
        nbytes = sum(
            total.nbytes for link, total in record.typical.moved.items() if link in ("broadcast", "reduce")
        )
        yield Advice(
            "parameters",
            share,
            f"Broadcasting parameters and reducing their gradients moves {megabytes(nbytes)} over the link "
            f"and takes {percent(share)} of the {record.unit}: DistributedDataParallel moves only gradients, "
            "during the backward pass.",
        )


def _balance(shares: Shares) -> Iterator[Advice]:
    record, most = shares.record, shares.most_compute
    if len(record.devices) < 2 or not most or any(shares.communicating.values()):
        return  # ranks of a process group each see their own GPU alone
    compute = {device.index: shares.compute.get(device.index, 0.0) for device in record.devices}
    least = min(compute, key=lambda index: (compute[index], index))
    busiest = max(compute, key=lambda index: (compute[index], -index))
    if compute[least] >= IMBALANCE * most or (record.parallel and most - compute[least] < BALANCE):
        return
    figures = (
        f"cuda:{least} computes for {percent(compute[least])} of the {record.unit}, "
        f"cuda:{busiest} for {percent(most)}"
    )
    if record.parallel is None:
        advice = "wrap the model in nn.DataParallel, or start a process for each GPU, to use all of them"
    elif _optimizer(record, busiest) - _optimizer(record, least) >= (most - compute[least]) / 2:
        advice = f"the optimizer works on cuda:{busiest} alone: DistributedDataParallel steps on each GPU"
    elif compute[least] < IDLE * most:
        advice = "is the batch large enough to give each GPU a share? It is split in chunks of equal size"
    else:
        advice = (
            f"outputs are gathered on cuda:{busiest}: compute the loss inside of forward(), and use a batch "
            "that divides by the number of GPUs"
        )
    yield Advice("balance", most - compute[least], f"{figures}; {advice}.")


def _optimizer(record: Record, device: int) -> float:
    """Share of a typical step for which the optimizer keeps a device."""
    took = (
        total.seconds
        for (where, _, phase), total in record.typical.totals.items()
        if where == device and phase == "optimizer"
    )
    return sum(took) / record.typical.now


def _memory(shares: Shares) -> Iterator[Advice]:
    fullest = max(shares.record.used, key=lambda device: device.peak / device.capacity)
    share = fullest.peak / fullest.capacity
    if share >= MEMORY:
        yield Advice(
            "memory",
            share,
            f"{fullest.name} holds {size(fullest.peak)} at the peak, {percent(share)} of what it has: a real "
            "card, whose memory is in pieces, may run out. A smaller batch with gradient accumulation, "
            "autocast, or torch.utils.checkpoint need less.",
        )


def _collectives(shares: Shares) -> Iterator[Advice]:
    record = shares.record
    share = max(shares.communicating.values(), default=0.0)
    idle = 1 - max(shares.busy.values(), default=0.0)
    exposed = min(share, max(0.0, idle))  # at most; the spans know exactly
    if record.spans and share:
        window = split.typical(record)
        exposed = split.split(split.cut(record.spans, window), window.length)["collectives"] / window.length
    if exposed >= COLLECTIVES:
        yield Advice(
            "collectives",
            exposed,
            f"Collectives take {percent(share)} of the {record.unit}, and {percent(exposed)} of it no "
            "computation hides: a larger batch, no_sync() with gradient accumulation, or gradients in "
            "float16 (a communication hook) make them weigh less.",
        )


def _cpu(shares: Shares) -> Iterator[Advice]:
    share = shares.host["cpu"]
    if share >= CPU:
        yield Advice(
            "cpu",
            share,
            f"Operators on CPU tensors take {percent(share)} of the {shares.record.unit}: let worker "
            "processes prepare the data (DataLoader(num_workers=...)), fetch a batch at a time, or do it on "
            "the GPU.",
        )


def _nothing(shares: Shares) -> Advice:
    most, unit = shares.most_compute, shares.record.unit
    if most >= COMPUTE:
        text = (
            f"The busiest GPU computes for {percent(most)} of the {unit}: the work itself rules. Lower "
            "precision (autocast) or more GPUs are what remains."
        )
    else:
        text = f"No single term rules; the busiest GPU computes for {percent(most)} of the {unit}."
    return Advice("nothing", most, text)


_RULES: tuple[Callable[[Shares], Iterator[Advice]], ...] = (
    _replication, _launch, _host_copies, _synchronization, _parameters, _balance, _memory, _collectives, _cpu,
)  # fmt: skip
