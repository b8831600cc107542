"""Whether what a program printed or raised is what a quiz says."""

from __future__ import annotations

from grader.quiz.proof.runner import Outcome, Raised


def normalised(printed: str) -> str:
    """Without white space at the ends of lines and of the whole."""
    return "\n".join(line.rstrip() for line in printed.splitlines()).rstrip()


def raises(raised: Raised | None, said: str) -> bool:
    """Whether the exception is "Class: part of its message"."""
    kind, _, part = said.partition(":")
    if raised is None:
        return False
    same = kind.strip() in (raised.kind, raised.kind.rpartition(".")[2]) or (
        kind.strip().rpartition(".")[2] == raised.kind.rpartition(".")[2]
    )
    return same and " ".join(part.split()) in " ".join(raised.message.split())


def without_frames(message: str) -> str:
    """The message without the traceback that DataParallel puts into it: its paths are this computer's."""
    lines = message.splitlines()
    return "\n".join(
        line for line in lines if not line.startswith((" ", "Original Traceback", "Traceback ("))
    )


def told(outcome: Outcome) -> str:
    """How a program ended, in a few words."""
    if outcome.problem:
        return outcome.problem
    if outcome.raised is not None:
        message = " ".join(without_frames(outcome.raised.message).split())
        message = message if len(message) < 300 else f"{message[:140]} ... {message[-150:]}"
        return f"it raises {outcome.raised.kind}: {message}"
    lines = normalised(outcome.printed).splitlines()
    return f'it prints "{" / ".join(lines[:4])[:300]}"' if lines else "it runs to its end and prints nothing"
