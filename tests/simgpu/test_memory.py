"""The memory meter of a simulated device."""

import pytest
import torch

from grader.simgpu.memory import Meter

GIB = 2**30


def test_sizes_are_rounded_as_cuda_does():
    meter = Meter(GIB, 0)
    sizes = [meter.allocate(n) for n in (0, 1, 512, 513)]
    assert sizes == [0, 512, 512, 1024]
    assert meter.allocated == 2048


def test_peak_stays_and_can_be_forgotten():
    meter = Meter(GIB, 0)
    large = meter.allocate(1024)
    meter.free(large)
    assert (meter.allocated, meter.peak) == (0, 1024)
    meter.reset_peak()
    assert meter.peak == 0


def test_full_to_the_last_block():
    meter = Meter(1024, 0)
    meter.allocate(1024)
    with pytest.raises(torch.OutOfMemoryError):
        meter.allocate(1)
    assert meter.allocated == 1024


def test_refusal_in_the_words_of_cuda():
    meter = Meter(2 * GIB, 1)
    meter.allocate(GIB + GIB // 2)
    meter.free(meter.allocate(GIB // 4))  # stays reserved until the device needs it
    with pytest.raises(torch.OutOfMemoryError) as caught:
        meter.allocate(GIB)
    text = str(caught.value)
    assert text.startswith(
        "CUDA out of memory. Tried to allocate 1.00 GiB. GPU 1 has a total capacity of 2.00 GiB "
        "of which 512.00 MiB is free. Including non-PyTorch memory, this process has 1.50 GiB memory in use. "
        "Of the allocated memory 1.50 GiB is allocated by PyTorch, "
        "and 0 bytes is reserved by PyTorch but unallocated."
    )


def test_history_only_when_asked_for():
    meter = Meter(GIB, 0)
    meter.allocate(512, 1.0)
    assert meter.history == []
    meter.record()
    size = meter.allocate(1000, 2.0)
    meter.free(size, 3.0)
    assert meter.history == [(2.0, 1536, 1024, ""), (3.0, 512, -1024, "")]


def test_what_is_reserved_outlives_what_is_freed():
    meter = Meter(GIB, 0)
    meter.free(meter.allocate(3 * 2**20))
    assert (meter.allocated, meter.reserved) == (0, 4 * 2**20)
    meter.empty_cache()
    assert meter.reserved == 0
