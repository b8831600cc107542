"""What is kept of a proof: what ran where, and what came out."""

from __future__ import annotations

import re

from pydantic import BaseModel, ConfigDict, Field


class Run(BaseModel):
    """One program that was run to its end."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str  # "program", "fix", or "option B"
    gpus: str  # as 2xT4
    printed: str = ""
    raised: str | None = None  # class and message of the exception that ended it
    seconds: float = Field(ge=0)  # of this computer, not simulated


class Record(BaseModel):
    """The proof of one question's key. Every GPU in it is simulated."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    hash: str  # grader.quiz.identity.proof_hash of the question that was proven
    torch: str  # as 2.14.1
    gpus: list[str] = Field(min_length=1)  # as ["2xT4"]
    processes: int = Field(1, ge=1)
    runs: list[Run] = Field(min_length=1)

    @property
    def seconds(self) -> float:
        """How long all runs took on this computer."""
        return sum(run.seconds for run in self.runs)

    @property
    def sentence(self) -> str:
        """For people: "verified on 2 simulated T4, torch 2.14"."""
        devices = " and on ".join(_simulated(gpus) for gpus in self.gpus)
        spread = f" in {self.processes} processes" if self.processes > 1 else ""
        return f"verified on {devices}{spread}, torch {'.'.join(self.torch.split('.')[:2])}"


def _simulated(gpus: str) -> str:
    count, profile = re.fullmatch(r"(?:(\d+)x)?(.+)", gpus).groups()  # type: ignore[union-attr]
    return f"{count or 1} simulated {profile}"
