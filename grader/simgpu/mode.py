"""The dispatch mode: every ATen operation of a simulated script passes through here, below autograd.

An operation finds its device from its inputs' tags or its `device` argument, runs on the CPU (with
arithmetic) or only has its shapes worked out (without), and leaves a tagged output and a
charged clock behind.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from . import adoption, asserts, cost, dtypes, known, unreal
from .clock import HOST, picoseconds
from .errors import NotSimulated
from .local import local
from .mismatch import mismatch
from .operators import Operator, least_bytes, signature, tensors_in
from .special import SPECIAL
from .surface import generators
from .survey import NOWHERE, survey
from .tags import FLOATING, PINNED, WITHOUT_STORAGE, Tag, device_index, tag_of

if TYPE_CHECKING:
    from .machine import Machine

aten = torch.ops.aten
_CPU = torch.device("cpu")
_in_backward = torch._C._current_autograd_node
_by_torch = torch._C._disabled_torch_dispatch_impl
_learned: dict[Any, Operator] = {}
_MOST_LEARNED = 20_000  # calls; a script whose shapes or numbers never repeat must not fill the memory
_ABOUT_TYPES = re.compile(r"type|not implemented for")
_NO_HOST_MEMORY = re.compile(r"you tried to allocate (\d+) bytes")


class Simulation(TorchDispatchMode):
    """Runs the operations of one thread on a machine's simulated GPUs."""

    def __init__(self, machine: Machine) -> None:
        super().__init__()
        self.machine = machine
        # The same operator on the same shapes takes the same time, and gives the same shapes.
        self._lengths: dict[Any, Any] = machine.known_lengths
        self._specs = machine.known_specs

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        here = local
        if types and any(kind.__torch_dispatch__ is not _by_torch for kind in types):
            return NotImplemented  # a class of tensors that takes operators apart itself; they come back here
        if here.inside:
            return func(*args, **kwargs) if kwargs else func(*args)
        here.inside = 1
        try:
            if not here.observed:
                return func(*args, **kwargs) if kwargs else func(*args)
            operator = _learned.get(func)
            if operator is None:
                operator = _learned[func] = Operator(func)
                operator.run = dtypes.runner(operator)
                operator.plain = operator.plain and operator.packet not in SPECIAL
            if operator.composed:  # as inference mode gives them; autograd has taken them apart before
                here.inside = 0
                with self:
                    return func.decompose(*args, **(kwargs or {}))
            if operator.plain and not kwargs and self.machine.math:
                key: list[Any] = []
                device = survey(args, key)
                if device is not None and device != NOWHERE:
                    return self._plain(operator, args, device, key)
            return self._run(operator, args, kwargs or {})
        finally:
            here.inside = 0

    def _plain(self, operator: Operator, args: tuple, device: int, key: list[Any]) -> Any:
        """Run an operator whose inputs are all in one place, as nearly always. Written to be fast."""
        machine = self.machine
        if device == HOST:
            out = operator.func(*args)
            machine.clocks.cpu_operator(operator.name)
            return out
        if machine.poisoned:
            machine.raise_poison(device)
        try:
            out = operator.run(*args)
        except (RuntimeError, IndexError) as error:
            out = self._failed(operator, args, {}, error, device)
        if operator.is_view:
            return out
        if type(out) is torch.Tensor:
            try:
                storage = out.untyped_storage()
            except WITHOUT_STORAGE:
                self._place(out, device, operator)
                storage = None
            if storage is None:
                pass
            elif storage._simulated is None:  # type: ignore[attr-defined]
                storage._simulated = machine.devices[device].allocate(storage.nbytes(), operator.name)  # type: ignore[attr-defined]
            elif storage._simulated is FLOATING:  # type: ignore[attr-defined]
                machine.place(out, device, operator.name)
        else:
            self._place(out, device, operator)
        known = self._lengths.get(operator)
        if known is None:
            known = self._lengths[operator] = {}
        length = known.get(tuple(key))
        if length is None:
            length = known[tuple(key)] = self._length(operator, args, {}, out)
        machine.clocks.kernel(device, length, operator.name, _in_backward() is not None)
        return out

    def _run(self, operator: Operator, args: tuple, kwargs: dict[str, Any]) -> Any:
        tensors = tensors_in(args, kwargs)
        tags = [tag_of(tensor) for tensor in tensors]
        wanted = kwargs.get("device") if operator.takes_device else None
        on_gpu = wanted is not None and wanted.type == "cuda"
        if not on_gpu and not any(tags):
            return self.on_host(operator, args, kwargs)
        special = SPECIAL.get(operator.packet)
        if special is not None:
            return special(self, operator, args, kwargs)
        device: int | None
        if wanted is not None and on_gpu:
            # The inputs of new_zeros, zeros_like and the like only lend their shape and type.
            device = self.machine.index(wanted)
        else:
            device = self.common_device(operator, args, kwargs, tensors, tags)
        if device is None:
            out = self.on_host(operator, args, kwargs)
            return adoption.mark(self.machine, out, tensors)
        return self.on_device(operator, args, kwargs, device)

    def on_host(self, operator: Operator, args: tuple, kwargs: dict[str, Any]) -> Any:
        """Run an operator on CPU tensors alone and charge the host; what C++ made may yet adopt a device."""
        pinned = operator.takes_pinned and kwargs.get("pin_memory")
        if pinned or operator.packet is aten._pin_memory:
            return self._pinned(operator, args, kwargs)
        if operator.generator:
            self._generator(kwargs, None)
        out = operator.func(*args, **kwargs)
        if not operator.marker:
            self.machine.clocks.cpu_operator(operator.name)
        if adoption.from_cpp(operator, kwargs):
            adoption.mark(self.machine, out)
        return out

    def _pinned(self, operator: Operator, args: tuple, kwargs: dict[str, Any]) -> torch.Tensor:
        if operator.packet is aten._pin_memory:
            out = args[0].clone()
        else:
            out = operator.func(*args, **{**kwargs, "pin_memory": False})
        self.machine.clocks.cpu_operator(operator.name)
        out.untyped_storage()._simulated = PINNED
        return out

    def common_device(
        self,
        operator: Operator,
        args: tuple,
        kwargs: dict[str, Any],
        tensors: list[torch.Tensor],
        tags: list[Tag | None],
    ) -> int | None:
        """Index of the GPU that all inputs are on, None for the host. What floats is placed there.

        Raises what CUDA raises for inputs on several devices.
        """
        device = next((tag.device for tag in tags if tag is not None and tag.device is not None), None)
        if device is None:
            return None
        for tensor, tag in zip(tensors, tags, strict=True):
            if tag is not None and tag.device == device:
                continue
            if tag is not None and tag.device is None and adoption.adopts(tag):
                self.machine.place(tensor, device)
            elif operator.foreach and tag is not None and tag.device is not None:
                continue  # a list over several devices, which CUDA walks through one by one
            elif device_index(tensor) is not None or not operator.may_be_on_host(tensor, args, kwargs):
                raise mismatch(operator.func, args, kwargs, device_index)
        return device

    def on_device(self, operator: Operator, args: tuple, kwargs: dict[str, Any], device: int) -> Any:
        """Run an operator on a GPU: compute or imagine it, place what it made, charge the clocks.

        Raises what CUDA raises for it; a poisoned device refuses everything.
        """
        machine = self.machine
        if machine.poisoned:
            machine.raise_poison(device)
        if operator.takes_device and kwargs.get("device") is not None:
            kwargs = {**kwargs, "device": _CPU}
        if operator.takes_pinned and kwargs.get("pin_memory"):
            raise RuntimeError("Only dense CPU tensors can be pinned")
        if operator.generator:
            kwargs = {**kwargs, "generator": self._generator(kwargs, device)}
        if operator.takes_device and machine.math:
            machine.devices[device].refuse(least_bytes(operator, args, kwargs))
        key = None if operator.free else (operator.func, *signature(args, kwargs))
        try:
            if not machine.math:
                out = self._unreal(operator, args, kwargs, key, device)
            elif operator.random:
                with generators.as_default(machine.devices[device].generator):
                    out = operator.func(*args, **kwargs)
            else:
                out = operator.run(*args, **kwargs)
        except (RuntimeError, IndexError) as error:
            out = self._failed(operator, args, kwargs, error, device)
        self._place(out, device, operator)
        if key is not None:
            length = self._lengths.get(key)
            if length is None:
                length = self._lengths[key] = self._length(operator, args, kwargs, out)
            machine.clocks.kernel(device, length, operator.name, _in_backward() is not None)
        return out

    def _generator(self, kwargs: dict[str, Any], device: int | None) -> torch.Generator | None:
        given = kwargs.get("generator")
        if given is not None:
            generators.check(given, device)
        elif device is not None:
            return self.machine.devices[device].generator
        return given

    def _unreal(
        self, operator: Operator, args: tuple, kwargs: dict[str, Any], key: tuple | None, device: int
    ) -> Any:
        """Run an operator without arithmetic."""
        if key is None or operator.resizes:
            return operator.func(*args, **kwargs)
        if known.computable(operator, args, kwargs):
            out = operator.func(*args, **kwargs)
            self._place(out, device, operator)
            known.mark(out)
            return out
        written, out = unreal.at_once(operator, args, kwargs)
        if written:
            if key not in self._specs:
                unreal.check(operator, args, kwargs)
                self._specs[key] = None
            return out
        specs = self._specs.get(key)
        if specs is None:
            specs = self._specs[key] = unreal.shapes(operator, args, kwargs)
        return unreal.make(specs)

    def _place(self, out: Any, device: int, operator: Operator) -> None:
        if isinstance(out, torch.Tensor):
            tag = tag_of(out)
            if tag is None or tag is FLOATING or operator.resizes:
                self.machine.place(out, device, operator.name)
        elif isinstance(out, list | tuple):
            for position, item in enumerate(out):
                if position not in operator.host_results:
                    self._place(item, device, operator)

    def _length(self, operator: Operator, args: tuple, kwargs: dict[str, Any], out: Any) -> int:
        """Picoseconds for which the device is busy. Raises where CUDA does not have the operator's type."""
        machine = self.machine
        if machine.learned >= _MOST_LEARNED:
            machine.learned = 0
            self._lengths.clear()
            self._specs.clear()
        machine.learned += 1
        dtypes.refuse(operator, args)
        return picoseconds(cost.seconds(operator.func, args, kwargs, out, machine.profile.gpu))

    def _failed(
        self, operator: Operator, args: tuple, kwargs: dict[str, Any], error: Exception, device: int
    ) -> Any:
        """Say what CUDA would have said where the CPU's operator failed."""
        if isinstance(error, NotSimulated):
            raise error
        text = str(error)
        if _ABOUT_TYPES.search(text):
            dtypes.refuse(operator, args)
        if "not implemented for" in text:
            return dtypes.widened(operator, args, kwargs, error)
        if text.startswith("Could not run"):
            raise NotSimulated(f"aten::{operator.name}") from error
        refused = _NO_HOST_MEMORY.search(text)
        if refused:
            try:
                self.machine.devices[device].refuse(int(refused[1]))
            except torch.OutOfMemoryError as out_of_memory:
                raise out_of_memory from None  # what this computer's memory said is of no interest
        return asserts.translate(self.machine, operator, args, kwargs, error, device)
