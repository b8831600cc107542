"""The handles of collectives: what `async_op=True` returns, and the futures of communication hooks.

Values are there at once, in virtual time they come when the collective ends: whoever waits makes the current
stream of the device wait for that moment, while the host goes on, as with NCCL.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch._C._distributed_c10d import Work

from ..clock import picoseconds
from ..surface import streams

if TYPE_CHECKING:
    from ..clock import Moment
    from ..machine import Machine


class Arrival:
    """A moment at which results are on a device."""

    def __init__(self, machine: Machine, device: int, moment: Moment) -> None:
        self.machine = machine
        self.device = device
        self.moment = moment

    def order(self) -> None:
        """Let the current stream of the device go on no earlier."""
        stream = streams.current(self.machine, self.device)
        self.machine.clocks.order(self.device, stream.stream_id, self.moment)

    def passed(self) -> bool:
        """Whether the host has reached the moment."""
        return picoseconds(self.machine.clocks.now()) >= self.moment[0]


class SimulatedWork(Work):
    """A collective under way. `host_waits`: waiting keeps the host, too, as that of a barrier does."""

    def __init__(self, arrival: Arrival, tensors: list[torch.Tensor], host_waits: bool = False) -> None:
        super().__init__()
        self._arrival = arrival
        self._tensors = tensors
        self.host_waits = host_waits

    def wait(self, timeout: Any = None) -> bool:
        """Make the current stream wait for the collective."""
        self._arrival.order()
        if self.host_waits:
            self._arrival.machine.clocks.wait_until(self._arrival.moment)
        return True

    def synchronize(self) -> None:
        """What wait() does."""
        self.wait()

    def block_current_stream(self) -> None:
        """Make the current stream, never the host, wait for the collective."""
        self._arrival.order()

    def is_completed(self) -> bool:
        """Whether the host has reached the end of the collective."""
        return self._arrival.passed()

    def is_success(self) -> bool:
        """A collective that fails raises when it is called."""
        return True

    def exception(self) -> None:
        """A collective that fails raises when it is called."""

    def result(self) -> list[torch.Tensor]:
        """The tensors that the collective fills."""
        return self._tensors

    def get_future(self) -> torch.futures.Future:
        """A future of `result()`."""
        future = DeviceFuture(self._arrival)
        future.set_result(self._tensors)
        return future


class DeviceFuture(torch.futures.Future):
    """A future whose value reaches the device at a moment of virtual time."""

    def __init__(self, arrival: Arrival) -> None:
        super().__init__()
        self._arrival = arrival

    def wait(self) -> Any:
        """The value; the current stream waits for it."""
        self._arrival.order()
        return super().wait()

    def then(self, callback: Callable[[Any], Any]) -> torch.futures.Future:
        """A future of what `callback` makes of this one, on a stream of its own."""
        machine, device = self._arrival.machine, self._arrival.device
        stream = torch.cuda.Stream(device)
        with torch.cuda.stream(stream):
            self._arrival.order()
            value = callback(self)
            moment = machine.clocks.moment(device, stream.stream_id)
        future = DeviceFuture(Arrival(machine, device, moment))
        future.set_result(value)
        return future
