"""Random numbers of the simulated GPUs: each has a generator of its own, as a real one has."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from ..machine import Machine


class Generators:
    """Seeds and states of the devices' generators."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    def of(self, device: Any = None) -> torch.Generator:
        """The generator of the device that is meant."""
        return self.machine.devices[self.machine.index(device)].generator

    def manual_seed(self, seed: int) -> None:
        """Seed the current device."""
        self.of().manual_seed(int(seed))

    def manual_seed_all(self, seed: int) -> None:
        """Seed every device."""
        for device in self.machine.devices:
            device.generator.manual_seed(int(seed))

    def seed(self) -> None:
        """Seed the current device with a random number."""
        self.of().seed()

    def seed_all(self) -> None:
        """Seed every device with one random number."""
        self.manual_seed_all(self.of().seed())

    def initial_seed(self) -> int:
        """The current device's seed."""
        return self.of().initial_seed()

    def get_rng_state(self, device: Any = "cuda") -> torch.Tensor:
        """The state of a device's generator, on the CPU."""
        return self.of(device).get_state()

    def set_rng_state(self, new_state: torch.Tensor, device: Any = "cuda") -> None:
        """Restore the state of a device's generator."""
        self.of(device).set_state(new_state)

    def get_rng_state_all(self) -> list[torch.Tensor]:
        """The states of all devices' generators."""
        return [device.generator.get_state() for device in self.machine.devices]

    def set_rng_state_all(self, new_states: Iterable[torch.Tensor]) -> None:
        """Restore the states of all devices' generators."""
        for device, state in zip(self.machine.devices, new_states, strict=False):
            device.generator.set_state(state)


def functions(machine: Machine) -> dict[str, Any]:
    """The names under torch.cuda, and torch.cuda.random, that this module answers."""
    generators = Generators(machine)
    names = [name for name in vars(Generators) if not name.startswith("_") and name != "of"]
    found = {name: getattr(generators, name) for name in names}
    inner = {f"random.{name}": function for name, function in found.items()}
    return {**found, **inner, "default_generators": tuple(device.generator for device in machine.devices)}
