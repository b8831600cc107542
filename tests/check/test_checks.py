"""Each verdict of the DataParallel exercise's checks, and the words that a learner reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from grader.check import judge
from grader.devices import DeviceKind, Devices
from grader.evidence import DeviceUse, Evidence, RunOutcome, Site, Step, TensorFacts, Timing
from grader.exercise import Exercise, load_exercise
from grader.grade import CheckResult, Grade, Outcome
from tests.check import builders
from tests.check.builders import altered, ended, solution_evidence, stub_evidence


@pytest.fixture(scope="module")
def exercise() -> Exercise:
    return load_exercise(Path(__file__).parents[2] / "exercises" / "dataparallel")


def result(grade: Grade, id: str) -> CheckResult:
    return next(check for check in grade.checks if check.id == id)


def assert_fails(exercise: Exercise, evidence: Evidence, id: str, *phrases: str) -> CheckResult:
    """Judge, and assert that the check failed with all the phrases in its message."""
    found = result(judge(exercise, evidence), id)
    assert found.outcome is Outcome.FAILED, found
    for phrase in phrases:
        assert phrase in found.message
    return found


def test_the_solution_gets_everything(exercise: Exercise) -> None:
    grade = judge(exercise, solution_evidence())
    assert [c.outcome for c in grade.checks] == [Outcome.PASSED] * 6, grade.checks
    assert (grade.score, grade.max_score, grade.outcome) == (100, 100, Outcome.PASSED)
    assert all(check.message and check.why for check in grade.checks)


def test_the_untouched_stub_gets_30_points_and_sees_its_time(exercise: Exercise) -> None:
    grade = judge(exercise, stub_evidence())
    outcomes = {check.id: check.outcome for check in grade.checks}
    assert outcomes == {
        "runs": Outcome.PASSED,
        "wrapped": Outcome.FAILED,
        "placement": Outcome.SKIPPED,
        "recipe": Outcome.PASSED,
        "speed": Outcome.FAILED,
        "accuracy": Outcome.PASSED,
    }
    assert grade.score == 30
    assert "12 s per epoch, the baseline 12 s (2 simulated T4): 0.0% less" in result(grade, "speed").message
    assert "nn.DataParallel, on all GPUs" in result(grade, "placement").message


class TestRuns:
    @pytest.mark.parametrize(
        ("outcome", "expected"),
        [
            (RunOutcome.ERROR, Outcome.ERROR),
            (RunOutcome.TIMEOUT, Outcome.TIMEOUT),
            (RunOutcome.OUT_OF_MEMORY, Outcome.OUT_OF_MEMORY),
            (RunOutcome.KILLED, Outcome.FAILED),
            (RunOutcome.MALFORMED, Outcome.FAILED),
        ],
    )
    def test_a_run_that_did_not_complete_costs_all_points(
        self, exercise: Exercise, outcome: RunOutcome, expected: Outcome
    ) -> None:
        grade = judge(exercise, ended(solution_evidence(), outcome))
        assert result(grade, "runs").outcome is expected
        assert grade.outcome is expected
        assert {c.outcome for c in grade.checks[1:]} == {Outcome.SKIPPED}
        assert (grade.score, grade.max_score) == (0, 100)

    def test_a_run_that_the_grader_spoiled_costs_nothing(self, exercise: Exercise) -> None:
        grade = judge(exercise, ended(solution_evidence(), RunOutcome.UNGRADABLE, detail="No disk space."))
        assert {c.outcome for c in grade.checks} == {Outcome.UNGRADABLE}
        assert (grade.score, grade.max_score, grade.outcome) == (0, 0, Outcome.UNGRADABLE)
        assert "No disk space." in result(grade, "runs").message

    def test_a_baseline_that_failed_costs_nothing(self, exercise: Exercise) -> None:
        given = solution_evidence()
        spoiled = altered(given.model_copy(update={"submitted": given.baseline}), run=_ended_in_error)
        grade = judge(exercise, given.model_copy(update={"baseline": spoiled.submitted}))
        assert grade.outcome is Outcome.UNGRADABLE

    def test_an_exception_is_explained_with_its_place(self, exercise: Exercise) -> None:
        given = ended(solution_evidence(), RunOutcome.ERROR, error=builders.script_error())
        grade = judge(exercise, given)
        found = result(grade, "runs")
        assert "RuntimeError: Expected all tensors to be on the same device" in found.message
        assert "Two tensors of one operation" not in found.message  # it stands in the error, once
        assert found.location == "train.py:37"
        assert grade.error is not None
        assert "Two tensors of one operation" in grade.error.explanation

    def test_the_zeros_of_a_run_without_arithmetic_are_not_shown(self, exercise: Exercise) -> None:
        error = builders.script_error("the accuracy is 0.0, something is broken")
        given = ended(solution_evidence(), RunOutcome.ERROR, only="speed", error=error)
        grade = judge(exercise, given)
        assert "something is broken" not in grade.model_dump_json()
        assert "do no arithmetic" in result(grade, "runs").message
        assert result(grade, "runs").location == "train.py:37"

    def test_only_the_first_and_the_last_line_of_a_long_message_is_told(self, exercise: Exercise) -> None:
        long = (
            "Caught RuntimeError in replica 0 on device 0.\nTraceback\n  File x\nRuntimeError: sizes differ\n"
        )
        given = ended(solution_evidence(), RunOutcome.ERROR, error=builders.script_error(long))
        message = result(judge(exercise, given), "runs").message
        assert "in replica 0 on device 0. RuntimeError: sizes differ" in message
        assert "Traceback" not in message

    @pytest.mark.parametrize(
        ("wrapper", "phrase"),
        [
            ({"wraps_wrapper": True}, "wrapped twice"),
            ({"kind": "distributed"}, "DistributedDataParallel (built at train.py:58)"),
        ],
    )
    def test_a_wrapping_that_explains_the_error_is_named(
        self, exercise: Exercise, wrapper: dict[str, Any], phrase: str
    ) -> None:
        given = altered(solution_evidence(), wrapper=wrapper)
        given = ended(given, RunOutcome.ERROR, error=builders.script_error())
        assert phrase in result(judge(exercise, given), "runs").message

    def test_a_script_that_never_trains(self, exercise: Exercise) -> None:
        given = altered(solution_evidence(), run=lambda _: {"steps": []})
        assert_fails(exercise, given, "runs", "without a single training step")

    def test_replaced_functions_cost_all_points(self, exercise: Exercise) -> None:
        given = altered(solution_evidence(), run=lambda _: {"tampering": ["time.perf_counter"]}, only="speed")
        assert_fails(exercise, given, "runs", "time.perf_counter", "replaced")
        assert judge(exercise, given).score == 0


def _ended_in_error(_: Any) -> dict[str, Any]:
    return {"outcome": RunOutcome.ERROR}


def bypassing(code: str, built: str = "model = nn.DataParallel(model)") -> Evidence:
    call = Site(file="train.py", line=36, code=code)
    return altered(
        solution_evidence(),
        forward=lambda f: {"path": "bypass", "site": call, "rows_per_device": {"cuda:0": f.rows}},
        wrapper={"site": Site(file="train.py", line=58, code=built)},
    )


class TestWrapped:
    def test_not_wrapped_at_all(self, exercise: Exercise) -> None:
        found = assert_fails(
            exercise, stub_evidence(), "wrapped", "never wrapped", "plain Net", "cuda:0", "all 2 GPUs"
        )
        assert found.location == "train.py:36"

    def test_wrapped_but_trained_through_module(self, exercise: Exercise) -> None:
        assert_fails(
            exercise, bypassing("out = model.module(images)"), "wrapped", "past its wrapper", "`.module`"
        )

    def test_wrapper_discarded(self, exercise: Exercise) -> None:
        given = bypassing("outputs = model(images)", built="nn.DataParallel(model)")
        assert_fails(
            exercise, given, "wrapped", "train.py:58", "discarded", "`model = nn.DataParallel(model)`"
        )

    def test_wrapper_kept_but_never_called(self, exercise: Exercise) -> None:
        assert_fails(
            exercise, bypassing("run(net, images)", built="wrapped = (nn."), "wrapped", "was not called"
        )

    def test_wrapped_after_the_loop(self, exercise: Exercise) -> None:
        late = builders.DATA_PARALLEL.model_copy(update={"built_after_steps": 9})
        given = altered(stub_evidence(), run=lambda _: {"wrappers": [late]}, only="accuracy")
        assert assert_fails(exercise, given, "wrapped", "after the training loop").location == "train.py:58"

    def test_wrapped_after_some_steps(self, exercise: Exercise) -> None:
        late = builders.DATA_PARALLEL.model_copy(update={"built_after_steps": 3})
        first = stub_evidence().submitted.accuracy.steps[:3]
        given = altered(solution_evidence(), run=lambda r: {"wrappers": [late], "steps": first + r.steps[3:]})
        assert_fails(exercise, given, "wrapped", "only after 3 steps", "3 of 9 training forwards")

    def test_only_a_part_is_wrapped(self, exercise: Exercise) -> None:
        given = altered(
            solution_evidence(), forward=lambda _: {"path": "partial"}, wrapper={"wraps": "Conv2d"}
        )
        assert_fails(exercise, given, "wrapped", "Only a part", "Conv2d inside Net", "whole model")

    def test_another_model_is_wrapped(self, exercise: Exercise) -> None:
        given = altered(stub_evidence(), run=lambda _: {"wrappers": [builders.DATA_PARALLEL]})
        assert_fails(exercise, given, "wrapped", "not the one trained")

    def test_the_functional_form(self, exercise: Exercise) -> None:
        given = altered(solution_evidence(), forward=lambda _: {"path": "functional", "wrapper": None})
        assert_fails(exercise, given, "wrapped", "the function data_parallel", "nn.DataParallel")

    def test_a_look_alike(self, exercise: Exercise) -> None:
        modules = {"": "DataParallel", "module": "Net"}
        given = altered(
            stub_evidence(),
            forward=lambda _: {"model": "DataParallel"},
            run=lambda r: {
                "architecture": r.architecture.model_copy(
                    update={"class_name": "DataParallel", "modules": modules}
                )
            },
        )
        assert_fails(exercise, given, "wrapped", "class of the script's own", "not torch.nn.DataParallel")

    def test_distributed_data_parallel(self, exercise: Exercise) -> None:
        given = altered(solution_evidence(), wrapper={"kind": "distributed"})
        assert_fails(exercise, given, "wrapped", "DistributedDataParallel", "nn.DataParallel")

    @pytest.mark.parametrize("method", ["forward", "replicate", "scatter", "parallel_apply", "gather"])
    def test_a_subclass_that_does_something_else(self, exercise: Exercise, method: str) -> None:
        changed = {"kind": "subclass", "class_name": "__main__.Mine", "overrides": ["__getattr__", method]}
        assert_fails(
            exercise,
            altered(solution_evidence(), wrapper=changed),
            "wrapped",
            f"Mine is DataParallel with its own {method}.",
        )

    def test_an_honest_subclass_passes(self, exercise: Exercise) -> None:
        honest = {
            "kind": "subclass",
            "class_name": "__main__.Mine",
            "overrides": ["__getattr__", "state_dict"],
        }
        assert judge(exercise, altered(solution_evidence(), wrapper=honest)).score == 100

    def test_wrapped_twice(self, exercise: Exercise) -> None:
        assert_fails(
            exercise,
            altered(solution_evidence(), wrapper={"wraps_wrapper": True}),
            "wrapped",
            "wrapped twice",
        )

    @pytest.mark.parametrize(
        ("ids", "phrase"),
        [([0], "one GPU only: device_ids is [0], without cuda:1"), ([0, 0], "more than once")],
    )
    def test_not_all_gpus(self, exercise: Exercise, ids: list[int], phrase: str) -> None:
        assert_fails(exercise, altered(solution_evidence(), wrapper={"device_ids": ids}), "wrapped", phrase)

    def test_some_of_many_gpus(self, exercise: Exercise) -> None:
        four = Devices(kind=DeviceKind.SIMULATED, count=4, profile="T4")
        assert_fails(exercise, solution_evidence(four), "wrapped", "2 of 4 GPUs", "without cuda:2, cuda:3")

    def test_both_runs_count(self, exercise: Exercise) -> None:
        given = altered(solution_evidence(), forward=lambda _: {"path": "plain"}, only="speed")
        assert_fails(exercise, given, "wrapped", "in the speed run")

    def test_forwards_without_a_gradient_do_not_count(self, exercise: Exercise) -> None:
        def with_decoy(step: Step) -> dict[str, Any]:
            decoy = step.forwards[0].model_copy(update={"backwards": 0})
            real = step.forwards[0].model_copy(update={"path": "plain", "wrapper": None})
            return {"forwards": [decoy, real]}

        assert_fails(
            exercise, altered(solution_evidence(), step=with_decoy), "wrapped", "every training forward"
        )

    def test_no_training_seen(self, exercise: Exercise) -> None:
        given = altered(solution_evidence(), step=lambda _: {"forwards": []})
        assert_fails(exercise, given, "wrapped", "no training step called a model", "nn.DataParallel")

    def test_wrapped_for_validation_only(self, exercise: Exercise) -> None:
        late = builders.DATA_PARALLEL.model_copy(update={"built_after_steps": 3})
        given = altered(stub_evidence(), run=lambda _: {"wrappers": [late]})
        assert_fails(
            exercise, given, "wrapped", "past nn.DataParallel", "after 3 steps", "not called in training"
        )


class TestPlacement:
    def test_parameters_elsewhere(self, exercise: Exercise) -> None:
        given = altered(solution_evidence(), forward=lambda _: {"parameter_devices": ["cuda:0", "cuda:1"]})
        found = assert_fails(exercise, given, "placement", "Parameters were on cuda:1", "all on cuda:0")
        assert found.location == "train.py:58"

    def test_loss_off_the_gpu(self, exercise: Exercise) -> None:
        given = altered(solution_evidence(), forward=lambda _: {"target_device": "cpu", "loss_device": "cpu"})
        assert_fails(exercise, given, "placement", "targets of a training step: cpu", "Expected: cuda:0")

    def test_inputs_may_lie_anywhere(self, exercise: Exercise) -> None:
        for device in ("cpu", "cuda:1"):
            given = altered(solution_evidence(), forward=lambda _, device=device: {"input_device": device})
            assert judge(exercise, given).score == 100

    def test_another_order_of_the_gpus(self, exercise: Exercise) -> None:
        def swapped(forward: Any) -> dict[str, Any]:
            return {
                "parameter_devices": ["cuda:1"],
                **dict.fromkeys(("target_device", "loss_device", "output_device"), "cuda:1"),
            }

        given = altered(solution_evidence(), forward=swapped, wrapper={"device_ids": [1, 0]})
        assert judge(exercise, given).score == 100

    def test_an_idle_gpu(self, exercise: Exercise) -> None:
        given = altered(solution_evidence(), forward=lambda f: {"rows_per_device": {"cuda:0": f.rows}})
        assert_fails(
            exercise, given, "placement", "9 of 9", "512 on cuda:0", "Expected: 256 on cuda:0, 256 on cuda:1"
        )

    def test_small_last_batches_may_leave_a_gpu_idle(self, exercise: Exercise) -> None:
        def one_row(step: Step) -> dict[str, Any]:
            last = step.forwards[0]
            return {"forwards": [last.model_copy(update={"rows": 1, "rows_per_device": {"cuda:0": 1}})]}

        given = altered(solution_evidence(), step=one_row)
        assert result(judge(exercise, given), "placement").outcome is Outcome.PASSED


def with_optimizer(**changes: Any) -> Evidence:
    return altered(
        solution_evidence(), run=lambda r: {"optimizers": [r.optimizers[0].model_copy(update=changes)]}
    )


def with_architecture(**changes: Any) -> Evidence:
    return altered(
        solution_evidence(), run=lambda r: {"architecture": r.architecture.model_copy(update=changes)}
    )


def resized(rows: int) -> Any:
    def change(step: Step) -> dict[str, Any]:
        only = step.forwards[0]
        return {"forwards": [only.model_copy(update={"rows": rows, "samples": only.samples[:rows]})]}

    return change


class TestRecipe:
    def test_optimizer_class(self, exercise: Exercise) -> None:
        found = assert_fails(
            exercise, with_optimizer(class_name="torch.optim.sgd.SGD"), "recipe", "SGD instead of Adam"
        )
        assert found.location == "train.py:59"
        assert "1 difference" in found.message

    @pytest.mark.parametrize(
        ("name", "value", "phrase"),
        [
            ("lr", 0.01, "learning rate: 0.01 instead of 0.001"),
            ("weight_decay", 0.1, "weight_decay: 0.1 instead of 0"),
            ("betas", [0.5, 0.9], "betas: [0.5, 0.9]"),
        ],
    )
    def test_hyperparameters(self, exercise: Exercise, name: str, value: Any, phrase: str) -> None:
        assert_fails(
            exercise, with_optimizer(hyperparameters=[{**builders.ADAM, name: value}]), "recipe", phrase
        )

    def test_two_groups_and_another_kernel_are_the_same_recipe(self, exercise: Exercise) -> None:
        groups = [{**builders.ADAM, "foreach": True}, {**builders.ADAM, "initial_lr": 0.001}]
        assert judge(exercise, with_optimizer(hyperparameters=groups)).score == 100

    def test_a_schedule(self, exercise: Exercise) -> None:
        given = altered(solution_evidence(), step=lambda s: {"learning_rates": [0.001 / (s.epoch + 1)]})
        assert_fails(exercise, given, "recipe", "learning rate: 0.0005 instead of 0.001, from step 4 on")

    def test_parameters_left_out(self, exercise: Exercise) -> None:
        given = with_optimizer(parameters=["classifier.bias"], foreign_parameters=5)
        assert_fails(
            exercise,
            given,
            "recipe",
            "does not update classifier.weight, conv1.bias",
            "not the trained model's",
        )

    def test_batch_size(self, exercise: Exercise) -> None:
        def halved(run: Any) -> dict[str, Any]:
            return {"epochs": [e.model_copy(update={"largest_batch": 256}) for e in run.epochs]}

        given = altered(solution_evidence(), step=resized(256), run=halved)
        assert_fails(exercise, given, "recipe", "batch size: 256 rows in a step instead of 512")

    def test_half_of_each_batch(self, exercise: Exercise) -> None:
        given = altered(solution_evidence(), step=lambda s: resized(s.rows // 2)(s))
        assert_fails(
            exercise, given, "recipe", "batches of 512 rows were loaded, and 256 rows of them trained on"
        )

    def test_drop_last(self, exercise: Exercise) -> None:
        given = altered(solution_evidence(), run=lambda r: {"steps": [s for s in r.steps if s.rows == 512]})
        assert_fails(exercise, given, "recipe", "drop_last", "256 rows")

    def test_fewer_epochs(self, exercise: Exercise) -> None:
        given = altered(
            solution_evidence(),
            run=lambda r: {"steps": [s for s in r.steps if s.epoch < 2], "epochs": r.epochs[:2]},
            only="accuracy",
        )
        assert_fails(exercise, given, "recipe", "1 difference", "epochs: 2 instead of 3")

    def test_a_speed_run_may_end_earlier(self, exercise: Exercise) -> None:
        given = altered(
            solution_evidence(),
            run=lambda r: {"steps": [s for s in r.steps if s.epoch < 1], "epochs": r.epochs[:1]},
            only="speed",
        )
        assert judge(exercise, given).score == 100

    def test_backward_skipped(self, exercise: Exercise) -> None:
        def skipping(run: Any) -> dict[str, Any]:
            idle = [f.model_copy(update={"backwards": 0}) for f in run.steps[1].forwards]
            return {
                "steps": [run.steps[0], run.steps[1].model_copy(update={"forwards": idle}), *run.steps[2:]]
            }

        assert_fails(
            exercise, altered(solution_evidence(), run=skipping), "recipe", "1 of 3 forwards had no backward"
        )

    def test_validation_images(self, exercise: Exercise) -> None:
        def with_validation(step: Step) -> dict[str, Any]:
            own = step.forwards[0]
            samples = [*own.samples[:-10], *builders.VALIDATION_SAMPLES[:10]]
            return {"forwards": [own.model_copy(update={"samples": samples})]}

        given = altered(solution_evidence(), step=with_validation, only="accuracy")
        assert_fails(exercise, given, "recipe", "10 validation images trained on")

    def test_altered_images(self, exercise: Exercise) -> None:
        given = altered(
            solution_evidence(),
            forward=lambda f: {"samples": [s + 10**6 for s in f.samples]},
            only="accuracy",
        )
        assert_fails(exercise, given, "recipe", "1,280 images trained on that are not in the data")

    def test_another_order(self, exercise: Exercise) -> None:
        def turned(run: Any) -> dict[str, Any]:
            first, second = run.steps[0], run.steps[1]
            swapped = [
                first.model_copy(update={"forwards": second.forwards}),
                second.model_copy(update={"forwards": first.forwards}),
            ]
            return {"steps": [*swapped, *run.steps[2:]]}

        given = altered(solution_evidence(), run=turned, only="accuracy")
        assert_fails(exercise, given, "recipe", "the right images, but in other steps", "from epoch 1 on")

    def test_repeated_images(self, exercise: Exercise) -> None:
        given = altered(
            solution_evidence(), forward=lambda f: {"samples": [f.samples[0]] * f.rows}, only="accuracy"
        )
        assert_fails(exercise, given, "recipe", "not every training image is used once")

    def test_frozen_layers(self, exercise: Exercise) -> None:
        state = dict(builders.ARCHITECTURE.state)
        state["conv1.weight"] = TensorFacts(shape=[48, 1, 5, 5], dtype="float32", trainable=False)
        assert_fails(exercise, with_architecture(state=state), "recipe", "frozen", "conv1.weight")

    def test_fewer_gradients(self, exercise: Exercise) -> None:
        given = altered(solution_evidence(), step=lambda _: {"parameters_with_gradient": 4})
        assert_fails(exercise, given, "recipe", "4 of 6 parameters had a gradient in 9 of 9 steps")

    def test_another_shape(self, exercise: Exercise) -> None:
        state = dict(builders.ARCHITECTURE.state)
        state["conv1.weight"] = TensorFacts(shape=[24, 1, 5, 5], dtype="float32", trainable=True)
        assert_fails(exercise, with_architecture(state=state), "recipe", "24×1×5×5 instead of 48×1×5×5")

    def test_a_layer_without_parameters(self, exercise: Exercise) -> None:
        modules = {**builders.ARCHITECTURE.modules, "drop": "Dropout"}
        assert_fails(exercise, with_architecture(modules=modules), "recipe", "drop (Dropout) added")

    def test_a_module_around_the_model_is_the_same_architecture(self, exercise: Exercise) -> None:
        plain = builders.ARCHITECTURE
        modules = {"": "WithLoss", "net": "Net"} | {f"net.{n}": k for n, k in plain.modules.items() if n}
        state = {f"net.{name}": facts for name, facts in plain.state.items()}
        given = with_architecture(class_name="WithLoss", modules=modules, state=state)
        assert judge(exercise, given).score == 100

    def test_half_precision(self, exercise: Exercise) -> None:
        given = altered(solution_evidence(), forward=lambda _: {"input_dtype": "float16"})
        assert_fails(exercise, given, "recipe", "float16 inputs instead of float32")

    def test_autocast(self, exercise: Exercise) -> None:
        given = altered(solution_evidence(), forward=lambda _: {"autocast": "bfloat16"}, only="speed")
        assert_fails(exercise, given, "recipe", "in the speed run only: precision: autocast to bfloat16")

    def test_a_global_switch(self, exercise: Exercise) -> None:
        given = altered(
            solution_evidence(), run=lambda _: {"precision": {"float32_matmul_precision": "medium"}}
        )
        assert_fails(exercise, given, "recipe", "float32_matmul_precision is medium instead of highest")

    def test_another_loss(self, exercise: Exercise) -> None:
        given = altered(solution_evidence(), step=lambda s: {"loss": 2 * s.loss if s.loss else None})
        assert_fails(exercise, given, "recipe", "loss: 4.6 in the first step, where the baseline has 2.3")

    def test_the_same_loss_by_another_formula(self, exercise: Exercise) -> None:
        given = altered(solution_evidence(), step=lambda _: {"loss_function": "MeanBackward0"})
        assert judge(exercise, given).score == 100

    def test_another_loss_in_the_speed_run(self, exercise: Exercise) -> None:
        given = altered(solution_evidence(), step=lambda _: {"loss_function": "SumBackward0"}, only="speed")
        assert_fails(exercise, given, "recipe", "SumBackward0 instead of NllLossBackward0")

    def test_a_loss_that_takes_another_course(self, exercise: Exercise) -> None:
        given = altered(
            solution_evidence(), step=lambda s: {"loss": s.loss * (1 + 0.3 * s.epoch) if s.loss else None}
        )
        assert_fails(exercise, given, "recipe", "departs from the baseline's")

    def test_no_step_at_all(self, exercise: Exercise) -> None:
        given = altered(solution_evidence(), step=lambda _: {"optimized": False})
        assert_fails(exercise, given, "recipe", "never took a step")

    def test_weights_that_end_elsewhere(self, exercise: Exercise) -> None:
        given = altered(solution_evidence(), run=lambda _: {"weights_difference": 0.9}, only="accuracy")
        assert_fails(exercise, given, "recipe", "weights: they end 90% as far", "initial weights", "forward")
        assert_fails(exercise, given, "speed", "do not compare")

    def test_weights_are_told_only_where_nothing_else_differs(self, exercise: Exercise) -> None:
        given = altered(
            with_optimizer(class_name="torch.optim.sgd.SGD"), run=lambda _: {"weights_difference": 0.9}
        )
        assert "weights" not in assert_fails(exercise, given, "recipe", "SGD", "1 difference").message

    def test_not_shuffled(self, exercise: Exercise) -> None:
        def sorted_samples(run: Any) -> dict[str, Any]:
            steps = [run.steps[1], run.steps[0], *run.steps[2:]]
            return {
                "steps": steps,
                "epochs": [epoch.model_copy(update={"shuffled": False}) for epoch in run.epochs],
            }

        assert_fails(exercise, altered(solution_evidence(), run=sorted_samples), "recipe", "not shuffled")


def timed(submission: list[float], confidence: tuple[float, float] | None = None) -> Evidence:
    saving = 1 - submission[0] / 12 if submission else None
    timing = Timing(baseline=[12.0], submission=submission, saving=saving, confidence=confidence)
    return solution_evidence().model_copy(update={"timing": timing})


class TestSpeed:
    def test_less_computed_than_the_baseline_computes(self, exercise: Exercise) -> None:
        idle = [DeviceUse(device="cuda:0", busy_seconds=0.45), DeviceUse(device="cuda:1", busy_seconds=0.01)]
        given = altered(solution_evidence(), run=lambda _: {"devices": idle})
        assert_fails(exercise, given, "speed", "all GPUs together computed and copied for 0.46 s")
        assert judge(exercise, given).epoch_seconds.incomparable

    def test_a_message_of_any_length_is_cut(self, exercise: Exercise) -> None:
        given = ended(solution_evidence(), RunOutcome.ERROR, error=builders.script_error("x" * 100_000))
        assert len(result(judge(exercise, given), "runs").message) <= 2000

    def test_a_real_gpu_is_not_called_simulated(self, exercise: Exercise) -> None:
        real = Devices(kind=DeviceKind.REAL, count=2, profile="NVIDIA T4")
        message = result(judge(exercise, solution_evidence(real)), "speed").message
        assert message.startswith("6.6 s per epoch, the baseline 12 s (2 x NVIDIA T4): 45.0% less.")

    def test_too_slow(self, exercise: Exercise) -> None:
        assert_fails(exercise, timed([8.0]), "speed", "33.3% less", "at least 40% less")
        assert_fails(exercise, timed([15.0]), "speed", "25.0% more")

    def test_exactly_at_the_threshold_passes(self, exercise: Exercise) -> None:
        given = timed([7.2], (0.4, 0.4))
        assert result(judge(exercise, given), "speed").outcome is Outcome.PASSED

    def test_too_noisy_to_decide(self, exercise: Exercise) -> None:
        grade = judge(exercise, timed([7.0], (0.35, 0.45)))
        assert result(grade, "speed").outcome is Outcome.INCONCLUSIVE
        assert "between 35.0% and 45.0%" in result(grade, "speed").message
        assert (grade.score, grade.max_score, grade.outcome) == (75, 100, Outcome.INCONCLUSIVE)

    @pytest.mark.parametrize("seconds", [0.1, 0.0, -3.0, float("inf"), float("nan")])
    def test_implausible(self, exercise: Exercise, seconds: float) -> None:
        assert_fails(exercise, timed([seconds]), "speed", "Not plausible")

    def test_nothing_timed(self, exercise: Exercise) -> None:
        assert_fails(exercise, timed([]), "speed", "No epoch of the script was timed")

    def test_less_work_is_not_faster(self, exercise: Exercise) -> None:
        given = altered(solution_evidence(), step=lambda s: resized(s.rows // 2)(s))
        assert_fails(exercise, given, "speed", "do not compare", "6.6 s", "trained on")

    def test_another_learning_rate_leaves_the_time_comparable(self, exercise: Exercise) -> None:
        given = with_optimizer(hyperparameters=[{**builders.ADAM, "lr": 0.01}])
        assert result(judge(exercise, given), "speed").outcome is Outcome.PASSED


class TestAccuracy:
    @pytest.mark.parametrize(
        ("validation", "phrase"),
        [
            (0.75, "Expected: above 75.0%"),
            (0.5, "50.0% of the held-out"),
            (0.84, "at least 85.0%, 3 points below"),
        ],
    )
    def test_too_low(self, exercise: Exercise, validation: float, phrase: str) -> None:
        reached = {"accuracy": builders.Accuracy(train=0.9, validation=validation)}
        assert_fails(
            exercise, altered(solution_evidence(), run=lambda _: reached, only="accuracy"), "accuracy", phrase
        )

    def test_no_weights(self, exercise: Exercise) -> None:
        given = altered(solution_evidence(), run=lambda _: {"accuracy": None}, only="accuracy")
        assert_fails(exercise, given, "accuracy", "No trained weights came back")
