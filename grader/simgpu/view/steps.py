"""Where the steps of a run are: what the clocks showed each time that a step ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .record import Counters, Total

if TYPE_CHECKING:
    from ..clock import Clocks

MOMENTS = 10_000  # kept of a long run; the mean goes on


class Steps:
    """Counts how often one thing happens that happens once a step; others of its kind are ignored."""

    def __init__(self, clocks: Clocks) -> None:
        self._clocks = clocks
        self._owner: int | None = None
        self.count = 0
        self.moments: list[float] = []
        self._first: Counters | None = None
        self._last: Counters | None = None

    def mark(self, owner: object) -> None:
        """A step ends here, for `owner`: whoever is first, such as the first of a GAN's two optimizers."""
        if self._owner is None:
            self._owner = id(owner)
        if id(owner) != self._owner:
            return
        self.count += 1
        self._last = counters(self._clocks)
        self._first = self._first or self._last
        if len(self.moments) < MOMENTS:
            self.moments.append(self._last.now)

    @property
    def mean(self) -> Counters | None:
        """What a step took on the average, the first left out; None before there were two."""
        if self.count < 2 or self._first is None or self._last is None:
            return None
        return self._last.since(self._first, self.count - 1)


def counters(clocks: Clocks) -> Counters:
    """How far the clocks are."""
    devices = range(clocks.count)
    return Counters(
        clocks.done_range()[1],
        clocks.spent,
        [clocks.busy(device) for device in devices],
        [clocks.copying(device) for device in devices],
        [clocks.communicating(device) for device in devices],
        {kind: Total(*total) for kind, total in (clocks.totals or {}).items()},
    )
