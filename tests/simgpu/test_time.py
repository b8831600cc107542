"""Virtual time: what is charged, what waits, and that it is the same in every run."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

from grader import simgpu


def train(spec="2xT4", math=False, steps=3):
    with simgpu.simulate(spec, math=math) as machine:
        torch.manual_seed(0)
        net = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 10)).cuda()
        model = nn.DataParallel(net)
        optimizer = torch.optim.Adam(model.parameters())
        for _ in range(steps):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(
                model(torch.randn(64, 1, 8, 8)), torch.randint(10, (64,)).cuda()
            )
            loss.backward()
            optimizer.step()
            loss.item()
        seconds = machine.synchronize()
        return (
            seconds,
            *(device.busy_seconds for device in machine.devices),
            *(d.memory.peak for d in machine.devices),
        )


def test_a_hundred_runs_are_the_same_to_the_last_digit():
    first = train(steps=1)
    assert all(train(steps=1) == first for _ in range(99))


def test_also_under_load_and_with_arithmetic():
    alone = train(steps=1)
    stop = threading.Event()

    def spin():
        while not stop.is_set():
            sum(range(1000))

    with ThreadPoolExecutor(2) as pool:
        for _ in range(2):
            pool.submit(spin)
        try:
            assert train(steps=1) == alone
            assert train(math=True, steps=1) == alone
        finally:
            stop.set()


def test_two_devices_share_the_work_of_a_large_batch():
    def seconds(wrap):
        with simgpu.simulate("2xT4", math=False) as machine:
            model = wrap(
                nn.Sequential(nn.Conv2d(3, 64, 5), nn.Conv2d(64, 64, 5), nn.AdaptiveAvgPool2d(1)).cuda()
            )
            images = torch.empty(2048, 3, 32, 32, device="cuda")
            start = machine.synchronize()
            model(images).sum().backward()
            return machine.synchronize() - start

    assert 0.5 < seconds(nn.DataParallel) / seconds(lambda net: net) < 0.65


def test_work_is_launched_and_only_waiting_takes_its_time(machine):
    matrix = torch.zeros(512, 512, device="cuda")
    machine.synchronize()
    start = machine.now()
    for _ in range(50):
        matrix @ matrix
    launched = machine.now() - start
    torch.cuda.synchronize()
    done = machine.now() - start
    assert launched < done
    assert machine.devices[0].busy_seconds >= 50 * 2 * 512**3 / 8.1e12


def test_devices_work_side_by_side(machine):
    matrices = [torch.zeros(1024, 1024, device=f"cuda:{index}") for index in range(2)]
    start = machine.synchronize()
    matrices[0] @ matrices[0]
    one = machine.synchronize() - start
    for matrix in matrices:
        matrix @ matrix
    assert machine.synchronize() - start - one < 1.5 * one


def test_reading_a_value_waits(machine):
    matrix = torch.zeros(1024, 1024, device="cuda")
    machine.synchronize()
    product = matrix @ matrix
    before = machine.now()
    product.sum().item()
    assert machine.now() - before > 2 * 1024**3 / 8.1e12


def test_pinned_memory_is_copied_behind_the_hosts_back(machine):
    def host_seconds(tensor, **how):
        start = machine.synchronize()
        tensor.to("cuda", **how)
        return machine.now() - start

    plain = torch.empty(1 << 21)
    waiting = host_seconds(plain)
    assert host_seconds(plain, non_blocking=True) == pytest.approx(waiting)
    assert host_seconds(plain.pin_memory(), non_blocking=True) < waiting / 2


def test_the_scripts_clocks_are_virtual(machine):
    start, wall = time.perf_counter(), time.time()
    time.sleep(100)
    assert 100 < time.perf_counter() - start < 100.001
    assert 100 < time.time() - wall < 100.001
    assert time.monotonic_ns() >= 100 * 10**9
    with simgpu.unobserved():
        real, virtual = time.perf_counter(), machine.now()
        machine.clocks.host(1000)
        assert time.perf_counter() - real < 500
        assert machine.now() == pytest.approx(virtual + 1000)


def test_a_busy_wait_ends(machine):
    end = time.time() + 0.01
    while time.time() < end:
        pass
    assert end <= time.time() < end + 0.001


def test_events_measure_milliseconds(machine):
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    matrix = torch.zeros(2048, 2048, device="cuda")
    machine.synchronize()
    start.record()
    matrix @ matrix
    end.record()
    assert not end.query()
    torch.cuda.synchronize()
    assert end.query()
    busy = machine.devices[0].busy_seconds * 1e3
    assert start.elapsed_time(end) == pytest.approx(busy, rel=0.2)
    with pytest.raises(ValueError, match="enable_timing=True"):
        torch.cuda.Event().elapsed_time(end)


def test_streams_exist_and_are_ordered(machine):
    stream = torch.cuda.Stream()
    assert torch.cuda.current_stream() == torch.cuda.default_stream() != stream
    with torch.cuda.stream(stream):
        assert torch.cuda.current_stream() == stream
        made = torch.ones(2, device="cuda") + 1
    torch.cuda.current_stream().wait_stream(stream)
    made.record_stream(torch.cuda.current_stream())
    event = stream.record_event()
    event.synchronize()
    assert stream.query()
    with torch.cuda.device(1):
        assert torch.cuda.current_stream().device == torch.device("cuda:1")


def test_what_is_unobserved_costs_nothing(machine):
    tensor = torch.ones(1000, device="cuda")
    before = machine.now(), machine.devices[0].busy_seconds, machine.devices[0].memory.allocated
    with simgpu.unobserved():
        for _ in range(10):
            _ = (tensor + tensor).sum()
            assert tensor.device == torch.device("cuda:0")
        thread = threading.Thread(target=lambda: torch.ones(5) + 1)
        thread.start()
        thread.join()
    assert (machine.now(), machine.devices[0].busy_seconds, machine.devices[0].memory.allocated) == before


def test_threads_of_the_script_are_simulated(machine):
    seen = []

    class Worker(threading.Thread):
        def run(self):
            torch.cuda.set_device(1)
            seen.append((torch.ones(2, device="cuda") + 1).device)

    worker = Worker()
    worker.start()
    worker.join()
    assert seen == [torch.device("cuda:1")]
    assert torch.cuda.current_device() == 0


def test_the_timeline_shows_both_devices(machine):
    model = nn.DataParallel(nn.Linear(64, 64).cuda())
    machine.timeline.start()
    model(torch.randn(64, 64)).sum().backward()
    machine.synchronize()
    spans = machine.timeline.stop()
    assert {"cuda:0", "cuda:1", "host"} <= {span.track for span in spans}
    assert all(span.start <= span.end for span in spans)
