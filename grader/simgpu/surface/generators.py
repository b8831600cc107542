"""Random numbers of the simulated GPUs: each has a generator of its own, as a real one has.

They are those of the CPU's generator for another seed, not the ones that a real GPU draws: the same seed
gives other numbers than on the CPU, and the same on every simulated GPU.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from ..patches import Patches

if TYPE_CHECKING:
    from ..machine import Machine


_OTHER_THAN_THE_CPU = 0x9E3779B97F4A7C15  # mixed into seeds; any number would do
_SEEDS = 1 << 64
_made: weakref.WeakValueDictionary[int, Generator] = weakref.WeakValueDictionary()


class _AnyGenerator(type(torch.Generator)):  # type: ignore[misc]
    def __instancecheck__(cls, instance: object) -> bool:
        return issubclass(type(instance), torch._C.Generator)


class Generator(torch._C.Generator, metaclass=_AnyGenerator):
    """Stands in for torch.Generator: one "for" a GPU draws on the CPU and says that it is the GPU's."""

    machine: Machine
    simulated: torch.device

    def __new__(cls, device: Any = "cpu") -> Generator:
        made = super().__new__(cls)
        wanted = torch.device(device)
        if wanted.type == "cuda":
            wanted = torch.device("cuda", cls.machine.index(wanted))
        made.simulated = wanted
        if wanted.type == "cuda":
            made.manual_seed(made.initial_seed())
        # The dispatcher hands on another Python object for the same generator.
        _made[made._cdata] = made  # type: ignore[attr-defined]
        return made

    def __init__(self, device: Any = "cpu") -> None: ...

    def manual_seed(self, seed: int) -> Generator:
        """Begin anew from a seed."""
        if self.simulated.type == "cuda":
            if not -_SEEDS // 2 <= int(seed) < _SEEDS:
                raise RuntimeError(
                    f"Overflow when unpacking long long: the seed {seed} has more than 64 bits"
                )
            seed = int(seed) % _SEEDS ^ _OTHER_THAN_THE_CPU
        super().manual_seed(seed)
        return self

    def initial_seed(self) -> int:
        """The seed that it began from."""
        seed = super().initial_seed()
        return seed ^ _OTHER_THAN_THE_CPU if self.simulated.type == "cuda" else seed

    def seed(self) -> int:
        """Begin anew from a seed of the operating system's, and return it."""
        seed = super().seed()
        if self.simulated.type == "cuda":
            self.manual_seed(seed)
        return seed

    def clone_state(self) -> Generator:
        """Another generator that goes on from where this one is."""
        clone = type(self)(self.simulated)
        clone.set_state(self.get_state())
        return clone

    def __deepcopy__(self, memo: Any) -> Generator:
        return self.clone_state()

    def __repr__(self) -> str:
        return f"<torch._C.Generator object at {id(self):#x}>"

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        """Where it says that it draws."""
        return self.simulated


def check(generator: Any, device: int | None) -> None:
    """Refuse a generator of the other kind of device, in torch's words."""
    wanted, found = "cpu" if device is None else "cuda", _made.get(generator._cdata, generator).device.type
    if wanted != found:
        raise RuntimeError(f"Expected a '{wanted}' device type for generator but found '{found}'")


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


def install(machine: Machine, patches: Patches) -> None:
    """Let torch.Generator be made for a simulated GPU, and give each GPU its own."""
    made_here = type("Generator", (Generator,), {"machine": machine})
    patches.set(torch, "Generator", made_here)
    for device in machine.devices:
        device.generator = made_here(torch.device("cuda", device.index))


@contextmanager
def as_default(generator: torch.Generator) -> Iterator[None]:
    """Let what draws from the CPU's default generator draw from another one."""
    default = torch.default_generator
    before = default.get_state()
    default.set_state(generator.get_state())
    try:
        yield
    finally:
        generator.set_state(default.get_state())
        default.set_state(before)


def functions(machine: Machine) -> dict[str, Any]:
    """The names under torch.cuda, and torch.cuda.random, that this module answers."""
    generators = Generators(machine)
    names = [name for name in vars(Generators) if not name.startswith("_") and name != "of"]
    found = {name: getattr(generators, name) for name in names}
    inner = {f"random.{name}": function for name, function in found.items()}
    return {**found, **inner, "default_generators": tuple(device.generator for device in machine.devices)}
