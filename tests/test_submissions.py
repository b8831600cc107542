"""Every submission of the corpus gets the verdict that its header states."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from grader.grade import Grade, Outcome
from tests.submissions import harness
from tests.submissions.harness import Submission, Twin, check_of, corpus, summary, told
from tests.submissions.mutations import MUTATIONS, Mutation
from tests.submissions.twin import SOLUTION

RIGHT, WRONG, HOSTILE = corpus("right"), corpus("wrong"), corpus("hostile")
CHECKS = {"runs", "wrapped", "placement", "recipe", "speed", "accuracy"}
MARKER = "left-behind-marker"  # in the command line of a process that an attack leaves behind
FEWEST_STYLES = 4  # that a mutation must apply to


@pytest.fixture(scope="session")
def twin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twin]:
    with Twin(tmp_path_factory.mktemp("twin")) as twin:
        yield twin


@pytest.fixture(scope="session")
def points_of(twin: Twin) -> Callable[[str], float]:
    """Return the score of a script on the twin; many attacks share what is left without them."""
    return functools.cache(lambda source: twin.grade(source).score)


def by_name(submissions: list[Submission]):
    return pytest.mark.parametrize("submission", submissions, ids=lambda submission: submission.name)


def test_the_corpus_is_complete_and_its_headers_are_sound():
    assert len(WRONG) >= 30
    assert len(RIGHT) >= 9
    assert len(HOSTILE) >= 12
    for submission in WRONG:
        assert submission.fields["says"], submission.name
        assert set(submission.listed("fails") + submission.listed("passes")) <= CHECKS, submission.name
        assert submission.listed("fails"), submission.name
    for submission in HOSTILE:
        assert float(submission.fields["at most"]) < 100, submission.name
        assert submission.without_attack != submission.source, submission.name


@by_name(RIGHT)
def test_a_right_submission_gets_every_point(submission: Submission, twin: Twin):
    grade = twin.grade(submission.source)
    assert (grade.score, grade.max_score) == (100, 100), summary(grade)
    assert grade.outcome is Outcome.PASSED


@by_name(WRONG)
def test_a_mistake_fails_its_check_and_is_named(submission: Submission, twin: Twin):
    grade = twin.grade(submission.source, submission.seconds)
    assert_mistake(grade, submission.listed("fails"), submission.fields["says"])
    for identifier in submission.listed("passes"):
        assert check_of(grade, identifier).outcome is Outcome.PASSED, summary(grade)
    if "outcome" in submission.fields:
        assert check_of(grade, submission.listed("fails")[0]).outcome == submission.fields["outcome"], (
            summary(grade)
        )


@pytest.mark.parametrize(
    ("mutation", "submission"),
    [pytest.param(m, s, id=f"{m.name}-{s.name}") for m in MUTATIONS for s in RIGHT if m.apply(s.source)],
)
def test_a_mistake_is_found_in_every_style(mutation: Mutation, submission: Submission, twin: Twin):
    source = mutation.apply(submission.source)
    assert source is not None
    fails, says = mutation.fails, mutation.says
    if mutation.unwraps:
        fails = submission.fields.get("unwrapped fails", fails)
        says = submission.fields.get("unwrapped says", says)
    assert_mistake(twin.grade(source), [fails], says)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_mutation_applies_to_several_styles(mutation: Mutation):
    assert sum(mutation.apply(submission.source) is not None for submission in RIGHT) >= FEWEST_STYLES


@by_name(HOSTILE)
def test_an_attack_gains_nothing(submission: Submission, twin: Twin, points_of: Callable[[str], float]):
    if submission.fields.get("through") == "command line":
        code, grade = harness.grade_by_command(twin.folder, twin.write(submission.source))
        assert code in (0, 1)
    else:
        grade = twin.grade(submission.source, submission.seconds)
    assert grade.max_score == 100
    assert grade.score <= float(submission.fields["at most"]), summary(grade)
    assert grade.score <= points_of(submission.without_attack), summary(grade)
    assert grade.outcome is not Outcome.PASSED
    Grade.model_validate_json(grade.model_dump_json(exclude={"score", "max_score"}))
    if MARKER in submission.source:
        assert not marked_processes(), "a process was left behind"
    planted = {"conftest.py", "pytest.ini", "grade.json", "sitecustomize.py"}
    assert not planted & {path.name for path in twin.folder.parents[1].rglob("*")}


def marked_processes() -> list[str]:
    """Return the command lines of processes that the corpus started and that still run."""
    lines = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = entry.read_bytes().decode(errors="replace")
        except OSError:
            continue
        if MARKER in line:
            lines.append(line)
    return lines


def assert_mistake(grade: Grade, fails: list[str], says: str) -> None:
    """None of `fails` passes, and the first of them tells the learner what `says` says."""
    for identifier in fails:
        check = check_of(grade, identifier)
        assert check.outcome not in (Outcome.PASSED, Outcome.UNGRADABLE, Outcome.INCONCLUSIVE), summary(grade)
        assert check.score == 0, summary(grade)
    first = check_of(grade, fails[0])
    assert first.outcome is not Outcome.SKIPPED, summary(grade)
    assert says in told(grade, first), summary(grade)


FULL_SIZE = {
    "stub": (harness.REPOSITORY / "exercises" / "dataparallel" / "train.py", 1),
    "solution": (SOLUTION, 0),
    "loop in another style": (harness.CORPUS / "right" / "loop_in_another_style.py", 0),
    "half of each batch": (harness.CORPUS / "wrong" / "half_of_each_batch.py", 1),
}


@pytest.mark.parametrize(("file", "code"), FULL_SIZE.values(), ids=FULL_SIZE)
def test_the_real_exercise_grades_at_full_size(file: Path, code: int, dataparallel: Path):
    exit_code, grade = harness.grade_by_command(dataparallel, file)
    assert exit_code == code, summary(grade)
    assert (grade.score == 100) is (code == 0), summary(grade)
    assert grade.devices.label == "2 simulated T4"
    assert grade.accuracy.validation is not None
    assert grade.accuracy.validation > 0.75
