"""The clocks: what the host, the devices and the links cost, and that threads never change the result."""

import random
import threading
import time

import pytest

from grader.simgpu import clock, profiles
from grader.simgpu.clock import HOST, Clocks

PROFILE = profiles.load("T4").profile.with_figures(
    host={"module_us": 80, "launch_us": 100, "backward_launch_us": 10, "cpu_operator_us": 4},
    link={
        "host_gb_s": 10,
        "peer_gb_s": 5,
        "latency_us": 10,
        "broadcast_us_per_mb": 75,
        "reduce_us_per_mb": 75,
    },
)
MS = 1e-3


def clocks(count=2):
    return Clocks(PROFILE, count)


def test_the_host_runs_ahead_of_the_device():
    c = clocks()
    for _ in range(3):
        c.launch(0, 5 * MS, "conv")
    assert c.now() == pytest.approx(0.3 * MS)
    assert c.wait(0) == pytest.approx(0.1 * MS + 15 * MS)


def test_a_device_waits_for_its_launch():
    c = clocks()
    for _ in range(3):
        c.launch(0, 0.01 * MS, "relu")
    assert c.wait() == pytest.approx(0.3 * MS + 0.01 * MS)
    assert c.busy(0) == pytest.approx(0.03 * MS)


def test_devices_work_at_the_same_time():
    c = clocks()
    c.launch(0, 5 * MS, "conv")
    c.launch(1, 5 * MS, "conv")
    assert c.wait() == pytest.approx(5.2 * MS)


def test_backward_is_launched_by_a_thread_for_each_device():
    c = clocks()
    for _ in range(10):
        c.launch(0, 0.0, "mm", "backward")
        c.launch(1, 0.0, "mm", "backward")
    assert c.now() == pytest.approx(0.1 * MS)


def test_the_script_goes_on_once_backward_is_launched():
    c = clocks()
    c.launch(0, 0.0, "mm", "backward")
    c.launch(0, 0.0, "add")
    assert c.now() == pytest.approx(0.11 * MS)


@pytest.mark.parametrize(
    ("source", "destination", "milliseconds"), [(HOST, 0, 1.0), (0, HOST, 1.0), (0, 1, 2.0)]
)
def test_copies_go_at_the_rate_of_their_link(source, destination, milliseconds):
    c = clocks()
    c.copy(source, destination, 10_000_000, blocking=True)
    assert c.now() == pytest.approx(0.1 * MS + 0.01 * MS + milliseconds * MS)


def test_a_copy_that_does_not_block_leaves_the_host_free():
    c = clocks()
    c.copy(HOST, 0, 10_000_000, blocking=False)
    assert c.now() == pytest.approx(0.1 * MS)
    c.launch(0, 1 * MS, "conv")  # but the device needs the data
    assert c.wait() == pytest.approx(0.1 * MS + 1.01 * MS + 1 * MS)


def test_a_copy_from_a_device_waits_for_its_result():
    c = clocks()
    c.launch(0, 5 * MS, "conv")
    c.copy(0, 1, 5_000_000, blocking=False)
    c.launch(1, 1 * MS, "conv")
    assert c.wait(1) == pytest.approx(0.1 * MS + 5 * MS + 1.01 * MS + 1 * MS)


def test_broadcast_over_one_device_is_free():
    c = clocks()
    c.broadcast([0], 10**9)
    c.reduce([0], 10**9)
    assert c.now() == 0


def step(c, count, modules, megabytes, forward, backward, optimizer):
    """One training step over `count` devices; the lists hold seconds of each operator."""
    if count > 1:
        c.broadcast(range(count), megabytes * 10**6)
        c.replica(modules * count)
        workers = [c.fork() for _ in range(count)]
        for device, worker in enumerate(workers):
            with c.worker(worker):
                for seconds in forward:
                    c.launch(device, seconds, "forward")
        for worker in workers:
            c.join(worker)
    else:
        for seconds in forward:
            c.launch(0, seconds, "forward")
    for seconds in backward:
        for device in range(count):
            c.launch(device, seconds, "backward", "backward")
    if count > 1:
        c.reduce(range(count), megabytes * 10**6)
    for seconds in optimizer:
        c.launch(0, seconds, "optimizer")
    return c.wait()


@pytest.mark.parametrize("count", [2, 3, 8])
@pytest.mark.parametrize("scale", [0.0, 0.01, 1.0, 10.0], ids=["host", "mostly host", "mixed", "device"])
def test_the_fitted_formula_comes_out_exactly(count, scale):
    """T_N = T_1(B/N) + a * modules * N + b * megabytes, whoever bounds the step."""
    rng = random.Random(1)
    work = [[rng.choice((0.0001, 0.03, 0.7)) * scale * MS for _ in range(n)] for n in (9, 11, 7)]
    one = Clocks(PROFILE, 1)
    many = Clocks(PROFILE, count)
    t1, tn = step(one, 1, 5, 7, *work), step(many, count, 5, 7, *work)
    extra = 80e-6 * 5 * count + 150e-6 * 7
    assert round((tn - t1) * 1e12) == round(extra * 1e12)


def busy_workers(delays, seed):
    """The end of a step whose workers also share devices, run by threads that are held up at random."""
    rng, c = random.Random(seed), Clocks(PROFILE, 3)
    workers = [c.fork() for _ in range(6)]

    def run(number, worker):
        with c.worker(worker):
            for i in range(5):
                time.sleep(rng.random() * delays)
                c.launch((number + i) % 3, (number + 1) * 0.137 * MS, "conv")
                if i == 2:
                    c.wait((number + 1) % 3)

    threads = [threading.Thread(target=run, args=pair) for pair in enumerate(workers)]
    for thread in threads:
        thread.start()
    for thread, worker in zip(threads, workers, strict=True):
        thread.join()
        c.join(worker)
    return c.wait(), [c.busy(d) for d in range(3)], [c.ready(d) for d in range(3)]


def test_threads_never_change_a_digit():
    expected = busy_workers(0, 0)
    assert all(busy_workers(0.0005, seed) == expected for seed in range(20))


def test_workers_launch_at_the_same_time_and_the_join_is_the_slowest():
    c = clocks()
    c.host(1 * MS)
    workers = [c.fork(), c.fork()]
    for worker, launches in zip(workers, (3, 7), strict=True):
        with c.worker(worker):
            assert c.now() == pytest.approx(1 * MS)
            for _ in range(launches):
                c.launch(0, 0.0, "conv")
    assert c.now() == pytest.approx(1 * MS)
    for worker in workers:
        c.join(worker)
        c.join(worker)
    assert c.now() == pytest.approx(1.7 * MS)


def test_a_worker_sees_its_own_time():
    c = clocks()
    worker = c.fork()
    with c.worker(worker):
        c.launch(1, 2 * MS, "conv")
        assert c.wait(1) == pytest.approx(2.1 * MS)
    assert c.now() == 0


def test_workers_can_have_workers():
    c = clocks()
    outer = c.fork()
    with c.worker(outer):
        inner = c.fork()
        with c.worker(inner):
            c.launch(0, 0.0, "conv")
        c.join(inner)
        c.launch(0, 0.0, "conv")
    c.join(outer)
    assert c.now() == pytest.approx(0.2 * MS)


def test_work_of_the_script_moves_the_host():
    c = clocks()
    c.host(0.5)
    c.cpu_operator()
    assert c.now() == pytest.approx(0.500004)


def test_what_the_timeline_shows():
    c = clocks()
    c.timeline.start()
    c.launch(0, 5 * MS, "conv")
    c.copy(HOST, 1, 10_000_000, blocking=True)
    c.wait()
    spans = c.timeline.stop()
    assert [(s.track, s.name, s.kind) for s in spans if s.track.startswith("cuda")] == [
        ("cuda:0", "conv", "compute"),
        ("cuda:1", "copy", "copy"),
    ]
    assert [s.name for s in spans if s.track == "host"] == ["conv", "copy", "wait", "wait"]
    assert [s.kind for s in spans if s.track == "cpu > cuda:1"] == ["copy"]


def test_what_the_host_spent_adds_up_to_its_time_though_workers_run_side_by_side():
    c = clocks()
    c.replica(3)
    workers = [c.fork(), c.fork()]
    for device, worker in enumerate(workers):
        with c.worker(worker):
            for _ in range(7 - device):
                c.launch(device, 0.3 * MS, "conv")
            c.wait(device)
    for worker in workers:
        c.join(worker)
    c.launch(0, 1 * MS, "mm", "backward")
    c.copy(0, HOST, 1000, blocking=True)
    assert sum(c.spent.values()) == pytest.approx(c.now())
    assert c.spent["replicate"] == pytest.approx(0.24 * MS)


def test_a_thread_that_lives_long_is_charged_in_parts(monkeypatch):
    def run(at_once):
        monkeypatch.setattr(clock, "LOGGED", 10**9 if at_once else 10)
        c = clocks()
        worker = c.fork()
        with c.worker(worker):
            for _ in range(95):
                c.launch(1, 0.3 * MS, "conv")
            c.wait(1)
            assert at_once or len(worker.log) < 10
        c.launch(0, 1 * MS, "conv")
        c.join(worker)
        return c.now(), c.wait(), c.busy(0), c.busy(1), c.ready(1)

    assert run(at_once=False) == run(at_once=True)
