"""The record of what every device did."""

from grader.simgpu.timeline import Span, Timeline, busy, gaps

SECOND = 1_000_000_000_000


def test_only_what_happens_between_start_and_stop():
    timeline = Timeline()
    timeline.record("cuda:0", "early", "compute", 0, SECOND)
    timeline.start()
    timeline.record("cuda:1", "conv", "compute", 3 * SECOND, 4 * SECOND)
    timeline.record("cuda:0", "relu", "compute", SECOND, 2 * SECOND)
    timeline.record("cuda:0", "nothing", "compute", SECOND, SECOND)
    spans = timeline.stop()
    timeline.record("cuda:0", "late", "compute", 5 * SECOND, 6 * SECOND)
    assert spans == [Span("cuda:0", "relu", "compute", 1.0, 2.0), Span("cuda:1", "conv", "compute", 3.0, 4.0)]
    assert timeline.stop() == []


def test_gaps_and_busy_seconds():
    spans = [
        Span("host", "wait", "wait", 0.0, 5.0),
        Span("cuda:0", "a", "compute", 1.0, 3.0),
        Span("cuda:0", "b", "copy", 2.0, 4.0),
        Span("cuda:0", "c", "compute", 6.0, 7.0),
    ]
    assert gaps(spans, "cuda:0", 0.0, 10.0) == [(0.0, 1.0), (4.0, 6.0), (7.0, 10.0)]
    assert gaps(spans, "cuda:0", 2.0, 5.0) == [(4.0, 5.0)]
    assert gaps(spans, "host", 0.0, 5.0) == [(0.0, 5.0)]  # waiting is no work
    assert busy(spans, "cuda:0") == 4.0
    assert busy(spans, "cuda:1") == 0.0
