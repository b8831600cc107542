"""Proves the keys of quizzes by running their code: by prediction, by snippets, or by repair."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import dedent

from grader.quiz.files import QuizFile
from grader.quiz.identity import proof_hash
from grader.quiz.model import LETTERS, Choice, Debug, Question, WhichWorks
from grader.quiz.proof import compare
from grader.quiz.proof.record import Record, Run
from grader.quiz.proof.runner import Outcome, Runner
from grader.quiz.proof.store import store, stored


def prove(files: Sequence[QuizFile], *, again: bool = False) -> None:
    """Prove what is not proven yet and store it; what is wrong becomes a fault of the file's document."""
    with Runner() as runner:
        for file in files:
            records = {} if again else stored(file)
            try:
                for index, question in enumerate(file.quiz.questions):
                    if question.id not in records:
                        record = _Proof(runner, file, index, question).record()
                        if record is not None:
                            records[question.id] = record
            finally:  # interrupted, too: what was proven is kept
                _keep(file, records)


def _keep(file: QuizFile, records: dict[str, Record]) -> None:
    """Store the proofs; a folder that cannot be written to is worth a warning."""
    try:
        store(file, records)
    except OSError as problem:
        file.document.blame_place(
            None, f"proofs cannot be stored: {problem.strerror}", "a folder that can be written to",
            code="proof-not-stored", severity="warning",
        )  # fmt: skip


class _Proof:
    """One question while it is being proven."""

    def __init__(self, runner: Runner, file: QuizFile, index: int, question: Question) -> None:
        self.runner, self.document, self.question = runner, file.document, question
        self.location = ("questions", index)
        self.runs: list[Run] = []
        self.failed = False

    def record(self) -> Record | None:
        """Run everything on every world; None where something is wrong or there is nothing to run."""
        question = self.question
        if question.proof.unproven:
            return None
        if question.program is None and not isinstance(question, (WhichWorks, Debug)):
            self.blame(
                (),
                "no program that proves the key",
                "`code`, or the reason under `proof.unproven`",
                "unproven",
            )
            return None
        for gpus in question.proof.gpus:
            match question:
                case WhichWorks():
                    self._snippets(question, gpus)
                case Debug():
                    self._repair(question, gpus)
                case _:
                    self._prediction(question, gpus)
        if self.failed:
            return None
        return Record(
            hash=proof_hash(question), torch=self.runner.torch, gpus=question.proof.gpus,
            processes=question.proof.processes, runs=self.runs,
        )  # fmt: skip

    def blame(self, where: tuple[str | int, ...], found: str, expected: str, code: str) -> None:
        """Note an error at a part of the question."""
        self.failed = True
        self.document.blame((*self.location, *where), found, expected, code=code)

    def run(self, name: str, program: str, gpus: str, where: tuple[str | int, ...]) -> Outcome | None:
        """Run a program between what goes before and after; None, with an error, where it came to no end."""
        proof = self.question.proof
        parts = [part for part in (proof.before, program, proof.after) if part]
        text = "\n".join(dedent(part).rstrip() for part in parts) + "\n"
        outcome = self.runner.run(text, gpus, proof.processes, proof.seconds)
        if outcome.problem:
            self.blame(
                where,
                f"{name} on {gpus}: {outcome.problem}",
                "a program that comes to its end",
                "proof-no-end",
            )
            return None
        if outcome.seconds < 1 and not self._comes_again(text, gpus, outcome):
            expected = "a program without addresses, paths and clocks in its output"
            self.blame(where, f"{name} ends differently in a second run", expected, "not-reproducible")
            return None
        raised = outcome.raised
        told = None if raised is None else f"{raised.kind}: {compare.without_frames(raised.message)}"
        seconds = round(outcome.seconds, 1)
        self.runs.append(Run(name=name, gpus=gpus, printed=outcome.printed, raised=told, seconds=seconds))
        return outcome

    def _comes_again(self, text: str, gpus: str, first: Outcome) -> bool:
        proof = self.question.proof
        second = self.runner.run(text, gpus, proof.processes, proof.seconds)
        return (first.printed, first.raised) == (second.printed, second.raised)

    def needs_source(self, outcome: Outcome, where: tuple[str | int, ...]) -> None:
        """An error that the simulation raised says what it was given to say."""
        if outcome.raised is not None and outcome.raised.simulated and not self.question.proof.source:
            self.blame(
                where, "an error text that the simulation only repeats",
                "`proof.source`: the file of the sources, or the real GPU, it is from", "source-missing",
            )  # fmt: skip

    def _prediction(self, question: Question, gpus: str) -> None:
        outcome = self.run("program", question.program or "", gpus, ("code",))
        if outcome is None:
            return
        for position, option in enumerate(question.options):
            assert isinstance(option, Choice)
            where = ("options", position)
            right = position in question.right
            says = option.prints is not None or option.raises is not None
            if option.prints is not None:
                holds = outcome.raised is None and (
                    compare.normalised(outcome.printed) == compare.normalised(option.prints)
                )
            else:
                holds = option.raises is not None and compare.raises(outcome.raised, option.raises)
            letter = LETTERS[position]
            if right and not says:
                self.blame(
                    where, "a right option in words only", "`prints` or `raises` beside it", "key-in-words"
                )
            elif right and not holds:
                self.blame(
                    where,
                    f"on {gpus}, {compare.told(outcome)}",
                    f"what option {letter}, the key, says",
                    "key-contradicted",
                )
            elif says and holds and not right:
                self.blame(
                    where,
                    f"option {letter} is right, too, on {gpus}",
                    "one that the program refutes",
                    "two-right-options",
                )
        self.needs_source(outcome, ("proof",))

    def _snippets(self, question: WhichWorks, gpus: str) -> None:
        for position, option in enumerate(question.options):
            where, name = ("options", position), f"option {LETTERS[position]}"
            if position not in question.right and option.fails is None:
                self.blame(where, f"{name} does not say how it fails", "`fails: ...`", "fails-missing")
                continue
            outcome = self.run(name, option.code, gpus, (*where, "code"))
            if outcome is None:
                continue
            if position in question.right:
                if outcome.raised is not None:
                    self.blame(
                        (*where, "code"),
                        f"{name} on {gpus}: {compare.told(outcome)}",
                        "a snippet that works, for it is a key",
                        "key-contradicted",
                    )
            elif outcome.raised is None:
                self.blame(
                    (*where, "code"),
                    f"{name} works on {gpus}",
                    "a snippet that fails, or its letter in the key",
                    "two-right-options",
                )
            elif not compare.raises(outcome.raised, option.fails or ""):
                self.blame(
                    (*where, "fails"),
                    f"{name} on {gpus}: {compare.told(outcome)}",
                    f"{option.fails}; is there a slip?",
                    "fails-otherwise",
                )
            else:
                self.needs_source(outcome, (*where, "fails"))

    def _repair(self, question: Debug, gpus: str) -> None:
        broken = self.run("program", question.code, gpus, ("code",))
        if broken is None:
            return
        if question.error is not None and not compare.raises(broken.raised, question.error):
            self.blame(("error",), f"on {gpus}, {compare.told(broken)}", question.error, "error-not-seen")
        if question.prints is not None and compare.normalised(broken.printed) != compare.normalised(
            question.prints
        ):
            self.blame(
                ("prints",), f"on {gpus}, {compare.told(broken)}", "what `prints` says", "error-not-seen"
            )
        self.needs_source(broken, ("error",))
        mended = self.run("fix", question.fix, gpus, ("fix",))
        if mended is not None and not _mends(question, mended):
            self.blame(
                ("fix",), f"on {gpus}, {compare.told(mended)}", "a program that mends the fault", "fix-fails"
            )
        for position, option in enumerate(question.options):
            if option.fix is None:
                continue
            where, name = ("options", position, "fix"), f"option {LETTERS[position]}"
            tried = self.run(name, option.fix, gpus, where)
            if tried is None:
                continue
            if position in question.right:
                if not _mends(question, tried):
                    self.blame(
                        where,
                        f"{name} on {gpus}: {compare.told(tried)}",
                        "a program that mends the fault",
                        "key-contradicted",
                    )
            elif _as_said(option.fails, question, tried):
                continue
            elif tried.raised is None:
                self.blame(
                    where, f"the fix of {name} works on {gpus}", "one that does not help", "two-right-options"
                )
            else:
                self.blame(
                    where,
                    f"{name} on {gpus}: {compare.told(tried)}",
                    option.fails or "the fault as before",
                    "fails-otherwise",
                )


def _mends(question: Debug, outcome: Outcome) -> bool:
    if outcome.raised is not None:
        return False
    wanted = question.fix_prints
    return wanted is None or compare.normalised(outcome.printed) == compare.normalised(wanted)


def _as_said(fails: str | None, question: Debug, outcome: Outcome) -> bool:
    """Whether a wrong fix leaves the fault as it was, or fails as the option says."""
    if fails is not None:
        return compare.raises(outcome.raised, fails)
    if question.error is not None:
        return compare.raises(outcome.raised, question.error)
    return outcome.raised is None and (
        compare.normalised(outcome.printed) == compare.normalised(question.prints or "")
    )
