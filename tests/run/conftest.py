"""A run server shared by the tests of this folder, and small scripts to run in it."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from grader.evidence import RunEvidence
from grader.exercise import Limits
from grader.run.assemble import assemble
from grader.run.exchange import RawRun, Request
from grader.run.launch import Server
from grader.run.measure import Stopwatch, virtual_clock

DATA = Path(__file__).parents[2] / "exercises" / "dataparallel" / "data.py"
LIMITS = Limits(seconds=60)

PREAMBLE = """\
import torch
import torch.nn.functional as F
from torch import nn
from data import initial_weights, load_data

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(784, 8)
        self.last = nn.Linear(8, 10)

    def forward(self, images):
        return self.last(F.relu(self.hidden(images.flatten(1))))

train, validation = load_data(batch_size=32)
"""

LOOP = """\
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(EPOCHS):
    for images, targets in train:
        images, targets = images.cuda(), targets.cuda()
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), targets)
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        for images, targets in validation:
            model(images.cuda())
"""


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    with Server(visible="") as server:
        yield server


@pytest.fixture
def run_raw(server: Server, tmp_path: Path) -> Callable[..., RawRun]:
    """Run a script's text; returns what came back."""

    def run(
        text: str,
        *,
        run: str = "accuracy",
        limits: Limits = LIMITS,
        on_fence=None,
        data: str = "synthetic:80",
    ):
        script = tmp_path / "train.py"
        script.write_text(textwrap.dedent(text))
        request = Request(script, [DATA], run, "2xT4", data, limits)
        return server.run(request, on_fence or (lambda fence: True))

    return run


@pytest.fixture
def observe(run_raw) -> Callable[..., RunEvidence]:
    """Run a training script of two parts, building the model and the loop; returns the evidence."""

    def observe(model: str, loop: str = LOOP, *, epochs: int = 1, run: str = "accuracy") -> RunEvidence:
        watch = Stopwatch(virtual_clock, warm_up=0, wanted=0)
        text = f"{PREAMBLE}EPOCHS = {epochs}\n{textwrap.dedent(model)}\n{textwrap.dedent(loop)}"
        raw = run_raw(text, run=run, on_fence=watch)
        evidence = assemble(raw, watch.seconds)
        assert evidence.outcome != "ungradable", evidence.detail
        return evidence

    return observe
