"""What computes on a simulated device, and when it is free."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence


def _end_of(gap: tuple[int, int]) -> int:
    return gap[1]


class Engine:
    """What computes on one device: one kernel at a time, for all of its streams.

    A kernel of another stream may slip into the time in which one is waited for; a kernel that has begun is
    never interrupted. Real devices also run small kernels side by side, which is not simulated.
    """

    __slots__ = ("free", "gaps")

    def __init__(self, free: int = 0, gaps: Sequence[tuple[int, int]] = ()) -> None:
        self.free = free
        self.gaps = list(gaps)

    def reserve(self, ready: int, length: int, launched: int) -> int:
        """Return when a kernel starts that could from `ready` on. Launches come in order of `launched`."""
        if self.gaps:
            start = self._in_a_gap(ready, length, launched)
            if start is not None:
                return start
        start = max(ready, self.free)
        idle_from = max(self.free, launched)
        if start > idle_from:
            self.gaps.append((idle_from, start))
        self.free = start + length
        return start

    def _in_a_gap(self, ready: int, length: int, launched: int) -> int | None:
        # They are in order of time. A host that runs far ahead leaves many, of which none may be long enough.
        passed = bisect_right(self.gaps, launched, key=_end_of)
        del self.gaps[:passed]
        for position in range(bisect_left(self.gaps, ready + length, key=_end_of), len(self.gaps)):
            begin, end = self.gaps[position]
            start = max(begin, ready)
            if start + length <= end:
                rest = [(begin, start), (start + length, end)]
                self.gaps[position : position + 1] = [(a, b) for a, b in rest if b > a]
                return start
        return None

    def copy(self) -> Engine:
        """Return an independent copy."""
        return Engine(self.free, self.gaps)
