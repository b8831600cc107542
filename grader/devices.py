"""Which GPUs a run is graded on: real ones, or simulated ones of a named profile."""

from __future__ import annotations

import re
from enum import StrEnum

from pydantic import BaseModel, ConfigDict


class DeviceKind(StrEnum):
    REAL = "real"
    SIMULATED = "simulated"


class Devices(BaseModel):
    """The GPUs of one grading."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: DeviceKind
    count: int
    profile: str  # name of the GPU profile, or of the real GPU
    graded: bool = True  # False for one real GPU: exercised, not graded

    @property
    def simulated(self) -> bool:
        return self.kind is DeviceKind.SIMULATED

    @property
    def label(self) -> str:
        """For people: "2 simulated T4" or "2 x NVIDIA H200"."""
        return f"{self.count} simulated {self.profile}" if self.simulated else f"{self.count} x {self.profile}"


class NoSuchDevices(Exception):
    """The choice is well formed, but this host does not have those GPUs (exit code 3)."""


class BadDeviceChoice(ValueError):
    """`--gpus` was given something it does not understand (exit code 2)."""


DEFAULT_SIMULATED = "2xT4"
_SPEC = re.compile(r"(?:(?P<count>\d+)(?:x(?P<profile>[\w.-]+))?|(?P<only>[A-Za-z][\w.-]*))$")
