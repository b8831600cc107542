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
        return (
            f"{self.count} simulated {self.profile}" if self.simulated else f"{self.count} x {self.profile}"
        )


class NoSuchDevices(Exception):
    """The choice is well formed, but this host does not have those GPUs (exit code 3)."""


class BadDeviceChoice(ValueError):
    """`--gpus` was given something it does not understand (exit code 2)."""


DEFAULT_SIMULATED = "2xT4"
MOST_SIMULATED = 16  # of one machine, as in the largest hosts that NVIDIA builds with one address space
_SPEC = re.compile(r"(?:(?P<count>\d+)(?:x(?P<profile>[\w.-]+))?|(?P<only>[A-Za-z][\w.-]*))$")


class Choice(BaseModel):
    """What `--gpus` asks for: a kind, and how many of what."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: DeviceKind | None = None  # None: real GPUs if enough are there, else simulated ones
    spec: str = ""  # of simulated GPUs, e.g. "4xV100"; empty: the exercise's own
    count: int | None = None  # of real GPUs; None: all


def parse_choice(text: str) -> Choice:
    """Parse `auto`, `real`, `real:1`, `sim`, `sim:4`, `sim:V100` or `sim:4xV100`; raises BadDeviceChoice."""
    kind, colon, argument = text.strip().partition(":")
    if kind == "auto" and not colon:
        return Choice()
    if kind == "real" and (not colon or argument.isascii() and argument.isdecimal() and int(argument) > 0):
        return Choice(kind=DeviceKind.REAL, count=int(argument) if colon else None)
    if kind == "sim" and (not colon or argument):
        if argument:
            _load_profile(argument)
        return Choice(kind=DeviceKind.SIMULATED, spec=argument)
    raise BadDeviceChoice(
        f"--gpus {text!r} is not a choice of GPUs; use auto, real, real:1, sim, or sim:COUNTxPROFILE "
        "as in sim:4xV100."
    )


def resolve(choice: Choice, simulated_spec: str, minimum: int) -> tuple[Devices, str | None]:
    """Return the devices for a choice, and the machine to simulate (None for real GPUs).

    `simulated_spec` is what the exercise simulates by default, `minimum` how many GPUs a graded run
    needs. Raises NoSuchDevices if real GPUs are asked for that the host does not have.
    """
    if choice.kind is not DeviceKind.SIMULATED:
        names = real_gpus()
        if choice.kind is DeviceKind.REAL:
            return _real(names, choice.count, minimum), None
        if len(names) >= minimum:
            return _real(names, None, minimum), None
    count, profile, spec = _load_profile(choice.spec or simulated_spec, simulated_spec)
    if count < minimum:
        raise BadDeviceChoice(
            f"--gpus sim:{choice.spec} asks for {count} GPU; this exercise needs at least {minimum}."
        )
    return Devices(kind=DeviceKind.SIMULATED, count=count, profile=profile), spec


def _real(names: list[str], count: int | None, minimum: int) -> Devices:
    wanted = count if count is not None else minimum
    if len(names) < wanted:
        have = "no GPU that torch can use" if not names else f"{len(names)} GPU ({names[0]})"
        asked = "--gpus real" if count is None else f"--gpus real:{count}"
        raise NoSuchDevices(
            f"{asked} needs {wanted} real GPU{'s' * (wanted != 1)} and this host has {have}; "
            "use --gpus sim for simulated ones."
        )
    used = count or len(names)
    return Devices(kind=DeviceKind.REAL, count=used, profile=names[0], graded=used >= minimum)


def real_gpus() -> list[str]:
    """Return the names of the GPUs that torch can use, without initialising CUDA in this process."""
    from grader.run import nvml

    if nvml.count() == 0:
        return []
    import torch

    usable = torch.cuda.device_count() if torch.version.cuda else 0
    return nvml.names()[:usable]


def _load_profile(spec: str, default: str = DEFAULT_SIMULATED) -> tuple[int, str, str]:
    """Return (count, profile name, full spec) of a spec that may leave out its count or its profile."""
    from grader.simgpu import profiles

    match = _SPEC.match(default)
    usual = match["profile"] if match and match["profile"] else "T4"
    if spec.isdecimal():
        spec = f"{spec}x{usual}"
    elif not spec[:1].isdecimal():
        count = match["count"] if match and match["count"] else "2"
        spec = f"{count}x{spec}"
    try:
        machine = profiles.load(spec)
    except ValueError as fault:
        raise BadDeviceChoice(f"--gpus sim:{spec}: {fault}") from None
    if machine.count > MOST_SIMULATED:
        raise BadDeviceChoice(f"--gpus sim:{spec}: at most {MOST_SIMULATED} GPUs can be simulated.")
    return machine.count, machine.profile.name, spec
