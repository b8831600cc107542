"""The Chrome trace: what viewers need, in an order and with numbers that they show rightly."""

import json
from collections import Counter

import pytest

from grader.simgpu import view
from grader.simgpu.machine import Machine
from grader.simgpu.memory import Mark
from grader.simgpu.timeline import Span
from grader.simgpu.view import trace
from grader.simgpu.view.record import DeviceRecord
from tests.simgpu.views.runs import made, record, train


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    path = tmp_path_factory.mktemp("trace") / "trace.json"
    trace.write(record(lambda: train(3)), path)
    return json.loads(path.read_text(encoding="utf-8"))


def slices(events):
    return [event for event in events if event["ph"] == "X"]


def test_says_that_it_is_simulated_and_by_what(written):
    assert written["displayTimeUnit"] == "ms"
    facts = written["otherData"]
    assert facts["simulated"] is True and facts["profile"] == "T4" and facts["gpus"] == "2xT4"
    assert facts["torch"] and "simulated, profile T4" in facts["note"]
    assert facts["seconds"]["low"] <= facts["seconds"]["value"] <= facts["seconds"]["high"]


def test_every_track_has_a_name_and_a_place(written):
    names, places = {}, {}
    for event in written["traceEvents"]:
        if event["ph"] == "M":
            kept = names if "name" in event["args"] else places
            kept[event["name"].split("_")[0], event["pid"], event["tid"]] = event["args"]
    assert names.keys() == places.keys()
    processes = [value["name"] for (kind, _, _), value in sorted(names.items()) if kind == "process"]
    assert processes == [
        "host (simulated)",
        "cuda:0 Tesla T4 (simulated)",
        "cuda:1 Tesla T4 (simulated)",
        "links (simulated)",
    ]
    threads = {value["name"]: key for key, value in names.items() if key[0] == "thread"}
    for track in (
        "host",
        "host worker 1",
        "host backward cuda:0",
        "cuda:1",
        "cpu > cuda:0",
        "cuda:0 > cuda:1",
    ):
        assert track in threads
    for event in slices(written["traceEvents"]):
        assert ("thread", event["pid"], event["tid"]) in names
    assert all(event["pid"] > 0 for event in written["traceEvents"])


def test_slices_of_a_track_nest_and_never_overlap(written):
    stacks = {}
    for event in slices(written["traceEvents"]):
        start, end = event["ts"], event["ts"] + event["dur"]
        stack = stacks.setdefault((event["pid"], event["tid"]), [])
        while stack and stack[-1] <= start:
            stack.pop()
        assert not stack or end <= stack[-1]
        stack.append(end)


def test_events_are_in_order_and_exact_in_binary(written):
    timed = [event for event in written["traceEvents"] if event["ph"] != "M"]
    assert [event["ts"] for event in timed] == sorted(event["ts"] for event in timed)
    assert all((event["ts"] * 64).is_integer() for event in timed)


def test_modules_enclose_their_operators(written):
    found = [event for event in slices(written["traceEvents"]) if event["cat"] == "module"]
    names = {event["name"] for event in found}
    assert {"module", "module.layers", "module.layers.1", "module.layers.1.first"} <= names
    inner = next(event for event in found if event["name"] == "module.layers.1.first")
    for outer in ("module.layers.1", "module.layers", "module"):
        assert any(
            event["name"] == outer
            and (event["pid"], event["tid"]) == (inner["pid"], inner["tid"])
            and event["ts"] <= inner["ts"]
            and inner["ts"] + inner["dur"] <= event["ts"] + event["dur"]
            for event in found
        )
    convolution = next(event for event in slices(written["traceEvents"]) if event["name"] == "addmm")
    assert convolution["args"]["module"].startswith("module.") and convolution["args"]["phase"] == "forward"


def test_arrows_have_two_ends_on_slices(written):
    events = written["traceEvents"]
    starts = {event["id"]: event for event in events if event["ph"] == "s"}
    ends = {event["id"]: event for event in events if event["ph"] == "f"}
    assert starts.keys() == ends.keys() and starts
    assert max(Counter(event["id"] for event in events if event["ph"] in "sf").values()) == 2
    covering = Counter(
        (event["pid"], event["tid"], event["ts"]) for event in slices(events)
    )  # every arrow begins and ends where a slice begins, or within one
    for identity, start in starts.items():
        end = ends[identity]
        assert start["ts"] <= end["ts"] and end["bp"] == "e"
        assert covering[start["pid"], start["tid"], start["ts"]]
        assert covering[end["pid"], end["tid"], end["ts"]]
    places = {
        (event["pid"], event["tid"]): event["args"]["name"]
        for event in events
        if event["name"] == "thread_name"
    }
    routes = {
        (places[start["pid"], start["tid"]], places[ends[key]["pid"], ends[key]["tid"]])
        for key, start in starts.items()
    }
    host_thread = {route for route in routes if route[0].startswith("host")}
    assert ("host", "cpu > cuda:0") in host_thread
    assert ("cpu > cuda:0", "cuda:0") in routes
    assert ("cuda:0", "cuda:0 > cuda:1") in routes and ("cuda:0 > cuda:1", "cuda:1") in routes


def test_memory_is_a_counter_of_bytes(written):
    counters = [event for event in written["traceEvents"] if event["ph"] == "C"]
    assert {event["pid"] for event in counters} == {2, 3}
    assert all(isinstance(event["args"]["bytes"], int) for event in counters)
    instants = Counter((event["pid"], event["ts"]) for event in counters)
    assert max(instants.values()) == 1


def test_the_same_run_gives_the_same_bytes(tmp_path):
    for name in ("a", "b"):
        trace.write(record(lambda: train(2)), tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_streams_and_collectives_have_tracks_of_their_own():
    spans = [
        Span("cuda:0", "conv", "compute", 0.0, 1e-3),
        Span("cuda:0 stream 3", "add", "compute", 0.0, 1e-3),
        Span("cuda:0 collectives", "all_reduce", "collective", 1e-3, 3e-3, nbytes=2000, flow=7),
        Span("host", "all_reduce", "host", 0.0, 1e-4, flow=7),
    ]
    events = list(trace.events(made(spans=spans, with_spans=True)))
    names = {event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert names == {"host", "cuda:0", "cuda:0 stream 3", "cuda:0 collectives"}
    [collective] = [event for event in slices(events) if event["cat"] == "collective"]
    assert collective["args"]["bytes"] == 2000 and collective["dur"] == 2000
    assert [event["ph"] for event in events if event["ph"] in "sf"] == ["s", "f"]


def test_a_collective_follows_the_kernel_that_made_what_it_sends():
    spans = [
        Span("cuda:0", "mm", "compute", 0.0, 1e-3),
        Span("cuda:1", "mm", "compute", 0.0, 2e-3),
        Span("cuda:0", "later", "compute", 1e-3, 5e-3),
        Span("cuda:0 collectives", "all_reduce", "collective", 3e-3, 4e-3, flow=1),
        Span("cuda:0 collectives", "all_reduce", "collective", 4e-3, 5e-3, flow=2),
    ]
    events = list(trace.events(made(spans=spans, with_spans=True)))
    starts = [(event["tid"], event["ts"]) for event in events if event["ph"] == "s"]
    [thread] = {event["tid"] for event in events if event["name"] == "mm" and event["pid"] == 2}
    assert starts == [(thread, 0), (thread, 0)]


def test_waits_do_not_cut_a_module_in_two():
    spans = [
        Span("host", "a", "host", 0.0, 1e-3, "net.layer", "forward"),
        Span("host", "wait", "wait", 1e-3, 2e-3),
        Span("host", "b", "host", 2e-3, 3e-3, "net.layer", "forward"),
        Span("host", "c", "host", 3e-3, 4e-3, "", "optimizer"),
    ]
    events = slices(trace.events(made(spans=spans, with_spans=True)))
    modules = [(event["name"], event["ts"], event["dur"]) for event in events if event["cat"] == "module"]
    assert modules == [("net", 0, 3000), ("net.layer", 0, 3000)]


def test_memory_of_threads_that_are_ahead_of_each_other_keeps_its_peak():
    marks = [Mark(2e-3, 512, 512, ""), Mark(1e-3, 1024, 512, ""), Mark(3e-3, 0, -1024, "")]
    events = trace.events(made(count=1, devices=[DeviceRecord(0, 1 << 20, 1024, marks)]))
    counters = [(event["ts"], event["args"]["bytes"]) for event in events if event["ph"] == "C"]
    assert counters == [(2000, 1024), (3000, 0)]


def test_a_long_run_says_where_its_trace_ends(tmp_path):
    found = record(lambda: train(4), limit=60)
    assert len(found.spans) == 60 and found.full and found.steps == 4
    trace.write(found, tmp_path / "trace.json")
    facts = json.loads((tmp_path / "trace.json").read_text())["otherData"]
    assert facts["recorded"].startswith("the first 60 spans, until ")
    assert found.whole.totals == record(lambda: train(4)).whole.totals  # they go on


def test_a_trace_needs_the_spans(tmp_path):
    machine = Machine("1xT4")
    machine.install()
    try:
        recording = view.start(machine)
        with pytest.raises(ValueError, match="spans=True"):
            view.finish(recording, trace=tmp_path / "trace.json")
        view.finish(recording)
    finally:
        machine.uninstall()
