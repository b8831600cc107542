"""Where things stand in a timeline."""

from __future__ import annotations

from grader.evidence import DeviceUse, Span
from grader.grade import Usage
from grader.report.chart import HEIGHT, WIDTH, ticks, timelines


def span(track: str, kind: str, start: float, end: float, name: str = "conv2d") -> Span:
    return Span(track=track, name=name, kind=kind, start=start, end=end)  # type: ignore[arg-type]


def test_runs_share_one_axis() -> None:
    slow = Usage(spans=[span("cuda:0", "compute", 0.0, 2.0)])
    fast = Usage(spans=[span("cuda:0", "compute", 0.0, 1.0)])
    before, after = timelines(slow, fast)
    assert (before.tracks[0].boxes[0].width, after.tracks[0].boxes[0].width) == (WIDTH, WIDTH / 2)
    assert ticks(slow, fast) == ["0 s", "1 s", "2 s"]
    assert (before.duration, after.duration) == ("2 s", "1 s")


def test_tracks_are_ordered_host_gpus_by_number_links() -> None:
    names = ["cuda:0 -> cpu", "cuda:10", "cuda:2", "host", "cpu -> cuda:0"]
    drawn = timelines(Usage(spans=[span(name, "copy", 0.0, 1.0) for name in names]))[0]
    assert [t.name for t in drawn.tracks] == ["host", "cuda:2", "cuda:10", "cpu to cuda:0", "cuda:0 to cpu"]


def test_spans_too_close_to_tell_apart_are_one_box_and_their_time_counts_once() -> None:
    spans = [span("cuda:0", "compute", i / 10_000, (i + 1) / 10_000, f"op{i % 6}") for i in range(5_000)]
    spans += [span("cuda:0", "compute", 0.1, 0.2), span("cuda:0", "wait", 0.5, 1.0)]
    track = timelines(Usage(spans=spans))[0].tracks[0]
    assert [(box.kind, box.x, box.width) for box in track.boxes] == [("compute", 0, 500), ("wait", 500, 500)]
    assert track.boxes[0].title == "op0, op1, op2, op3 and 3 more: 500 ms"
    assert track.summary == "cuda:0 computes for 500 ms, waits for 500 ms of 1 s"
    assert (track.busy, track.share) == ("500 ms", "50%")


def test_a_gpu_without_work_has_its_empty_track() -> None:
    usage = Usage(devices=[DeviceUse(device="cuda:1")], spans=[span("cuda:0", "compute", 0.0, 1.0)])
    assert timelines(usage)[0].tracks[1].summary == "cuda:1 is idle of 1 s"


def test_memory_is_a_step_function_on_a_common_scale() -> None:
    uses = [
        DeviceUse(device="cuda:0", peak_bytes=400, capacity_bytes=2048, memory=[(0.0, 100), (0.5, 400)]),
        DeviceUse(device="cuda:1", peak_bytes=200, capacity_bytes=2048, memory=[(0.25, 200), (0.25, 0)]),
    ]
    drawn = timelines(Usage(devices=uses, spans=[span("cuda:0", "compute", 0.0, 1.0)]))[0]
    assert drawn.memories[0].path == f"M0 {HEIGHT}H0V75H500V0H1000V100Z"
    assert drawn.memories[1].path == f"M0 {HEIGHT}H250V50H251V100H1000V100Z"
    assert drawn.memories[0].summary == "cuda:0 holds 400 B at most, of 2 KiB"


def test_nothing_recorded_is_nothing_drawn() -> None:
    drawn = timelines(Usage(), Usage())
    assert [(timeline.tracks, timeline.memories) for timeline in drawn] == [([], []), ([], [])]
