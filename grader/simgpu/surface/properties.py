"""What torch.cuda.get_device_properties tells of a simulated GPU."""

from __future__ import annotations

import uuid
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import NotSimulated

if TYPE_CHECKING:
    from ..machine import Device
    from ..profiles import GPU


class Multiprocessor(NamedTuple):
    """Limits of one multiprocessor."""

    threads: int
    shared_bytes: int
    shared_bytes_per_block: int  # for kernels that opt in


_KIB = 1024
# By compute capability: "Technical Specifications per Compute Capability" of the CUDA C++ Programming Guide.
_MULTIPROCESSORS = {
    (6, 0): Multiprocessor(2048, 64 * _KIB, 48 * _KIB),
    (6, 1): Multiprocessor(2048, 96 * _KIB, 48 * _KIB),
    (7, 0): Multiprocessor(2048, 96 * _KIB, 96 * _KIB),
    (7, 5): Multiprocessor(1024, 64 * _KIB, 64 * _KIB),
    (8, 0): Multiprocessor(2048, 164 * _KIB, 163 * _KIB),
    (8, 6): Multiprocessor(1536, 100 * _KIB, 99 * _KIB),
    (8, 9): Multiprocessor(1536, 100 * _KIB, 99 * _KIB),
    (9, 0): Multiprocessor(2048, 228 * _KIB, 227 * _KIB),
    (10, 0): Multiprocessor(2048, 228 * _KIB, 227 * _KIB),
    (12, 0): Multiprocessor(1536, 100 * _KIB, 99 * _KIB),
}
# Second-level cache, in MB, by a word of the name: the data sheets and architecture whitepapers of NVIDIA.
_CACHES = {
    "P100": 4, "V100": 6, "T4": 4, "TITAN Xp": 3, "2080 Ti": 5.5, "TITAN RTX": 6, "A100": 40, "A10G": 6,
    "3090": 6, "4090": 72, "L40S": 96, "L4": 48, "H100": 50, "H200": 50,
}  # fmt: skip
_NOT_KNOWN = {
    "L2_cache_size", "clock_rate", "memory_clock_rate", "memory_bus_width", "gcnArchName",
    "max_threads_per_multi_processor", "shared_memory_per_multiprocessor", "shared_memory_per_block_optin",
}  # fmt: skip
_BOARDS = uuid.UUID("5f0d7f3e-3c0c-4d0a-9b0e-7c1f2a6d9e11")  # an arbitrary one, to derive the others from


class DeviceProperties(SimpleNamespace):
    """What torch.cuda.get_device_properties gives."""

    def __getattr__(self, name: str) -> Any:
        if name in _NOT_KNOWN:
            raise NotSimulated(f"torch.cuda.get_device_properties(...).{name}")
        raise AttributeError(f"the properties of a simulated GPU have no attribute {name!r}")

    def __repr__(self) -> str:
        return (
            f"_CudaDeviceProperties(name='{self.name}', major={self.major}, minor={self.minor}, "
            f"total_memory={self.total_memory >> 20}MB, "
            f"multi_processor_count={self.multi_processor_count}, uuid={self.uuid})"
        )


def of(device: Device, gpu: GPU) -> DeviceProperties:
    """Name, capability, memory (bytes), multiprocessors and their limits. What the profile does not know
    raises NotSimulated when asked for."""
    major, minor = gpu.capability
    found: dict[str, Any] = {
        "name": gpu.name,
        "major": major,
        "minor": minor,
        "total_memory": device.memory.capacity,
        "multi_processor_count": int(gpu.multiprocessors.value),
        "is_integrated": False,
        "is_multi_gpu_board": False,
        "warp_size": 32,
        "max_threads_per_block": 1024,
        "regs_per_multiprocessor": 64 * 1024,
        "shared_memory_per_block": 48 * _KIB,
        "uuid": uuid.uuid5(_BOARDS, f"{gpu.name}:{device.index}"),
        "pci_domain_id": 0,
        "pci_bus_id": device.index,
        "pci_device_id": 0,
    }
    cache = next((size for word, size in _CACHES.items() if word in gpu.name), None)
    if cache is not None:
        found["L2_cache_size"] = int(cache * _KIB * _KIB)
    limits = _MULTIPROCESSORS.get((major, minor))
    if limits is not None:
        found["max_threads_per_multi_processor"] = limits.threads
        found["shared_memory_per_multiprocessor"] = limits.shared_bytes
        found["shared_memory_per_block_optin"] = limits.shared_bytes_per_block
    return DeviceProperties(**found)
