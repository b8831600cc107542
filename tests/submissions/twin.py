"""A small twin of an exercise, so that hundreds of submissions can be graded in a few minutes.

The twin is made from the exercise itself by replacing numbers, in baseline, data and submissions alike: a
twelfth of the channels, an eighth of the rows and of the batch, and a larger learning rate, to learn as much
in as many steps. Its simulated GPU is slower in the same proportion, so that splitting a batch saves
about as much as it does in the original.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from ruamel.yaml import YAML

REPOSITORY = Path(__file__).parents[2]
ORIGINAL = REPOSITORY / "exercises" / "dataparallel"
SOLUTION = REPOSITORY / "solutions" / "dataparallel" / "train.py"
CATALOGUE = REPOSITORY / "grader" / "simgpu" / "catalogue"

# What a number of the original becomes, wherever it stands as a word of its own.
CHANNELS = {"48": "4"}
ROWS = {"1280": "160", "1024": "128", "512": "64", "256": "32"}
RATES = {"1e-3": "1e-2", "0.001": "0.01"}
NUMBERS = CHANNELS | ROWS | RATES
_NUMBER = re.compile(r"(?<![\w.])(" + "|".join(map(re.escape, NUMBERS)) + r")(?![\w.])")

# The twin's three splits together; the rest of the digits would be held out, and take long to evaluate.
IMAGES = 448
SPLITTING = "order.tensor_split("

# A step's floating-point operations: 275 million per row in the original, 2.2 million in the twin, which
# also has an eighth of the rows; its bytes are those of a twelfth of the channels and an eighth of the rows.
COMPUTE_RATIO, BANDWIDTH_RATIO = 1000, 96
SPEED_RUN = "synthetic:128"  # two steps an epoch
SECONDS = 60  # wall clock of one run: ample even on a busy machine


def shrink(source: str) -> str:
    """Return a script of the exercise as the script of its twin."""
    return _NUMBER.sub(lambda match: NUMBERS[match[1]], source)


def make_twin(folder: Path) -> Path:
    """Create the twin under `folder`, with its solution and its GPU profile; return the exercise's folder."""
    exercise = folder / "exercises" / ORIGINAL.name
    exercise.mkdir(parents=True)
    for file in sorted(ORIGINAL.glob("*.py")):
        text = file.read_text(encoding="utf-8")
        text = text if file.name == "checks.py" else shrink(text)
        if file.name == "data.py":
            assert SPLITTING in text
            text = text.replace(SPLITTING, f"order[:{IMAGES}].tensor_split(")
        (exercise / file.name).write_text(text, encoding="utf-8")
    shutil.copy(ORIGINAL / "README.md", exercise)
    solution = folder / "solutions" / ORIGINAL.name / SOLUTION.name
    solution.parent.mkdir(parents=True)
    solution.write_text(shrink(SOLUTION.read_text(encoding="utf-8")), encoding="utf-8")
    profile = folder / "twin.yaml"
    _write_profile(profile)
    _write_specification(exercise / "exercise.yaml", profile)
    return exercise


def _write_profile(path: Path) -> None:
    """The default GPU, slower by as much as the twin's work is less."""
    yaml = YAML()
    profile = yaml.load(CATALOGUE / "T4.yaml")
    profile["name"] = "twin"
    profile["gpu"] = yaml.load(CATALOGUE / "gpus" / "T4.yaml")
    profile["gpu"]["multiprocessors"]["value"] = 1  # its kernels would fill few of them
    profile["gpu"]["achieved_tflops"]["float32"]["value"] /= COMPUTE_RATIO
    profile["gpu"]["achieved_tflops"]["float16"]["value"] /= COMPUTE_RATIO
    profile["gpu"]["achieved_bandwidth_gb_s"]["value"] /= BANDWIDTH_RATIO
    yaml.dump(profile, path)


def _write_specification(path: Path, profile: Path) -> None:
    yaml = YAML()
    specification = yaml.load(ORIGINAL / "exercise.yaml")
    specification["devices"]["simulated"] = f"2x{profile}"
    specification["speed_run"]["data"] = SPEED_RUN
    specification["thresholds"]["validation_accuracy"] = 0.6
    specification["limits"]["seconds"] = SECONDS
    specification["limits"]["memory_gigabytes"] = 3
    specification["limits"]["tasks"] = 64
    specification["limits"]["tasks"] = 64
    yaml.dump(specification, path)
