"""Streams and events: what overlaps, what waits for what, and when memory comes back."""

from __future__ import annotations

import time
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch

from grader import simgpu
from grader.simgpu import profiles
from grader.simgpu.clock import COMMUNICATION, HOST, Clocks
from grader.simgpu.local import local

MS = 1e-3
PROFILE = profiles.load("T4").profile.with_figures(
    host={"module_us": 80, "launch_us": 100, "backward_launch_us": 10, "cpu_operator_us": 4},
    link={"host_gb_s": 10, "peer_gb_s": 5, "latency_us": 10},
)


@pytest.fixture
def machine():
    with simgpu.simulate("2xT4") as machine:
        yield machine


def test_the_kernels_of_two_streams_share_the_device():
    c = Clocks(PROFILE, 1)
    c.launch(0, 5 * MS, "conv", stream=1)
    c.launch(0, 5 * MS, "conv", stream=2)
    assert c.wait() == pytest.approx(0.1 * MS + 10 * MS)


def test_a_copy_goes_on_beside_another_stream_s_kernel():
    beside, after = Clocks(PROFILE, 1), Clocks(PROFILE, 1)
    for c, stream in ((beside, 1), (after, 0)):
        c.launch(0, 5 * MS, "conv", stream=stream)
        c.copy(HOST, 0, 50_000_000, blocking=False)
    assert beside.wait() == pytest.approx(0.2 * MS + 5.01 * MS)
    assert after.wait() == pytest.approx(0.1 * MS + 5 * MS + 5.01 * MS)


def test_copies_in_the_same_direction_share_the_link_and_opposite_ones_do_not():
    same, both = Clocks(PROFILE, 1), Clocks(PROFILE, 1)
    for c, ends in ((same, [(HOST, 0), (HOST, 0)]), (both, [(HOST, 0), (0, HOST)])):
        for stream, (source, destination) in enumerate(ends):
            with on_stream(stream):
                c.copy(source, destination, 50_000_000, blocking=False)
    assert same.wait() == pytest.approx(0.1 * MS + 2 * 5.01 * MS)
    assert both.wait() == pytest.approx(0.2 * MS + 5.01 * MS)


@contextmanager
def on_stream(stream):
    """Make a stream of device 0 current, as `with torch.cuda.stream(...)` does."""
    local.streams = {0: SimpleNamespace(stream_id=stream)}
    yield
    local.streams = None


def test_a_kernel_slips_into_the_time_in_which_another_stream_waits():
    c = Clocks(PROFILE, 1)
    c.order(0, 1, 20 * MS)
    c.launch(0, 5 * MS, "late", stream=1)
    c.launch(0, 5 * MS, "early", stream=2)
    c.launch(0, 30 * MS, "too long for the gap", stream=3)
    assert c.ready(0, 1) == pytest.approx(25 * MS)
    assert c.ready(0, 2) == pytest.approx(0.2 * MS + 5 * MS)
    assert c.ready(0, 3) == pytest.approx(55 * MS)


def test_the_host_waits_for_one_stream_only():
    c = Clocks(PROFILE, 1)
    c.launch(0, 50 * MS, "conv", stream=1)
    c.copy(HOST, 0, 10_000_000, blocking=False)
    assert c.wait(0, 0) == pytest.approx(0.2 * MS + 1.01 * MS)
    assert c.wait(0) == pytest.approx(0.1 * MS + 50 * MS)


def test_a_collective_goes_on_beside_kernels_and_starts_when_the_last_rank_is_ready():
    c = Clocks(PROFILE, 1)
    c.launch(0, 5 * MS, "conv")
    assert c.collective(0, not_before=9 * MS, seconds=2 * MS, name="all_reduce") == pytest.approx(11 * MS)
    c.launch(0, 5 * MS, "conv")
    assert c.ready(0, 0) == pytest.approx(0.1 * MS + 10 * MS)
    c.order(0, 0, c.moment(0, COMMUNICATION))
    c.launch(0, 1 * MS, "step")
    assert c.wait() == pytest.approx(12 * MS)
    assert c.communicating(0) == pytest.approx(2 * MS)


def test_a_prediction_has_a_range_over_the_host_s_figures():
    wide = PROFILE.model_copy(
        update={
            "host": PROFILE.host.model_copy(
                update={"launch_us": PROFILE.host.launch_us.model_copy(update={"low": 50, "high": 200})}
            )
        }
    )
    c = Clocks(wide, 2, ranges=True)
    for _ in range(10):
        c.launch(0, 0.01 * MS, "relu")
    worker = c.fork()
    with c.worker(worker):
        c.launch(1, 0.0, "relu")
    c.join(worker)
    c.wait()
    assert c.now_range() == pytest.approx((0.55 * MS, 1.1 * MS, 2.2 * MS))
    c.launch(0, 100 * MS, "conv")
    assert c.now_range()[1] < c.done_range()[1] == pytest.approx(101.2 * MS)
    c.wait()
    low, value, high = c.now_range()
    assert low < value < high < 1.05 * low  # what bounds the run now is the device


def test_scripts_overlap_copies_with_compute(machine):
    def run(overlap: bool) -> float:
        batches = [torch.zeros(4, 3, 256, 256).pin_memory() for _ in range(3)]
        net = torch.nn.Conv2d(3, 64, 5).cuda()
        side = torch.cuda.Stream()
        start = machine.synchronize()
        for batch in batches:
            if overlap:
                with torch.cuda.stream(side):
                    images = batch.cuda(non_blocking=True)
                torch.cuda.current_stream().wait_stream(side)
                images.record_stream(torch.cuda.current_stream())
            else:
                images = batch.cuda()
            net(images)
        return machine.synchronize() - start

    assert run(overlap=True) < run(overlap=False)


def test_an_event_marks_its_stream_s_work_and_the_host_does_not_wait(machine):
    side = torch.cuda.Stream()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    x = torch.zeros(2048, 2048, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        start.record()
        y = x @ x
        end.record()
    assert not end.query()
    with pytest.raises(RuntimeError, match="Both events must be completed before calculating elapsed time"):
        start.elapsed_time(end)
    before = time.perf_counter()
    torch.cuda.current_stream().wait_event(end)
    assert time.perf_counter() - before < 1e-4  # the stream waits, the host does not
    (y + 1).sum().item()
    assert end.query()
    expected = 2 * 2048**3 / 1e12 / machine.profile.gpu.achieved_tflops["float32"].value * 1e3
    assert start.elapsed_time(end) == pytest.approx(expected, rel=0.5)


def test_an_event_belongs_to_the_device_on_which_it_was_first_recorded(machine):
    event = torch.cuda.Event()
    event.record()
    with torch.cuda.device(1), pytest.raises(RuntimeError, match="does not match recording stream's device"):
        event.record()


def test_a_stream_of_one_device_waits_for_an_event_of_another(machine):
    x = torch.zeros(2048, 2048, device="cuda:0")
    x @ x
    event = torch.cuda.current_stream(0).record_event()
    torch.cuda.current_stream(1).wait_event(event)
    torch.zeros(1, device="cuda:1")
    assert machine.clocks.ready(1) >= machine.clocks.ready(0)


def test_memory_that_a_stream_still_uses_is_not_handed_out_again(machine):
    meter = machine.devices[0].memory

    def used_by_a_stream(record: bool) -> int:
        """Bytes that nobody can have yet after the only tensor is gone."""
        torch.cuda.synchronize()
        big = torch.zeros(2048, 2048, device="cuda")
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            big @ big
        if record:
            big.record_stream(side)
        del big
        assert torch.cuda.memory_allocated() == 0
        return meter.held

    assert used_by_a_stream(record=False) == 0
    assert used_by_a_stream(record=True) == 2048 * 2048 * 4
    before = machine.now()
    whole = torch.empty(meter.capacity - 2**20, dtype=torch.uint8, device="cuda")
    assert machine.now() > before + 1e-3  # the allocator waited for the stream rather than give up
    assert meter.held == 0
    assert torch.cuda.memory_allocated() >= whole.numel()


def test_streams_are_told_apart_and_have_priorities(machine):
    streams = [torch.cuda.Stream(), torch.cuda.Stream(priority=-1), torch.cuda.Stream(device=1)]
    assert len({*streams, torch.cuda.default_stream()}) == 4
    assert [stream.priority for stream in streams] == [0, -1, 0]
    assert [stream.device_index for stream in streams] == [0, 0, 1]
    with torch.cuda.stream(streams[2]):
        assert torch.cuda.current_device() == 1
        assert torch.cuda.current_stream() == streams[2]
    assert torch.cuda.current_device() == 0


def test_streams_come_from_a_pool_and_are_given_again(machine):
    streams = [torch.cuda.Stream() for _ in range(100)]
    assert len(set(streams)) == 32 and streams[0] == streams[32] != streams[1]
    assert torch.cuda.default_stream() not in streams
    assert torch.cuda.Stream(priority=-1) not in streams
    assert torch.cuda.Stream("cuda:1") not in streams


def test_events_of_two_devices_measure_nothing(machine):
    events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
    assert repr(events[0]) == "<torch.cuda.Event uninitialized>"
    for index, event in enumerate(events):
        event.record(torch.cuda.current_stream(index))
        event.synchronize()
    assert repr(events[0]).startswith("<torch.cuda.Event 0x")
    with pytest.raises(RuntimeError, match="CUDA error: invalid resource handle"):
        events[0].elapsed_time(events[1])
