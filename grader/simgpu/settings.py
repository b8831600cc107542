"""What a process is told of the simulated machine that it is to see, in its environment."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import NamedTuple

# Every Python process that a simulated one starts imports this: nothing slow belongs here.
VARIABLE = "SIMGPU"
FIRST = "SIMGPU_FIRST"  # set for the process that `simgpu run` becomes, which takes it away
BOOTSTRAP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bootstrap")


class BadSettings(ValueError):
    """The environment's description of the machine cannot be read."""


class Settings(NamedTuple):
    """A simulated machine, and what is to be shown of what it did."""

    spec: str
    math: bool = True
    trace: str | None = None  # absolute path
    report: str | None = None
    explain: str | None = None  # "operator" or "module": the cost of one step by these, not a summary
    quiet: bool = False  # show nothing
    frames: bool = False  # show the simulation's own frames in tracebacks
    visible: str | None = None  # what the program says in CUDA_VISIBLE_DEVICES; None where it says nothing
    hiding: str | None = None  # a value of that variable which only hides real GPUs

    def variables(self, environment: Mapping[str, str]) -> dict[str, str]:
        """What to add to an environment, so that Python processes started with it see this machine."""
        known = environment.get("PYTHONPATH", "").split(os.pathsep)
        path = [BOOTSTRAP, *(folder for folder in known if folder and folder != BOOTSTRAP)]
        return {VARIABLE: self.text(), "PYTHONPATH": os.pathsep.join(path)}

    def text(self) -> str:
        """The settings as the text of the variable."""
        return json.dumps({name: value for name, value in self._asdict().items() if value is not None})

    def seeing(self, visible: str | None) -> Settings:
        """The settings of a program that says this in CUDA_VISIBLE_DEVICES."""
        return self._replace(visible=visible)


def of(environment: Mapping[str, str]) -> Settings | None:
    """The machine that an environment describes; None if it describes none. Raises BadSettings."""
    text = environment.get(VARIABLE)
    if not text:
        return None
    try:
        found = json.loads(text)
        if not isinstance(found["spec"], str):
            raise TypeError("spec is not a text")
        return Settings(**{name: value for name, value in found.items() if name in Settings._fields})
    except (ValueError, TypeError, KeyError) as fault:
        example = json.dumps({"spec": "2xT4"})
        raise BadSettings(
            f"the environment variable {VARIABLE} is {text!r}, which describes no machine ({fault}); "
            f"write for example {VARIABLE}='{example}'"
        ) from None
