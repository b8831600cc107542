"""What a process is told of the simulated machine that it is to see, in its environment."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path

VARIABLE = "SIMGPU"
FIRST = "SIMGPU_FIRST"  # set for the process that `simgpu run` becomes, which takes it away
BOOTSTRAP = Path(__file__).resolve().parent / "bootstrap"


class BadSettings(ValueError):
    """The environment's description of the machine cannot be read."""


@dataclass(frozen=True)
class Settings:
    """A simulated machine, and what is to be written about what it did."""

    spec: str
    math: bool = True
    trace: str | None = None  # absolute path
    report: str | None = None
    visible: str | None = None  # what the program says in CUDA_VISIBLE_DEVICES; None where it says nothing

    def variables(self, environment: Mapping[str, str]) -> dict[str, str]:
        """What to add to an environment, so that Python processes started with it see this machine."""
        known = environment.get("PYTHONPATH", "").split(os.pathsep)
        path = [str(BOOTSTRAP), *(folder for folder in known if folder and folder != str(BOOTSTRAP))]
        return {VARIABLE: json.dumps(asdict(self)), "PYTHONPATH": os.pathsep.join(path)}


def of(environment: Mapping[str, str]) -> Settings | None:
    """The machine that an environment describes; None if it describes none. Raises BadSettings."""
    text = environment.get(VARIABLE)
    if not text:
        return None
    try:
        found = json.loads(text)
        if not isinstance(found["spec"], str):
            raise TypeError("spec is not a text")
        known = {field.name for field in fields(Settings)}
        return Settings(**{name: value for name, value in found.items() if name in known})
    except (ValueError, TypeError, KeyError) as fault:
        example = json.dumps({"spec": "2xT4"})
        raise BadSettings(
            f"the environment variable {VARIABLE} is {text!r}, which describes no machine ({fault}); "
            f"write for example {VARIABLE}='{example}'"
        ) from None
