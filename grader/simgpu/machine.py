"""A machine of simulated GPUs, put under the running Python process and taken away again."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch._dynamo  # or the first dispatch would, and find CUDA without CUDA's own functions

from . import (
    children,
    comm,
    composites,
    forks,
    hosttime,
    precision,
    profiles,
    surface,
    threads,
    transfers,
    visible,
)
from .clock import Clocks
from .errors import RuntimeFailure, invalid_ordinal
from .local import inside, local, unobserved
from .memory import Mark, Meter
from .mode import Simulation
from .patches import Patches
from .tags import ATTRIBUTE, Tag, storages, tag_of
from .timeline import Timeline, module_running

_installed: Machine | None = None


def installed() -> Machine | None:
    """The machine that is installed in this process."""
    return _installed


class RealGPUs(RuntimeError):
    """Real GPUs are visible to a process that is to see simulated ones."""


class Device:
    """One simulated GPU."""

    def __init__(self, index: int, capacity: int, clocks: Clocks) -> None:
        self.index = index
        self.memory = Meter(capacity, index)
        self.generator = torch.Generator()
        self.poison: str | None = None  # the text of a failed device-side assertion
        self._clocks = clocks
        self._held: list[tuple[float, int]] = []  # bytes that a stream uses until so many seconds

    @property
    def busy_seconds(self) -> float:
        """Virtual seconds in which this device has computed or copied."""
        return self._clocks.busy(self.index)

    @property
    def ready(self) -> float:
        """Virtual second at which this device will have done what it was given so far."""
        return self._clocks.ready(self.index)

    @property
    def history(self) -> list[Mark]:
        """What was allocated when, since `memory.record()`."""
        return self.memory.history

    def allocate(self, nbytes: int, name: str = "") -> Tag:
        """Take memory for a storage, made by the operator `name`; the tag gives it back. Raises
        torch.OutOfMemoryError."""
        memory = self.memory
        if self._held:
            self.release()
            if self._held and memory.allocated + memory.held + nbytes > memory.limit:
                self._clocks.wait(self.index)  # as the allocator does before it gives up
                self.release()
        if not memory.recording:
            return Tag(self.index, memory.allocate(nbytes), self)
        phase = local.phase if torch._C._current_autograd_node() is None else "backward"
        label = f"{module_running()}|{name}|{phase}"
        return Tag(self.index, memory.allocate(nbytes, self._clocks.now(), label), self, label)

    def refuse(self, nbytes: int) -> None:
        """Raise torch.OutOfMemoryError if so many bytes do not fit, before anyone computes them."""
        if self.memory.allocated + self.memory.held + nbytes > self.memory.limit:
            self.allocate(nbytes)

    def free(self, tag: Tag) -> None:
        """Give back what a tag held; others get it once the streams that record_stream() named are done."""
        if tag.streams:
            done = max(self._clocks.ready(self.index, stream) for stream in tag.streams)
            if done > self._clocks.now():
                self._held.append((done, tag.nbytes))
                self.memory.held += tag.nbytes
        if self.memory.recording:
            self.memory.free(tag.nbytes, self._clocks.now(), tag.label)
        else:
            self.memory.free(tag.nbytes)

    def release(self) -> None:
        """Let others have what streams have done with by now."""
        now = self._clocks.now()
        held, self._held = self._held, []
        for done, nbytes in held:
            if done <= now:
                self.memory.held -= nbytes
            else:
                self._held.append((done, nbytes))


class Machine:
    """`spec` names count and profile ("2xT4", "2x/path/to/profile.yaml").

    With `math`, operations are computed on the CPU; without, tensors of a GPU have shapes and types but no
    values: reading one gives 0, copying one to the host gives zeros. The clocks are the same in both. With
    `ranges` they also keep the time under the host figures' low and high ends (`clocks.now_range()`).
    Raises `profiles.BadProfile`.
    """

    def __init__(self, spec: str = "2xT4", math: bool = True, ranges: bool = False) -> None:
        self.spec = spec
        self.count, self.profile = profiles.load(spec)
        self.math = math
        self.poisoned = False  # whether any device is
        self.timeline = Timeline()
        self.clocks = Clocks(self.profile, self.count, self.timeline, ranges)
        self.devices = [Device(i, self.profile.gpu.memory_bytes, self.clocks) for i in range(self.count)]
        self.visible = list(range(self.count))  # which of the computer's GPUs these are
        self._every = self.devices
        self.known_lengths: dict[Any, Any] = {}  # picoseconds of kernels
        self.known_specs: dict[tuple, Any] = {}
        self.learned = 0  # how many calls are known by now
        self._patches = Patches()

    def install(self) -> None:
        """Make torch in this process see the simulated GPUs.

        Raises RealGPUs where real ones are visible, RuntimeError while another machine is installed.
        """
        global _installed
        if _installed is not None:
            raise RuntimeError("another simulated machine is installed; uninstall it first")
        self._refuse_real_gpus()
        _installed = self
        try:
            self._enter()
        except BaseException:
            self.uninstall()
            raise

    def _enter(self) -> None:
        patches = self._patches
        patches.set(torch.UntypedStorage, ATTRIBUTE, None)
        surface.install(self, patches)
        precision.install(self, patches)
        forks.install(self, patches)
        children.install(self, patches)
        composites.install(self, patches)
        comm.Communication(self).install(patches)
        threads.install(patches, self.clocks, self._simulated)
        hosttime.install(patches, self.clocks)
        context = self._simulated()
        context.__enter__()
        patches.finally_do(functools.partial(context.__exit__, None, None, None))

    def uninstall(self) -> None:
        """Undo everything that `install` did. Tensors of the simulated GPUs become ordinary ones."""
        global _installed
        if _installed is self:
            self._patches.undo()
            _installed = None

    def restrict(self, numbers: list[int]) -> None:
        """Leave only some of the computer's GPUs, in this order, before any of them was used."""
        self.visible, self.count = numbers, len(numbers)
        self.devices = self._every[: self.count]

    def _refuse_real_gpus(self) -> None:
        if not visible.are_hidden() and torch.version.cuda is not None and torch.cuda.device_count() > 0:
            raise RealGPUs(
                "simulated GPUs need the real ones hidden: set CUDA_VISIBLE_DEVICES to the empty string "
                "before torch is imported"
            )

    @contextmanager
    def _simulated(self) -> Iterator[None]:
        """What a thread runs in: the dispatch mode, and the flags that torch keeps for each thread."""
        if hasattr(torch._C, "_ensureCUDADeviceGuardSet"):
            torch._C._ensureCUDADeviceGuardSet()
        before = torch._C._only_lift_cpu_tensors()
        torch._C._set_only_lift_cpu_tensors(True)
        local.device, local.streams = 0, None
        observed, local.observed = local.observed, True
        try:
            with Simulation(self):
                yield
        finally:
            local.observed = observed
            torch._C._set_only_lift_cpu_tensors(before)

    @property
    def current(self) -> int:
        """Index of the calling thread's current device."""
        return local.device

    def check(self, index: int) -> int:
        """The index, if such a GPU exists. Raises CUDA's error for an invalid ordinal otherwise."""
        if not 0 <= index < self.count:
            raise invalid_ordinal()
        return index

    def index(self, device: torch.device | str | int | None) -> int:
        """Index of the GPU that is meant; no index means the current one."""
        if isinstance(device, str):
            device = torch.device(device)
        if isinstance(device, torch.device):
            device = device.index
        if not self.count:  # CUDA_VISIBLE_DEVICES left none
            raise RuntimeError("No CUDA GPUs are available")
        return local.device if device is None else self.check(device)

    def poison(self, index: int, text: str) -> None:
        """A device-side assertion failed: nothing on that device works again in this process."""
        self.devices[index].poison = self.devices[index].poison or text
        self.poisoned = True

    def raise_poison(self, index: int | None = None) -> None:
        """Raise what CUDA reports once an assertion on the device (None: any device) has failed."""
        if self.poisoned:
            for device in self.devices if index is None else (self.devices[index],):
                if device.poison is not None:
                    raise RuntimeFailure(device.poison)

    def place(self, tensor: torch.Tensor, index: int, name: str = "") -> None:
        """Let the tensor's storage live on a GPU and take its bytes there. Raises torch.OutOfMemoryError."""
        for storage in storages(tensor):
            tag = storage._simulated  # type: ignore[attr-defined]
            nbytes = storage.nbytes()
            if tag is None or tag.device is None:
                storage._simulated = self.devices[index].allocate(nbytes, name)  # type: ignore[attr-defined]
            elif tag.memory is not None and nbytes > tag.nbytes:  # grown by resize_ or an out= argument
                storage._simulated = self.devices[tag.device].allocate(nbytes, name)  # type: ignore[attr-defined]

    def charge_transfer(
        self, source: torch.Tensor, origin: int | None, target: int | None, non_blocking: bool
    ) -> None:
        """Charge the clocks with moving a tensor; None is host memory."""
        transfers.charge(self, source, origin, target, non_blocking)

    def synchronize(self) -> float:
        """Wait for all devices; the host's virtual seconds after that."""
        return self.clocks.wait()

    def now(self) -> float:
        """The host's virtual seconds, without waiting for anything."""
        return self.clocks.now()


def physical(tensor: torch.Tensor) -> torch.Tensor:
    """The plain CPU tensor with the values of a simulated one: detached, sharing its memory if dense.

    It says that it is on the CPU and is not charged. Without arithmetic the values mean nothing.
    """
    if _installed is None:
        return tensor.detach()
    with unobserved(), inside(), torch.no_grad():
        if tag_of(tensor) is None:
            return tensor.detach()
        if tensor.layout is not torch.strided or tensor.is_conj() or tensor.is_neg():
            return tensor.detach().clone().resolve_conj().resolve_neg()
        return torch.from_dlpack(tensor.detach())


@contextmanager
def simulate(spec: str = "2xT4", math: bool = True) -> Iterator[Machine]:
    """Simulated GPUs for the length of a `with` block."""
    machine = Machine(spec, math)
    machine.install()
    try:
        yield machine
    finally:
        machine.uninstall()
