"""Watches a training script from inside its process, without the script's cooperation.

It replaces a handful of entry points of torch (module calls, DataParallel's construction, backward,
optimizer steps, iteration over a DataLoader) by functions that note what passes and go on. What it
notes is evidence for the parent and never a verdict: nothing in this process knows what is expected.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import traceback
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader

from grader import simgpu
from grader.run import entrypoints, integrity, observe
from grader.run.errors import short_account, source_line
from grader.run.fences import Fences
from grader.run.wrappers import Wrappers, is_data_parallel


class Probe:
    """Evidence of one run; `install` before the script starts, `finish` after it has ended."""

    def __init__(self, channel: Any, folder: Path, machine: Any, accuracy: bool) -> None:
        self.channel, self.folder, self.machine = channel, folder, machine
        self.accuracy = accuracy  # real values: rows can be told apart and losses compared
        self.fences = Fences(self)
        self.wrappers = Wrappers(self)
        self.steps_done = 0
        self.model: nn.Module | None = None  # outermost module last trained
        self._calls = threading.local()
        self._current: Any = None  # fields of the outermost call in progress
        self._forwards: list[dict[str, Any]] = []
        self._loss: dict[str, Any] = {}
        self._gradients = 0
        self._passes = 0  # backward passes begun
        self._optimizer_sites: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
        self._optimizers: dict[int, dict[str, Any]] = {}
        self._architecture: dict[str, Any] | None = None
        self._precision: dict[str, str] = {}
        self._warnings: list[str] = []

    def install(self) -> None:
        """Replace the entry points; the process ends with the run, so nothing is put back."""
        entrypoints.watch_calls(self.observe_call, self.observe_split)
        entrypoints.watch_backward(self.note_loss)
        entrypoints.watch_optimizers(self._constructed, self._before_step, self._after_step)
        entrypoints.watch_warnings(self._note_warning)
        self.wrappers.watch()
        self.fences.watch(DataLoader)
        self._untouched, self._differences = integrity.snapshot(), integrity.differences

    # -- what is noted ---------------------------------------------------------------------------

    def observe_call(self, call: Any, module: nn.Module, args: Any, kwargs: Any) -> Any:
        """Run `module(*args, **kwargs)`; note it if it is called from outside or is a replica."""
        stack = self._calls.__dict__.setdefault("stack", [])
        outer = stack[-1] if stack else None
        record = None
        with self._ours():
            if outer is None and not getattr(module, "_is_replica", False):
                record = self._begin(module, args, kwargs)
            elif self._is_part_of_current(outer, module):
                observe.count_rows(self._current["rows_per_device"], args, kwargs)
            if self._current is not None and self._current["autocast"] is None:
                self._current["autocast"] = observe.autocast() or observe.lower_precision((args, kwargs))
        stack.append(module)
        try:
            output = call(module, *args, **kwargs)
        finally:
            stack.pop()
            if record is not None:
                self._current = None
        if record is not None:
            with self._ours():
                self._end(record, module, output)
        return output

    def _is_part_of_current(self, outer: nn.Module | None, module: nn.Module) -> bool:
        """Whether `module` forwards a part of the batch of the call in progress: a replica, or the
        wrapped model itself where there is one GPU."""
        if self._current is None or is_data_parallel(module):
            return False
        return outer is None or is_data_parallel(outer)

    def observe_split(self, split: Any, module: nn.Module, inputs: Any, args: Any, kwargs: Any) -> Any:
        """Note `torch.nn.parallel.data_parallel(module, inputs)`: it splits a batch without a wrapper."""
        with self._ours():
            record = self._begin(module, (inputs,), {}, path="functional")
        try:
            output = split(module, inputs, *args, **kwargs)
        finally:
            self._current = None
        if record is not None:
            with self._ours():
                self._end(record, module, output)
        return output

    @contextlib.contextmanager
    def _ours(self) -> Iterator[None]:
        """What fails inside is the grader's fault, unless the script has a hand in it."""
        try:
            yield
        except Exception as fault:
            frames = traceback.extract_tb(fault.__traceback__)
            if any(frame.filename.startswith(f"{self.folder}/") for frame in frames[1:]):
                raise  # from code of the script's own that observation came across
            if replaced := self._differences(self._untouched):
                said = f"the script replaced {', '.join(replaced[:4])}, on which its observation rests"
                self.channel.give_up("killed", said)
            self.channel.give_up("ungradable", short_account(fault))

    def _begin(self, module: nn.Module, args: Any, kwargs: Any, path: str = "") -> dict[str, Any] | None:
        """Start the record of a training forward; None for losses, validation and foreign modules."""
        if not torch.is_grad_enabled():
            return None
        core, found, wrapper = self.wrappers.resolve(module)
        path = path or found
        parameters = list(core.parameters())
        tensor = observe.first_tensor((args, kwargs))
        if tensor is None or not parameters:
            return None
        self.fences.resume()
        rows_per_device: dict[str, int] = {}
        if path in ("plain", "bypass"):
            observe.count_rows(rows_per_device, args, kwargs)
        record = {
            "rows": tensor.shape[0] if tensor.ndim else 0,
            "rows_per_device": rows_per_device,
            "path": path,
            "wrapper": wrapper,
            "model": type(core).__name__,
            "parameter_devices": sorted({str(p.device) for p in parameters}),
            "input_device": str(tensor.device),
            "input_dtype": observe.dtype(tensor),
            "parameter_dtypes": sorted({observe.dtype(p) for p in parameters}),
            "autocast": observe.autocast(),
            "samples": self._samples(tensor),
            "backwards": 0,
            "site": self.site(),
            "training": module.training,
        }
        self._current = record
        return record

    def _end(self, record: dict[str, Any], module: nn.Module, output: Any) -> None:
        tensor = observe.first_tensor(output)
        if record["path"] == "partial":  # the parts outside the wrapper ran where the output lies
            record["rows_per_device"] = record["rows_per_device"] or {record["input_device"]: record["rows"]}
        record["output_device"] = str(tensor.device) if tensor is not None else ""
        record["output_dtype"] = observe.dtype(tensor) if tensor is not None else ""
        passes: set[int] = set()

        def gradient_arrived(_: torch.Tensor) -> None:
            passes.add(self._passes)  # once for each backward pass, whichever outputs it reaches
            record["backwards"] = len(passes)
            self.model = module
            self._precision = self._precision or observe.precision()

        for result in observe.tensors(output):
            if result.requires_grad:
                result.register_hook(gradient_arrived)
        self._forwards.append(record)
        if len(self._forwards) > 4096:  # forwards that no step follows are evidence enough in part
            del self._forwards[:2048]

    def _samples(self, tensor: torch.Tensor) -> list[int]:
        if not self.accuracy:
            return []
        with simgpu.unobserved():
            return observe.fingerprints(simgpu.physical(tensor))

    def note_loss(self, loss: torch.Tensor) -> None:
        """Note what backward is called on; it belongs to the forwards that no gradient has reached yet."""
        self.fences.resume()
        self._passes += 1
        self._loss = {"loss_function": loss.grad_fn.name() if loss.grad_fn is not None else ""}
        if self.accuracy and loss.numel() == 1:
            with simgpu.unobserved():
                self._loss["loss"] = observe.finite(float(simgpu.physical(loss.detach())))
        facts = {"loss_device": str(loss.device), "target_device": observe.target_device(loss)}
        for forward in self._forwards:
            if not forward["backwards"]:
                forward.update(facts)

    def _constructed(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer_sites[optimizer] = self.site()

    def _note_warning(self, text: str) -> None:
        if text not in self._warnings and len(self._warnings) < 20:
            self._warnings.append(text[:2000])

    def _before_step(self, optimizer: torch.optim.Optimizer) -> None:
        self.fences.resume()
        self._gradients = observe.gradients(optimizer)

    def _after_step(self, optimizer: torch.optim.Optimizer) -> None:
        if id(optimizer) not in self._optimizers and self.model is not None:
            core = self.wrappers.resolve(self.model)[0]
            facts = observe.optimizer(optimizer, core, self._optimizer_sites.get(optimizer))
            self._optimizers[id(optimizer)] = facts
        self._gradients = max(self._gradients, observe.gradients(optimizer))  # a closure computes them late
        self._close_step(optimized=True, optimizer=optimizer)
        self.steps_done += 1
        self.fences.after_step()

    def _close_step(self, optimized: bool, optimizer: Any = None) -> None:
        rates = [float(group["lr"]) for group in optimizer.param_groups] if optimizer else []
        # In evaluation mode and without a gradient it was a validation that did not switch gradients off.
        trained = [forward for forward in self._forwards if forward.pop("training") or forward["backwards"]]
        if not optimized and not trained:
            return
        step = {
            "epoch": self.fences.epoch,
            "forwards": trained,
            "optimized": optimized,
            "parameters_with_gradient": self._gradients if optimized else 0,
            "learning_rates": rates,
            **self._loss,
        }
        self._forwards, self._loss = [], {}
        if self._architecture is None and self.model is not None:
            self._architecture = observe.architecture(self.wrappers.resolve(self.model)[0])
        self.channel.send("step", step=step)

    # -- the end ---------------------------------------------------------------------------------

    def end_epoch(self) -> None:
        """Close the epoch that is still open when the script reaches its end."""
        self.fences.close()

    def finish(self) -> None:
        """Send what is known only at the end."""
        if self._forwards:
            self._close_step(optimized=False)
        self.channel.send(
            "summary",
            wrappers=self.wrappers.records(),
            optimizers=list(self._optimizers.values()),
            architecture=self._architecture,
            precision=self._precision,
            devices=observe.devices(self.machine, self.fences.window),
            spans=self.fences.spans,
            tampering=self._differences(self._untouched),
            warnings=self._warnings,
        )

    def weights(self) -> dict[str, torch.Tensor]:
        """Return the trained model's state on the CPU, wrapper levels removed from its names."""
        if self.model is None or not self.accuracy:
            return {}
        core = self.wrappers.resolve(self.model)[0]
        return {
            observe.plain_name(core, name): simgpu.physical(tensor.detach()).cpu().clone().contiguous()
            for name, tensor in core.state_dict().items()
            if isinstance(tensor, torch.Tensor)
        }

    def site(self) -> dict[str, Any] | None:
        """The innermost frame of the submission that led here."""
        frame = sys._getframe(1)
        prefix = f"{self.folder}/"
        while frame is not None:
            name = frame.f_code.co_filename
            if name.startswith(prefix) and not name.endswith("/data.py"):
                path = Path(name)
                return {
                    "file": name[len(prefix) :],
                    "line": frame.f_lineno,
                    "code": source_line(path, frame.f_lineno),
                }
            frame = frame.f_back  # type: ignore[assignment]
        return None
