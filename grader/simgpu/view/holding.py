"""What holds the memory of a device at its peak: kinds of tensors, and the modules that made them."""

from __future__ import annotations

from dataclasses import dataclass

from .record import DeviceRecord

PARAMETERS, REPLICAS, GRADIENTS, OPTIMIZER, ACTIVATIONS, OTHER = (
    "parameters and buffers",
    "replicas' parameters",
    "gradients",
    "optimizer state",
    "activations",
    "inputs and others",
)
KINDS = (PARAMETERS, REPLICAS, GRADIENTS, OPTIMIZER, ACTIVATIONS, OTHER)
_OF_PHASE = {"backward": GRADIENTS, "optimizer": OPTIMIZER, "forward": ACTIVATIONS}
MODULES = 5  # named at most


@dataclass(frozen=True)
class Holding:
    """The memory of one device at the moment of its (first) peak; bytes."""

    seconds: float
    allocated: int
    kinds: dict[str, int]  # of each of KINDS, without those that hold nothing
    modules: dict[str, int]  # those which made most of it


def at_peak(device: DeviceRecord) -> Holding | None:
    """Who holds what when most is allocated; None where no history was recorded.

    Told apart by the phase in which the memory was taken. What was taken outside of any phase is parameters
    as far as the modules that were called have them there, and inputs beyond that.
    """
    if not device.marks:
        return None
    peak = max(range(len(device.marks)), key=lambda position: (device.marks[position].allocated, -position))
    before = device.marks[0].allocated - device.marks[0].change  # held before the recording began
    labels: dict[str, int] = {"||other": before} if before else {}
    for mark in device.marks[: peak + 1]:
        labels[mark.label] = labels.get(mark.label, 0) + mark.change
    kinds = dict.fromkeys(KINDS, 0)
    modules: dict[str, int] = {}
    for label, nbytes in labels.items():
        module, operator, phase = (label.split("|") + ["", "", ""])[:3]
        kinds[REPLICAS if operator == "broadcast" else _OF_PHASE.get(phase, OTHER)] += nbytes
        if module and nbytes > 0:
            modules[module] = modules.get(module, 0) + nbytes
    parameters = min(device.parameters, kinds[OTHER])
    kinds[PARAMETERS] += parameters
    kinds[OTHER] -= parameters
    highest = device.marks[peak]
    largest = sorted(modules, key=lambda module: (-modules[module], module))[:MODULES]
    return Holding(
        highest.seconds,
        highest.allocated,
        {kind: nbytes for kind, nbytes in kinds.items() if nbytes > 0},
        {module: modules[module] for module in largest},
    )
