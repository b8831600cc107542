"""What NVIDIA's driver says about the real GPUs: names, who else uses them, whether they are slowed down."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

# Reasons for which a driver lowers the clocks although there is work (nvml.h, nvmlClocksEventReasons).
_THROTTLES = {
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x20: "thermal limit (software)",
    0x40: "thermal limit (hardware)",
    0x80: "power brake",
}


@contextlib.contextmanager
def _session() -> Iterator[Any]:
    """NVML, initialised; None where there is no driver."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # no library, no driver, no permission: all the same to us
        yield None
        return
    try:
        yield pynvml
    finally:
        pynvml.nvmlShutdown()


def _visible(nvml: Any) -> list[Any]:
    """Handles of the GPUs that CUDA_VISIBLE_DEVICES leaves, in its order."""
    total = nvml.nvmlDeviceGetCount()
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is None:
        return [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(total)]
    handles = []
    for part in chosen.split(","):
        part = part.strip()
        if part.isdecimal() and int(part) < total:
            handles.append(nvml.nvmlDeviceGetHandleByIndex(int(part)))
        elif part.startswith("GPU-"):
            with contextlib.suppress(nvml.NVMLError):
                handles.append(nvml.nvmlDeviceGetHandleByUUID(part.encode()))
        else:
            break  # CUDA stops at the first id that it does not know
    return handles


def count() -> int:
    """Return how many GPUs this process may use by the driver's word."""
    return len(names())


def names() -> list[str]:
    """Return their names, e.g. "NVIDIA H200"."""
    with _session() as nvml:
        if nvml is None:
            return []
        found = [nvml.nvmlDeviceGetName(handle) for handle in _visible(nvml)]
        return [name.decode() if isinstance(name, bytes) else name for name in found]


def disturbances(devices: int, own: set[int]) -> list[str]:
    """Return, in sentences, what may falsify a timing on the first `devices` GPUs.

    `own` are process ids of the grader itself, which are no disturbance.
    """
    notes = []
    with _session() as nvml:
        if nvml is None:
            return []
        for index, handle in enumerate(_visible(nvml)[:devices]):
            with contextlib.suppress(nvml.NVMLError):
                others = [p for p in nvml.nvmlDeviceGetComputeRunningProcesses(handle) if p.pid not in own]
                if others:
                    ids = ", ".join(str(process.pid) for process in others)
                    notes.append(f"another process uses cuda:{index} while it is timed (process {ids})")
            with contextlib.suppress(nvml.NVMLError):
                reasons = nvml.nvmlDeviceGetCurrentClocksEventReasons(handle)
                held = [text for bit, text in _THROTTLES.items() if reasons & bit]
                if held:
                    notes.append(f"cuda:{index} runs below its clock: {', '.join(held)}")
    return notes
