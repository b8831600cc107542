"""The memory of one simulated device: bytes alive, the peak, and the refusal past the capacity."""

from __future__ import annotations

import threading
from typing import NamedTuple

BLOCK = 512  # kMinBlockSize of c10/cuda/CUDACachingAllocator.cpp: sizes are rounded up to it
SEGMENT = 2 * 1024 * 1024  # kSmallBuffer of the same file: what is reserved comes in multiples of it


class Mark(NamedTuple):
    """A point of the history: after this virtual second, so many bytes were allocated.

    `change` is what was taken (or, negative, given back), and `label` what for: "module|operator|phase".
    """

    seconds: float
    allocated: int
    change: int = 0
    label: str = ""


def rounded(nbytes: int) -> int:
    """Return `nbytes` as CUDA's caching allocator accounts for it: a multiple of 512 (0 for nothing)."""
    return -(-nbytes // BLOCK) * BLOCK


class Meter:
    """Counts what lives on device `device_index`, which has `capacity_bytes`.

    Rounding is CUDA's; its splitting of larger blocks, and so fragmentation, is not imitated:
    what fits here may still fail on a real card whose memory is in pieces.
    """

    def __init__(self, capacity_bytes: int, device_index: int) -> None:
        self.capacity = capacity_bytes
        self.limit = capacity_bytes  # what this process may use: set_per_process_memory_fraction
        self.device_index = device_index
        self.allocated = 0
        self.held = 0  # of tensors that are gone, in use by a stream that record_stream() named
        self.peak = 0
        self.reserved = 0
        self.peak_reserved = 0
        self.allocations = 0  # how many there were, and how many of them were given back
        self.freed = 0
        self.allocated_bytes = 0  # of all allocations together
        self.out_of_memory = 0  # how often
        self._history: list[Mark] | None = None
        self._limit: int | None = None
        self._lock = threading.RLock()  # re-entered when a collection during allocate() frees

    @property
    def recording(self) -> bool:
        """Whether a history is kept."""
        return self._history is not None

    def allocate(self, nbytes: int, seconds: float = 0.0, label: str = "") -> int:
        """Take `nbytes` at virtual second `seconds`; return the rounded size, which `free` is to be given.

        Raises torch.OutOfMemoryError, in CUDA's words, when the device does not have them.
        """
        size = -(-nbytes // BLOCK) * BLOCK
        with self._lock:
            allocated = self.allocated + size
            in_use = allocated + self.held
            if in_use > self.limit:
                self._refuse(nbytes)
            self.allocated = allocated
            self.allocations += 1
            self.allocated_bytes += size
            if allocated > self.peak:
                self.peak = allocated
            if in_use > self.reserved:
                self.reserved = min(-(-in_use // SEGMENT) * SEGMENT, self.capacity)
                self.peak_reserved = max(self.peak_reserved, self.reserved)
            if self._history is not None:
                self._mark(Mark(seconds, allocated, size, label))
        return size

    def free(self, size: int, seconds: float = 0.0, label: str = "") -> None:
        """Give back a size that `allocate` returned."""
        with self._lock:
            self.allocated -= size
            self.freed += 1
            if self._history is not None:
                self._mark(Mark(seconds, self.allocated, -size, label))

    def _mark(self, mark: Mark) -> None:
        assert self._history is not None
        if self._limit is None or len(self._history) < self._limit:
            self._history.append(mark)

    def reset_peak(self) -> None:
        """Forget the peak, as torch.cuda.reset_peak_memory_stats does."""
        with self._lock:
            self.peak = self.allocated
            self.peak_reserved = self.reserved

    def reset_accumulated(self) -> None:
        """Count from here on, as torch.cuda.reset_accumulated_memory_stats does."""
        with self._lock:
            self.allocations -= self.freed
            self.freed = 0
            self.allocated_bytes = self.allocated

    def empty_cache(self) -> None:
        """Return what is reserved but unused to the device, as torch.cuda.empty_cache does."""
        with self._lock:
            self.reserved = min(-(-(self.allocated + self.held) // SEGMENT) * SEGMENT, self.capacity)

    def record(self, limit: int | None = None) -> None:
        """Begin a fresh history, which ends after `limit` marks."""
        self._history, self._limit = [], limit

    def stop(self) -> list[Mark]:
        """End the history and return it."""
        marks, self._history = self._history or [], None
        return marks

    @property
    def history(self) -> list[Mark]:
        """The changes since `record()`, in the order in which they happened; empty if never asked for."""
        return list(self._history or ())

    def _refuse(self, nbytes: int) -> None:
        from torch import OutOfMemoryError

        self.out_of_memory += 1
        self.empty_cache()  # CUDA, too, gives up only after returning its cache
        raise OutOfMemoryError(
            f"CUDA out of memory. Tried to allocate {size_text(nbytes)}. "
            f"GPU {self.device_index} has a total capacity of {size_text(self.capacity)} "
            f"of which {size_text(self.capacity - self.reserved)} is free. "
            f"Including non-PyTorch memory, this process has {size_text(self.reserved)} memory in use. "
            f"{f'{size_text(self.limit)} allowed; ' if self.limit < self.capacity else ''}"
            f"Of the allocated memory {size_text(self.allocated)} is allocated by PyTorch, "
            f"and {size_text(self.reserved - self.allocated)} is reserved by PyTorch but unallocated. "
            "If reserved but unallocated memory is large try setting "
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  "
            "See documentation for Memory Management  "
            "(https://docs.pytorch.org/docs/stable/notes/cuda.html"
            "#optimizing-memory-usage-with-pytorch-cuda-alloc-conf)"
        )


def size_text(nbytes: int) -> str:
    """Return a size as CUDA's messages print it: bytes, KiB, MiB or GiB with two decimals."""
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if nbytes >= size:
            return f"{nbytes / size:.2f} {unit}"
    return f"{nbytes} bytes"
