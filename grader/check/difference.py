"""What a submission does differently from the baseline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from grader.evidence import Site


@dataclass(frozen=True)
class Difference:
    """One departure from the baseline.

    `kind` names what departs, so that the same departure in two runs is told once. `changes_work` is
    True where an epoch then does other work than the baseline's, so that their times do not compare.
    `consequence` is True for what any other difference may bring about, and is told only without one.
    """

    kind: str
    text: str
    changes_work: bool = False
    site: Site | None = None
    consequence: bool = False

    def __str__(self) -> str:
        return f"{self.text} ({self.site})" if self.site else self.text


def merged(runs: Sequence[tuple[str, Sequence[Difference]]]) -> list[Difference]:
    """Join the differences of several named runs, each kind once, the first run's words preferred.

    One that the first run does not show is said to be another run's own.
    """
    found: dict[str, Difference] = {}
    for place, (name, differences) in enumerate(runs):
        for item in differences:
            text = f"in the {name} only: {item.text}" if place else item.text
            found.setdefault(item.kind, replace(item, text=text))
    causes = [item for item in found.values() if not item.consequence]
    return causes or list(found.values())[:1]


def some(names: Sequence[str], limit: int = 4) -> str:
    """List a few names, and say how many more there are."""
    rest = len(names) - limit
    return ", ".join(names[:limit]) + (f" and {rest} more" if rest > 0 else "")


def counted(number: int, noun: str) -> str:
    """ "1 step", "2 steps", "2 batches"."""
    plural = f"{noun}es" if noun.endswith(("ch", "s", "x")) else f"{noun}s"
    return f"{number:,} {noun if number == 1 else plural}"
