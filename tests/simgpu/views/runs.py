"""Recorded runs for the tests of what is shown of them: small ones, and hand-made ones."""

from __future__ import annotations

import torch
from torch import nn

from grader.simgpu import profiles, view
from grader.simgpu.machine import Machine
from grader.simgpu.view.record import Counters, DeviceRecord, Record, Total

HOST = ("launch", "replicate", "cpu", "script", "communicate", "wait")


class Block(nn.Module):
    """Two layers and functional code between and around them."""

    def __init__(self, width):
        super().__init__()
        self.first = nn.Linear(width, width)
        self.second = nn.Linear(width, width)

    def forward(self, x):
        return torch.relu(self.second(torch.tanh(self.first(x))) + x)


class Net(nn.Module):
    """Nested modules: "layers.0.first" and so on."""

    def __init__(self, width=16):
        super().__init__()
        self.layers = nn.Sequential(Block(width), Block(width))
        self.head = nn.Linear(width, 4)

    def forward(self, x):
        return self.head(self.layers(x)).squeeze(-1)


def train(steps=4, parallel=True, width=16, rows=32):
    """Train a small network for a few steps."""
    net = Net(width).cuda()
    if parallel:
        net = nn.DataParallel(net)
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
    criterion = nn.CrossEntropyLoss()
    for _ in range(steps):
        x, y = torch.randn(rows, width).cuda(), torch.randint(4, (rows,)).cuda()
        optimizer.zero_grad()
        loss = criterion(net(x), y)
        loss.backward()
        optimizer.step()
        loss.item()


def record(run=train, spec="2xT4", spans=True, **how):
    """The record of what `run` does on a simulated machine without arithmetic."""
    machine = Machine(spec, math=False, ranges=True)
    machine.install()
    try:
        recording = view.start(machine, spans=spans, **how)
        run()
        return view.finish(recording)
    finally:
        machine.uninstall()


def counters(now=1.0, count=2, busy=(), copying=(), communicating=(), moved=None, totals=None, **host):
    """Counters of a step of one second, everything else zero where it is not given."""

    def filled(values):
        return [*values, *[0.0] * (count - len(values))]

    host = {**dict.fromkeys(HOST, 0.0), **host}
    totals = totals or {(0, link, "other"): total for link, total in (moved or {}).items()}
    return Counters(now, host, filled(busy), filled(copying), filled(communicating), totals)


def made(typical=None, count=2, peak=1 << 30, **fields):
    """A record by hand: ten steps, like `typical` each."""
    profile = profiles.load("T4").profile
    step = typical or counters(count=count)
    whole = counters(now=10 * step.now, count=count, busy=[10 * busy for busy in step.busy])
    fields = {
        "spec": f"{count}xT4",
        "profile": profile,
        "torch": "2.14.0",
        "seconds": (9.0, 10.0, 12.0),
        "whole": whole,
        "devices": [DeviceRecord(i, profile.gpu.memory_bytes, peak) for i in range(count)],
        "steps": 10,
        "step": step,
        "bound": "optimizer.step()",
        **fields,
    }
    return Record(**fields)


def total(seconds, calls=1, nbytes=0):
    """What one operator, or one link, came to."""
    return Total(calls, seconds, nbytes)
