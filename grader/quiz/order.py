"""The order in which options are shown: the same for the same seed, in a terminal and in a browser.

`templates/quiz.js.j2` holds the same few lines in JavaScript. The hash is FNV-1a, the generator
mulberry32, both of 32 bits; options are exchanged from the end (Fisher and Yates).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

_32_BITS = 0xFFFFFFFF


def shown_order(seed: int, question: str, pinned: Sequence[bool], *, shuffle: bool = True) -> list[int]:
    """Return the options' positions in the file in the order they are shown.

    `question` is the question's id; an option that is `pinned` stays in its place.
    """
    order = list(range(len(pinned)))
    free = [position for position in order if not pinned[position]]
    if not shuffle or len(free) < 2:
        return order
    numbers = _mulberry32(_fnv1a(f"{seed}/{question}"))
    mixed = list(free)
    for last in range(len(mixed) - 1, 0, -1):
        other = next(numbers) % (last + 1)
        mixed[last], mixed[other] = mixed[other], mixed[last]
    for place, position in zip(free, mixed, strict=True):
        order[place] = position
    return order


def _fnv1a(text: str) -> int:
    value = 0x811C9DC5
    for byte in text.encode():
        value = ((value ^ byte) * 0x01000193) & _32_BITS
    return value


def _mulberry32(state: int) -> Iterator[int]:
    while True:
        state = (state + 0x6D2B79F5) & _32_BITS
        mixed = ((state ^ (state >> 15)) * (state | 1)) & _32_BITS
        mixed ^= (mixed + ((mixed ^ (mixed >> 7)) * (mixed | 61))) & _32_BITS
        yield (mixed ^ (mixed >> 14)) & _32_BITS
