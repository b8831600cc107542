"""torch.cuda: which devices there are, what they are like, and which one is current."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ..local import local
from . import properties

if TYPE_CHECKING:
    from ..machine import Machine


class Devices:
    """Answers for the devices of one machine."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.initialized = False  # whether the script has asked for more than whether there are GPUs

    def init(self) -> None:
        """Initialize CUDA, which the first use does by itself."""
        self.initialized = True

    def is_initialized(self) -> bool:
        """Whether CUDA was used."""
        return self.initialized or any(device.memory.allocations for device in self.machine.devices)

    def current_device(self) -> int:
        """Index of the calling thread's current device."""
        self.initialized = True
        return self.machine.index(None)

    def _checked(self, device: Any) -> int:
        # Asking about a device that does not exist is an assertion in torch, using it an error of CUDA.
        index = torch.cuda._utils._get_device_index(device, optional=True)
        if not 0 <= index < self.machine.count:
            raise AssertionError("Invalid device id")
        return index

    def get_device_properties(self, device: Any = None) -> properties.DeviceProperties:
        """Name, capability, memory (bytes), multiprocessors and limits of a device."""
        self.initialized = True
        return properties.of(self.machine.devices[self._checked(device)], self.machine.profile.gpu)

    def get_device_name(self, device: Any = None) -> str:
        """The name of a device, as the driver gives it."""
        return self.get_device_properties(device).name

    def get_device_capability(self, device: Any = None) -> tuple[int, int]:
        """Major and minor compute capability."""
        properties = self.get_device_properties(device)
        return properties.major, properties.minor

    def set_device(self, device: Any) -> None:
        """Make a device current in the calling thread; a negative one does nothing."""
        self.initialized = True
        index = torch.cuda._utils._get_device_index(device)
        if index >= 0:
            local.device = self.machine.check(index)

    def exchange(self, index: int) -> int:
        """Make a device current and return the one that was; a negative one does nothing."""
        self.initialized = True
        before = local.device
        if index >= 0:
            local.device = self.machine.check(index)
        return before

    def synchronize(self, device: Any = None) -> None:
        """Make the host wait for a device."""
        self.initialized = True
        index = self.machine.index(device)
        self.machine.clocks.wait(index)
        self.machine.raise_poison(index)

    def can_device_access_peer(self, device: Any, peer_device: Any) -> bool:
        """Whether two devices copy directly to each other."""
        different = self._checked(device) != self._checked(peer_device)
        return different and self.machine.profile.link.peer_access

    def is_bf16_supported(self, including_emulation: bool = True) -> bool:
        """Whether bfloat16 is native, or emulated."""
        return including_emulation or self.machine.profile.gpu.capability >= (8, 0)

    def is_tf32_supported(self) -> bool:
        """Whether TensorFloat-32 is native."""
        return self.machine.profile.gpu.capability >= (8, 0)

    def get_arch_list(self) -> list[str]:
        """The architectures that torch was built for: that of the simulated GPU."""
        major, minor = self.machine.profile.gpu.capability
        return [f"sm_{major}{minor}"]

    def sleep(self, cycles: int) -> None:
        """Keep the current stream busy for so many cycles, of a clock of 1 GHz as no profile knows it."""
        self.machine.clocks.launch(self.machine.current, cycles * 1e-9, "sleep")


def functions(machine: Machine) -> dict[str, Any]:
    """The names under torch.cuda that this module answers."""
    devices = Devices(machine)
    names = [name for name in vars(Devices) if not name.startswith("_") and name not in ("exchange", "sleep")]
    return {
        **{name: getattr(devices, name) for name in names},
        "is_available": lambda: machine.count > 0,
        "device_count": lambda: machine.count,
        "ipc_collect": lambda: None,
        "_initialized": True,  # what recomputation asks before it restores a GPU's random numbers
        "_lazy_init": devices.init,
        "_lazy_call": lambda callable, **kwargs: callable(),
        "_sleep": devices.sleep,
        "_is_compiled": lambda: True,
        "_exchange_device": devices.exchange,
        "_maybe_exchange_device": devices.exchange,
    }
