"""Keys that hold, and keys that do not, each found out by running."""

# ruff: noqa: E501

from __future__ import annotations

from pathlib import Path

import pytest

from grader.located import read
from grader.quiz.files import QuizFile
from grader.quiz.model import Quiz
from grader.quiz.proof.prove import prove
from grader.quiz.proof.store import store_path, stored

HEAD = "title: T\nsummary: S\ndraft: true\nquestions:\n"
QUESTION = "  - {{id: {id}, kind: {kind}, difficulty: easy, stem: Q, key: A, {rest}}}\n"
CASES = {
    "holds": ("predict_output", "code: print(2), options: [{prints: '2'}, {prints: '4'}]", None),
    "visible": (
        "predict_output",
        "code: import torch; print(torch.cuda.device_count()), options: [{prints: '1'}, {prints: '2'}], "
        "proof: {before: 'import os; os.environ[\"CUDA_VISIBLE_DEVICES\"] = \"1\"'}",
        None,
    ),
    "contradicted": (
        "predict_output", "code: print(3), options: [{prints: '2'}, {prints: '4'}]", "key-contradicted",
    ),
    "slip": (
        "code", "options: [{code: print(1)}, {code: prin(1), fails: 'TypeError: x'}]", "fails-otherwise",
    ),
    "two-right": ("code", "options: [{code: print(1)}, {code: print(2), fails: TypeError}]", "two-right-options"),
    "unseen": (
        "debug", "code: 1 / 0, error: KeyError, fix: print(1), options: [{text: a}, {text: b}]", "error-not-seen",
    ),
    "leaves": (
        "predict_output", "code: import os; os._exit(3), options: [{prints: '2'}, {prints: '4'}]", "proof-no-end",
    ),
    "endless": (
        "predict_output",
        "code: 'while True: pass', proof: {seconds: 1}, options: [{prints: '2'}, {prints: '4'}]",
        "proof-no-end",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def proven(tmp_path_factory: pytest.TempPathFactory) -> QuizFile:
    """All cases as one quiz, proven: importing torch once serves them all."""
    path: Path = tmp_path_factory.mktemp("quizzes") / "cases.yaml"
    questions = [QUESTION.format(id=name, kind=kind, rest=rest) for name, (kind, rest, _) in CASES.items()]
    path.write_text(HEAD + "".join(questions))
    document = read(path)
    file = QuizFile(path, Quiz.model_validate(document.value), document)
    prove([file])
    return file


@pytest.mark.parametrize("name", CASES)
def test_each_key_is_judged(proven: QuizFile, name: str) -> None:
    line = 5 + list(CASES).index(name)
    codes = {fault.code for fault in proven.document.faults if fault.line == line}
    assert codes == ({CASES[name][2]} if CASES[name][2] else set())


def test_only_what_holds_is_stored(proven: QuizFile) -> None:
    assert list(stored(proven)) == ["holds", "visible"]
    assert store_path(proven).read_text().endswith("}\n")
