"""What a graded pair of scripts was seen to do: the only thing a check may read.

The baseline and the submission are each run twice. The *accuracy* run does real arithmetic on the
small data set; the *speed* run does the full-size workload for its epoch time. Everything below is
observed by the probe in the child process or by the parent, never taken from what a script prints.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from grader.devices import Devices


class Record(BaseModel):
    """An immutable piece of evidence; an unknown key is an error, not a surprise."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Site(Record):
    """A place in the submitted script."""

    file: str  # relative to the submission's folder
    line: int
    code: str = ""  # the line itself, stripped

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


class RunOutcome(StrEnum):
    """How one run of a script ended."""

    COMPLETED = "completed"  # reached its end, or was ended by the grader at an epoch fence
    ERROR = "error"  # the script raised
    TIMEOUT = "timeout"  # exceeded the wall-clock limit
    OUT_OF_MEMORY = "out_of_memory"  # of a device or of the host
    KILLED = "killed"  # exited or died without the record that a run ends with
    MALFORMED = "malformed"  # sent records that break the schema or the size cap
    UNGRADABLE = "ungradable"  # the grader's own fault


class ScriptError(Record):
    """An exception that left the script."""

    type: str  # class name, e.g. "RuntimeError"
    message: str
    traceback: str  # the learner's frames and torch's, none of the grader's
    site: Site | None = None  # deepest frame in the submission
    explanation: str = ""  # from the catalogue of known errors, plain language
    look_at: str = ""  # what to look at next


class Wrapper(Record):
    """One `DataParallel` (or look-alike, or DistributedDataParallel) that the script built."""

    class_name: str  # qualified, e.g. "torch.nn.parallel.data_parallel.DataParallel"
    kind: Literal["data_parallel", "subclass", "distributed"]
    overrides: list[str] = []  # methods of DataParallel that a subclass replaces
    wraps: str  # class name of the wrapped module
    wraps_wrapper: bool = False  # the wrapped module is, or contains, a wrapper itself
    device_ids: list[int]
    output_device: int | None = None
    built_after_steps: int  # optimizer steps taken before it was built
    site: Site | None = None


class Forward(Record):
    """One call of the trained model from outside, with gradients enabled and in training mode."""

    rows: int  # rows of the input as handed to the model
    rows_per_device: dict[str, int]  # rows that the inner model forwarded, by device, e.g. {"cuda:0": 256}
    path: Literal["wrapper", "bypass", "partial", "functional", "plain"]
    # wrapper: the outermost module is a DataParallel; bypass: the bare model inside a wrapper was
    # called; partial: only submodules are wrapped; functional: torch.nn.parallel.data_parallel, which
    # splits a batch without wrapping; plain: no wrapper anywhere
    wrapper: int | None = None  # index into RunEvidence.wrappers
    model: str  # class name of the innermost whole model
    parameter_devices: list[str]
    input_device: str
    output_device: str
    target_device: str | None = None  # None where the loss does not reveal its targets
    loss_device: str | None = None
    input_dtype: str
    parameter_dtypes: list[str]
    output_dtype: str
    autocast: str | None = None  # dtype of an active autocast
    samples: list[int] = []  # CRC-32 of each input row (accuracy run only)
    backwards: int = 0  # how often a gradient reached its output
    site: Site | None = None


class Step(Record):
    """Everything between two optimizer steps."""

    epoch: int  # 0-based; -1 before the first pass over the training rows
    forwards: list[Forward]
    optimized: bool  # False for what followed the last optimizer step
    parameters_with_gradient: int = 0  # when the optimizer stepped
    loss: float | None = None  # last value that backward was called on (accuracy run only)
    loss_function: str = ""  # autograd node of that value, e.g. "NllLossBackward0"
    learning_rates: list[float] = []

    @property
    def rows(self) -> int:
        """Rows that contributed a gradient."""
        return sum(f.rows for f in self.forwards if f.backwards)

    @property
    def samples(self) -> list[int]:
        """CRC-32 of the rows that contributed a gradient, sorted."""
        return sorted(s for f in self.forwards if f.backwards for s in f.samples)


class Optimizer(Record):
    class_name: str
    hyperparameters: list[dict[str, Any]]  # one per parameter group, parameters left out
    parameters: list[str]  # names in the model it updates, wrapper prefixes removed
    foreign_parameters: int = 0  # parameters that the trained model does not have
    site: Site | None = None


class TensorFacts(Record):
    shape: list[int]
    dtype: str
    trainable: bool = False


class Architecture(Record):
    """Names and shapes of the trained model's state, `module.` levels of wrappers removed."""

    class_name: str
    modules: dict[str, str]  # dotted name -> class name, the model itself under ""
    state: dict[str, TensorFacts]


class Epoch(Record):
    """One pass over the training rows, validation excluded."""

    seconds: float | None  # None where the epoch did not end
    rows: int  # served by the training loader
    batches: int
    largest_batch: int
    loader_batch_size: int | None = None
    shuffled: bool | None = None  # None where the loader's sampler is of an unknown kind


class Accuracy(Record):
    """The parent's evaluation of the returned weights in the untouched model."""

    train: float  # 0..1, on the rows the script trained on
    validation: float  # 0..1, on held-out images that the child never had


class Span(Record):
    """Something that a track (device, link or host) was busy with, in seconds since the epoch began."""

    track: str  # "cuda:0", "host", "host -> cuda:0"
    name: str
    kind: Literal["compute", "copy", "host", "wait"]
    start: float
    end: float


class DeviceUse(Record):
    device: str
    busy_seconds: float = 0.0
    peak_bytes: int = 0
    capacity_bytes: int = 0
    memory: list[tuple[float, int]] = []  # (seconds, bytes allocated), for the timeline


class RunEvidence(Record):
    """What one run of one script was seen to do."""

    outcome: RunOutcome
    wall_seconds: float = 0.0  # of the child process, real time
    error: ScriptError | None = None
    output: str = ""  # what it printed: shown, never believed
    output_truncated: bool = False
    detail: str = ""  # why an outcome is killed, malformed or ungradable
    stopped_at: Site | None = None  # where the script was when its time was up
    wrappers: list[Wrapper] = []
    steps: list[Step] = []
    epochs: list[Epoch] = []
    optimizers: list[Optimizer] = []
    architecture: Architecture | None = None
    precision: dict[str, str] = {}  # global switches, e.g. {"float32_matmul": "highest"}
    accuracy: Accuracy | None = None  # accuracy run only
    weights_difference: float | None = None
    # ||w - baseline's w|| / ||baseline's w - initial w||, over all parameters; the accuracy run of a
    # submission only. Honest data parallelism stays below 0.05 (rounding amplified by Adam).
    devices: list[DeviceUse] = []
    spans: list[Span] = []  # one training step of the first epoch (simulated GPUs only)
    tampering: list[str] = []  # functions of torch or the grader found replaced
    warnings: list[str] = []  # warnings that torch gave, once each

    @property
    def optimized_steps(self) -> list[Step]:
        return [s for s in self.steps if s.optimized]


class Timing(Record):
    """Seconds per epoch over the whole measurement.

    `confidence` is an interval for the relative saving `1 - submission / baseline` (both medians);
    on simulated GPUs it has no width.
    """

    baseline: list[float] = []
    submission: list[float] = []
    saving: float | None = None
    confidence: tuple[float, float] | None = None
    notes: list[str] = []  # foreign processes, throttling


class Runs(Record):
    accuracy: RunEvidence
    speed: RunEvidence


class Evidence(Record):
    """Baseline and submission, on the same devices."""

    exercise: str
    submission: str  # path as the user gave it
    devices: Devices
    baseline: Runs
    submitted: Runs
    timing: Timing = Timing()
    notes: list[str] = []  # what the reader of a report should know
    known_samples: dict[int, str] = Field(default_factory=dict)
    # CRC-32 of an image -> "train", "validation" or "held-out", to say which foreign rows were trained on
