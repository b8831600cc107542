"""Evidence as the probe would give it, for tests of what is made of evidence.

`solution_evidence()` and `stub_evidence()` are complete; `altered` gives a copy in which one function has
rewritten every training forward, step or run of the submission.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from grader.devices import DeviceKind, Devices
from grader.evidence import (
    Accuracy,
    Architecture,
    DeviceUse,
    Epoch,
    Evidence,
    Forward,
    Optimizer,
    RunEvidence,
    RunOutcome,
    Runs,
    ScriptError,
    Site,
    Step,
    TensorFacts,
    Timing,
    Wrapper,
)

TWO_T4 = Devices(kind=DeviceKind.SIMULATED, count=2, profile="T4")
PARAMETERS = {
    "conv1.weight": [48, 1, 5, 5],
    "conv1.bias": [48],
    "conv2.weight": [48, 48, 5, 5],
    "conv2.bias": [48],
    "classifier.weight": [10, 2352],
    "classifier.bias": [10],
}
ARCHITECTURE = Architecture(
    class_name="Net",
    modules={"": "Net", "conv1": "Conv2d", "conv2": "Conv2d", "classifier": "Linear"},
    state={n: TensorFacts(shape=shape, dtype="float32", trainable=True) for n, shape in PARAMETERS.items()},
)
ADAM: dict[str, Any] = {"lr": 0.001, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0, "foreach": None}
BATCHES = [512, 512, 256]  # of one epoch of an accuracy run
SPEED_BATCHES = [512, 512, 96]  # of one epoch of a speed run, shortened
EPOCHS, SPEED_EPOCHS = 3, 2
VALIDATION_SAMPLES = range(50_000, 50_256)

BUILD = Site(file="train.py", line=58, code="model = nn.DataParallel(model)")
CALL = Site(file="train.py", line=36, code="outputs = model(images)")
OPTIMIZER = Site(file="train.py", line=59, code="optimizer = torch.optim.Adam(model.parameters())")

DATA_PARALLEL = Wrapper(
    class_name="torch.nn.parallel.data_parallel.DataParallel",
    kind="data_parallel",
    wraps="Net",
    device_ids=[0, 1],
    output_device=0,
    built_after_steps=0,
    site=BUILD,
)


def forward(rows: int, samples: list[int], wrapped: bool) -> Forward:
    """One training forward of the solution (`wrapped`) or of the baseline."""
    first = (rows + 1) // 2
    return Forward(
        rows=rows,
        rows_per_device={"cuda:0": first, "cuda:1": rows - first} if wrapped else {"cuda:0": rows},
        path="wrapper" if wrapped else "plain",
        wrapper=0 if wrapped else None,
        model="Net",
        parameter_devices=["cuda:0"],
        input_device="cuda:0",
        output_device="cuda:0",
        target_device="cuda:0",
        loss_device="cuda:0",
        input_dtype="float32",
        parameter_dtypes=["float32"],
        output_dtype="float32",
        samples=samples,
        backwards=1,
        site=CALL,
    )


def steps(batches: list[int], epochs: int, wrapped: bool, values: bool) -> list[Step]:
    """The steps of a run; `values` for an accuracy run, which has losses and tells samples apart."""
    made = []
    for epoch in range(epochs):
        start = 0
        for rows in batches:
            own = list(range(start, start + rows)) if values else []
            made.append(
                Step(
                    epoch=epoch,
                    forwards=[forward(rows, own, wrapped)],
                    optimized=True,
                    parameters_with_gradient=len(PARAMETERS),
                    loss=2.3 / (len(made) + 1) if values else None,
                    loss_function="NllLossBackward0",
                    learning_rates=[0.001],
                )
            )
            start += rows
    return made


WORK = 0.9  # seconds that one epoch's work keeps GPUs busy, all together


def run(batches: list[int], epochs: int, wrapped: bool, values: bool, seconds: float) -> RunEvidence:
    """One completed run."""
    epoch = Epoch(
        seconds=None if values else seconds,  # an accuracy run has no fences
        rows=sum(batches),
        batches=len(batches),
        largest_batch=max(batches),
        loader_batch_size=512,
        shuffled=True,
    )
    return RunEvidence(
        outcome=RunOutcome.COMPLETED,
        output="epoch 1/3\n" if values else "",
        wrappers=[DATA_PARALLEL] if wrapped else [],
        steps=steps(batches, epochs, wrapped, values),
        epochs=[epoch] * epochs,
        optimizers=[
            Optimizer(
                class_name="torch.optim.adam.Adam",
                hyperparameters=[ADAM],
                parameters=sorted(PARAMETERS),
                site=OPTIMIZER,
            )
        ],
        architecture=ARCHITECTURE,
        precision={"float32_matmul_precision": "highest"},
        accuracy=Accuracy(train=0.9, validation=0.88) if values else None,
        weights_difference=0.02 if values and wrapped else None,
        devices=[
            DeviceUse(device="cuda:0", busy_seconds=WORK / 2 if wrapped else WORK),
            DeviceUse(device="cuda:1", busy_seconds=WORK / 2 if wrapped else 0.0),
        ],
    )


def runs(wrapped: bool, seconds: float) -> Runs:
    """Both runs of one script."""
    return Runs(
        accuracy=run(BATCHES, EPOCHS, wrapped, True, 0.3),
        speed=run(SPEED_BATCHES, SPEED_EPOCHS, wrapped, False, seconds),
    )


def evidence(wrapped: bool, seconds: float, devices: Devices = TWO_T4) -> Evidence:
    """Evidence about a script that takes `seconds` per epoch where the baseline takes 12."""
    saving = 1 - seconds / 12.0
    return Evidence(
        exercise="dataparallel",
        submission="train.py",
        devices=devices,
        baseline=runs(False, 12.0),
        submitted=runs(wrapped, seconds),
        timing=Timing(baseline=[12.0], submission=[seconds], saving=saving, confidence=(saving, saving)),
        known_samples=dict.fromkeys(range(1280), "train") | dict.fromkeys(VALIDATION_SAMPLES, "validation"),
    )


def solution_evidence(devices: Devices = TWO_T4) -> Evidence:
    """Evidence about a correct submission."""
    return evidence(True, 6.6, devices)


def stub_evidence(devices: Devices = TWO_T4) -> Evidence:
    """Evidence about the untouched script, which is the baseline."""
    return evidence(False, 12.0, devices)


def altered(
    given: Evidence,
    *,
    forward: Callable[[Forward], dict[str, Any]] | None = None,
    step: Callable[[Step], dict[str, Any]] | None = None,
    run: Callable[[RunEvidence], dict[str, Any]] | None = None,
    wrapper: dict[str, Any] | None = None,
    only: str = "",
) -> Evidence:
    """Return a copy with changes to the submission's runs, or to the one named by `only`.

    Each function returns the fields to replace; they are applied from the inside out. `wrapper` changes
    every wrapper.
    """

    def change_step(given: Step) -> Step:
        if forward is not None:
            forwards = [f.model_copy(update=forward(f)) for f in given.forwards]
            given = given.model_copy(update={"forwards": forwards})
        return given.model_copy(update=step(given)) if step else given

    def change_run(given: RunEvidence) -> RunEvidence:
        wrappers = [w.model_copy(update=wrapper or {}) for w in given.wrappers]
        changed = given.model_copy(
            update={"steps": [change_step(s) for s in given.steps], "wrappers": wrappers}
        )
        return changed.model_copy(update=run(changed)) if run else changed

    submitted = given.submitted
    update = {
        name: change_run(getattr(submitted, name)) for name in ("accuracy", "speed") if only in ("", name)
    }
    return given.model_copy(update={"submitted": submitted.model_copy(update=update)})


def ended(given: Evidence, outcome: RunOutcome, only: str = "accuracy", **fields: Any) -> Evidence:
    """Return a copy in which one of the submission's runs ended in another way than completing."""
    return altered(given, run=lambda _: {"outcome": outcome, **fields}, only=only)


def script_error(message: str = "Expected all tensors to be on the same device") -> ScriptError:
    """An exception of a learner's script, explained."""
    return ScriptError(
        type="RuntimeError",
        message=message,
        traceback='File "train.py", line 37',
        site=Site(file="train.py", line=37, code="loss = F.cross_entropy(outputs, targets)"),
        explanation="Two tensors of one operation are on different devices.",
        look_at="the device of the targets",
    )
