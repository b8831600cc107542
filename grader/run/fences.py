"""Where an epoch begins and ends: one pass over the training rows, validation excluded.

It begins when a loader of training rows is asked for an iterator. It ends when all of its batches were
served and a step was taken for each, or when something else begins: another pass, a validation after the last
batch, the script's end. A validation in the middle pauses it, until training goes on. At each of these edges
the devices are idle, the parent is told and the script waits for its reply, so that the parent can read
its own clock or end the run.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from grader import simgpu

_DRAWN_BATCH = 2  # of the first epoch: its timeline is kept, from when it is asked for to the next


class RunStopped(SystemExit):
    """The parent has seen enough; ends the script like `sys.exit(0)`."""


class Fences:
    """Epochs of one run, seen through the iteration of DataLoaders."""

    def __init__(self, probe: Any) -> None:
        self._probe = probe
        self.epoch = -1
        self.spans: list[dict[str, Any]] = []
        self.window: tuple[float, float] | None = None  # of the drawn step, virtual seconds
        self._open: dict[str, Any] | None = None
        self._steps = 0
        self._exhausted = self._paused = False

    def watch(self, loader_class: Any) -> None:
        """Observe every iteration over a loader of `loader_class`."""
        iterate = loader_class.__iter__

        def observed_iter(loader: Any) -> Iterator[Any]:
            if is_training(loader.dataset):
                self.close()
                self._begin(loader)
                return _ObservedIterator(iterate(loader), self)
            self._pause()
            return iterate(loader)

        loader_class.__iter__ = observed_iter

    def _begin(self, loader: Any) -> None:
        if self.epoch < 0 or self._steps:  # a pass without a step (a peek at a batch) is no epoch
            self.epoch += 1
        self._steps = 0
        self._exhausted = self._paused = False
        self._open = {
            "rows": 0,
            "batches": 0,
            "largest_batch": 0,
            "loader_batch_size": getattr(loader, "batch_size", None),
            "shuffled": _shuffled(loader),
        }
        self._fence("begin")

    def served(self, batch: Any) -> None:
        """Count a batch about to be handed to the script."""
        if self._open is None:
            return
        first = batch[0] if isinstance(batch, (list, tuple)) and batch else batch
        rows = len(first) if isinstance(first, torch.Tensor) and first.ndim else 1
        self._open["rows"] += rows
        self._open["batches"] += 1
        self._open["largest_batch"] = max(self._open["largest_batch"], rows)

    def asked(self) -> None:
        """The script asks for its next batch: on simulated GPUs, draw what it does with one of them."""
        self.resume()
        machine = self._probe.machine
        if machine is None or self._probe.accuracy or self.epoch != 0 or self._open is None:
            return
        if self._open["batches"] == _DRAWN_BATCH - 1:
            for device in machine.devices:
                device.memory.record()
            self._drawn_from = machine.now()
            machine.timeline.start()
        elif self._open["batches"] == _DRAWN_BATCH:
            self._keep_timeline(machine)

    def exhausted(self) -> None:
        """The loader has no batch left; steps for batches fetched in advance may still come."""
        self._exhausted = True
        self._close_if_done()

    def after_step(self) -> None:
        """Count an optimizer step."""
        self._steps += 1
        self._close_if_done()

    def _close_if_done(self) -> None:
        if self._open is not None and self._exhausted and self._steps >= self._open["batches"]:
            self.close()

    def _pause(self) -> None:
        """Other data than the training rows are about to be read."""
        if self._open is not None and self._exhausted:
            self.close()
        elif self._open is not None and not self._paused:
            self._paused = True
            self._fence("pause")

    def resume(self) -> None:
        """Training goes on: a batch is asked for, or a forward, a backward or a step begins."""
        if self._open is not None and self._paused:
            self._paused = False
            self._fence("resume")

    def close(self) -> None:
        """End the open epoch, if there is one."""
        if self._open is None:
            return
        epoch, self._open = self._open, None
        machine = self._probe.machine
        if machine is not None and machine.timeline.on:
            self._keep_timeline(machine)
        stop = self._fence("end")
        if self._steps:
            with simgpu.unobserved():
                self._probe.channel.send("epoch", epoch={"seconds": None, **epoch})
        if stop:
            raise RunStopped(0)

    def _fence(self, edge: str) -> bool:
        """Wait for the devices, tell the parent, wait for its reply; return whether to stop."""
        machine = self._probe.machine
        virtual = None
        if machine is not None:
            virtual = machine.synchronize()
        else:
            for index in range(torch.cuda.device_count()):
                torch.cuda.synchronize(index)
        with simgpu.unobserved():
            channel = self._probe.channel
            channel.send("fence", edge=edge, epoch=self.epoch, steps=self._steps, virtual=virtual)
            return channel.reply() != b"c"

    def _keep_timeline(self, machine: Any) -> None:
        start = self._drawn_from
        spans = machine.timeline.stop()
        self.window = (start, max([machine.now(), *(span.end for span in spans)]))
        self.spans = [
            {
                "track": span.track,
                "name": span.name[:60],
                "kind": "copy" if span.kind == "collective" else span.kind,
                "start": max(span.start - start, 0.0),
                "end": span.end - start,
            }
            for span in spans
            if span.end > start
        ][:2000]


class _ObservedIterator:
    """A DataLoader's iterator whose batches are counted; its exhaustion is noted."""

    def __init__(self, iterator: Any, fences: Fences) -> None:
        self._iterator, self._fences = iterator, fences

    def __iter__(self) -> _ObservedIterator:
        return self

    def __next__(self) -> Any:
        self._fences.asked()
        try:
            batch = next(self._iterator)
        except StopIteration:
            self._fences.exhausted()
            raise
        self._fences.served(batch)
        return batch

    def __len__(self) -> int:
        return len(self._iterator)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._iterator, name)


def is_training(dataset: Any, depth: int = 0) -> bool:
    """Whether `dataset` is, is a part of, or contains the training split."""
    if getattr(dataset, "split", None) == "train":
        return True
    parts = [getattr(dataset, "dataset", None), *(getattr(dataset, "datasets", None) or [])]
    return depth < 8 and any(part is not None and is_training(part, depth + 1) for part in parts)


def _shuffled(loader: Any) -> bool | None:
    sampler = type(getattr(loader, "sampler", None)).__name__
    return {"RandomSampler": True, "SequentialSampler": False}.get(sampler)
