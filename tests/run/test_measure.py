"""From epochs to a saving and its interval, on simulated and on real clocks."""

from __future__ import annotations

import pytest

from grader.evidence import RunOutcome
from grader.run.exchange import RawRun
from grader.run.measure import (
    EPOCHS_WANTED,
    ROUNDS_AT_MOST,
    Stopwatch,
    compare,
    in_turn,
    straddles,
    virtual_clock,
)
from grader.run.protocol import End, Fence, Summary

SUMMARY = Summary(
    record="summary",
    wrappers=[],
    optimizers=[],
    architecture=None,
    precision={},
    devices=[],
    spans=[],
    tampering=[],
    warnings=[],
)


def fence(edge: str, epoch: int, at: float, steps: int = 3) -> Fence:
    return Fence(record="fence", edge=edge, epoch=epoch, steps=steps, virtual=at)


def script(*durations: float, outcome: str = "completed"):
    """Return a runner of a script whose epochs take so many seconds."""

    def run(on_fence):
        at = 0.0
        for epoch, duration in enumerate(durations):
            on_fence(fence("begin", epoch, at))
            at += duration
            if not on_fence(fence("end", epoch, at)):
                break
        return RawRun(outcome=RunOutcome(outcome), records=[SUMMARY, End(record="end", outcome="completed")])

    return run


def test_the_saving_is_that_of_the_medians():
    timing = compare([10.0, 10.0, 99.0], [6.0, 6.0, 1.0])
    assert timing.saving == pytest.approx(0.4)


def test_exact_clocks_give_an_interval_without_width():
    timing = compare([2.0], [1.0])
    assert timing.confidence == (0.5, 0.5)


def test_the_interval_is_the_same_every_time_and_holds_the_saving():
    epochs = [10.0, 10.4, 9.7, 10.1, 10.2], [6.0, 5.8, 6.3, 6.1, 5.9]
    first, second = compare(*epochs), compare(*epochs)
    assert first == second
    assert first.confidence[0] < first.saving < first.confidence[1]


def test_nothing_measured_is_no_saving():
    assert compare([], [1.0]).saving is None
    assert straddles(None, 0.4)


@pytest.mark.parametrize(
    ("interval", "expected"),
    [((0.3, 0.5), True), ((0.41, 0.5), False), ((0.3, 0.39), False), ((0.4, 0.4), False)],
)
def test_an_interval_straddles_the_threshold_or_decides(interval, expected):
    assert straddles(interval, 0.4) is expected


def test_a_stopwatch_ends_the_run_once_it_has_measured_enough():
    watch = Stopwatch(virtual_clock, warm_up=1, wanted=2)
    script(9.0, 1.0, 2.0, 3.0)(watch)
    assert watch.measured == [1.0, 2.0]


def test_a_pass_without_a_step_is_no_epoch():
    watch = Stopwatch(virtual_clock, warm_up=0, wanted=1)
    watch(fence("begin", 0, 0.0))
    assert watch(fence("end", 0, 5.0, steps=0))
    assert watch.measured == []


def test_both_scripts_repeat_until_there_are_enough_epochs():
    _, _, timing = in_turn(script(9, 2, 2), script(9, 1, 1), 0.4, virtual_clock)
    assert len(timing.baseline) >= EPOCHS_WANTED and len(timing.submission) >= EPOCHS_WANTED
    assert timing.saving == pytest.approx(0.5)


def test_a_saving_that_hovers_about_the_threshold_is_measured_to_the_last_round_and_left_open():
    _, _, timing = in_turn(script(0, 10, 10, 10), script(0, 5, 6, 7), 0.4, virtual_clock)
    assert len(timing.baseline) == 3 * ROUNDS_AT_MOST
    assert straddles(timing.confidence, 0.4)


def test_a_script_that_breaks_is_not_repeated():
    _, submission, timing = in_turn(script(9, 2, 2), script(9, outcome="error"), 0.4, virtual_clock)
    assert submission.outcome is RunOutcome.ERROR
    assert len(timing.baseline) == 2 and timing.submission == []
