"""Who is at work: the qualified name of the running module, and the phase of the step, for every operator.

    forward     hooks on all modules keep a stack for each thread; `local.module` is its top
    backward    the nodes that a module's forward added to the autograd graph carry its name
    optimizer   hooks around every optimizer's step()
    other       everything else: moving data, a loss computed outside of a module

A module is named from the outermost one that was called ("layer1.0.conv1"), which itself goes by its class.
Below nn.DataParallel the replicas, in their threads, have the names of their originals
("module.layer1.0.conv1").
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.modules import module as modules
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch.nn.parameter import is_lazy
from torch.optim import optimizer as optimizers

from ..local import local
from ..tags import storages
from .record import Parallel

KEY = "module"  # in the metadata of an autograd node


class _Frame(NamedTuple):
    """One call of a module."""

    module: nn.Module
    path: str  # "" for the outermost
    before: tuple[str, str]  # module and phase to return to
    boundary: tuple[Any, ...]  # autograd nodes of the inputs: these are no work of this module
    between: list[Any]  # inputs of the modules called inside: what made them may be this module's work


class _Stack(threading.local):
    def __init__(self) -> None:
        self.frames: list[_Frame] = []
        self.replica_paths: dict[int, str] | None = None
        self.before_optimizer: list[tuple[str, str]] = []


class Naming:
    """Maintains `local.module` and `local.phase` between `install()` and `remove()`.

    `on_step(optimizer)` is called after each step of an optimizer in the thread that installed it, and
    `on_forward(module)` before each outermost forward there. Without `names` only these are, `on_forward` for
    wrappers over devices alone.
    """

    def __init__(
        self, on_step: Callable[[object], None], on_forward: Callable[[object], None], names: bool = True
    ) -> None:
        self._on_step, self._on_forward, self._names = on_step, on_forward, names
        self._stack = _Stack()
        self._paths: dict[int, tuple[weakref.ref, str]] = {}
        self._roots = 0
        self._parallel_path: str | None = None
        self._handles: list[Any] = []
        self._thread = 0
        self._counted: set[int] = set()
        self._wrappers: set[int] = set()
        self.parameters: dict[int, int] = {}  # bytes on each device
        self.parallel: Parallel | None = None

    def install(self) -> None:
        """Begin, in this thread and those that it starts."""
        self._thread = threading.get_ident()
        before, after = (
            optimizers.register_optimizer_step_pre_hook,
            optimizers.register_optimizer_step_post_hook,
        )
        self._handles = [before(self._optimizer_begins), after(self._optimizer_ends)]
        if self._names:
            self._handles += [
                modules.register_module_forward_pre_hook(self._enter),
                modules.register_module_forward_hook(self._leave, always_call=True),
            ]
            local.module, local.phase = "", "other"
        else:
            self._handles.append(modules.register_module_forward_pre_hook(self._enter_wrapper))

    def remove(self) -> None:
        """Undo everything that `install` did."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        local.module, local.phase = "", "forward"

    def _optimizer_begins(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        self._stack.before_optimizer.append((local.module, local.phase))
        local.module, local.phase = "", "optimizer"

    def _optimizer_ends(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if self._stack.before_optimizer:
            local.module, local.phase = self._stack.before_optimizer.pop()
        if self._tells_steps():
            self._on_step(optimizer)

    def _enter_wrapper(self, module: nn.Module, args: Any) -> None:
        if isinstance(module, DataParallel | DistributedDataParallel) and self._tells_steps():
            self._describe(module)
            self._on_forward(module)

    def _tells_steps(self) -> bool:
        return local.observed and threading.get_ident() == self._thread

    def _enter(self, module: nn.Module, args: Any) -> None:
        stack = self._stack
        before = local.module, local.phase
        path = self._path(module, stack.frames[-1] if stack.frames else None)
        boundary = tuple(tensor.grad_fn for tensor in _tensors(args) if tensor.grad_fn is not None)
        stack.frames.append(_Frame(module, path, before, boundary, []))
        local.module, local.phase = path or type(module).__name__, "forward"
        if isinstance(module, DataParallel | DistributedDataParallel):
            self._describe(module)
            self._parallel_path = path
        if len(stack.frames) == 1 and self._tells_steps():
            self._on_forward(module)

    def _leave(self, module: nn.Module, args: Any, output: Any) -> None:
        frames = self._stack.frames
        if not any(frame.module is module for frame in frames):
            return
        while True:
            frame = frames.pop()
            if frame.module is module:
                break
        _label(output, local.module, frame)
        if frames:
            frames[-1].between.extend(frame.boundary)
        local.module, local.phase = frame.before
        if isinstance(module, DataParallel | DistributedDataParallel):
            self._parallel_path = None
        if not frames:
            self._stack.replica_paths = None

    def _path(self, module: nn.Module, parent: _Frame | None) -> str:
        if self._stack.replica_paths is not None:
            known = self._stack.replica_paths.get(id(module))
        elif parent is None and _is_replica(module):
            prefix = "" if self._parallel_path is None else _join(self._parallel_path, "module")
            self._stack.replica_paths = {
                id(each): _join(prefix, name) for name, each in module.named_modules(remove_duplicate=False)
            }
            return prefix
        else:
            known = self._known(module)
        if known is None and parent is None:
            known = self._learn_root(module)
        elif known is None and parent is not None:
            self._learn(parent.module, parent.path)
            known = self._known(module)
        if known is None:
            known = _join(parent.path if parent else "", type(module).__name__)
        return known

    def _known(self, module: nn.Module) -> str | None:
        entry = self._paths.get(id(module))
        return entry[1] if entry is not None and entry[0]() is module else None

    def _learn_root(self, module: nn.Module) -> str:
        prefix = ""
        if next(module.children(), None) is not None:
            # The trees of a second model are told apart by its class.
            wrapped = module.module if isinstance(module, DataParallel | DistributedDataParallel) else module
            prefix = type(wrapped).__name__ if self._roots else ""
            self._roots += 1
        self._learn(module, prefix)
        self._count_parameters(module)
        return prefix

    def _learn(self, root: nn.Module, prefix: str) -> None:
        paths = self._paths
        for name, module in root.named_modules():
            forget = functools.partial(_forget, paths, id(module))
            paths[id(module)] = weakref.ref(module, forget), _join(prefix, name)

    def _count_parameters(self, root: nn.Module) -> None:
        for tensor in (*root.parameters(), *root.buffers()):
            if is_lazy(tensor):
                continue
            for storage in storages(tensor):
                tag = storage._simulated  # type: ignore[attr-defined]
                if tag is not None and tag.device is not None and id(tag) not in self._counted:
                    self._counted.add(id(tag))
                    self.parameters[tag.device] = self.parameters.get(tag.device, 0) + tag.nbytes

    def _describe(self, wrapper: DataParallel | DistributedDataParallel) -> None:
        """Note the largest wrapper that there is."""
        if id(wrapper) in self._wrappers:
            return
        self._wrappers.add(id(wrapper))
        nbytes = sum(each.numel() * each.element_size() for each in wrapper.module.parameters())
        if isinstance(wrapper, DataParallel):
            devices = len(wrapper.device_ids)
        else:
            devices = torch.distributed.get_world_size(wrapper.process_group)
        kind = "DataParallel" if isinstance(wrapper, DataParallel) else "DistributedDataParallel"
        described = Parallel(kind, sum(1 for _ in wrapper.module.modules()), nbytes, devices)
        if self.parallel is None or described.nbytes > self.parallel.nbytes:
            self.parallel = described


def _forget(paths: dict[int, Any], key: int, _: weakref.ref) -> None:
    paths.pop(key, None)


def _is_replica(module: nn.Module) -> bool:
    return bool(getattr(module, "_is_replica", False))


def _join(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix and name else prefix or name


def _label(output: Any, name: str, frame: _Frame) -> None:
    """Write the module's name on the autograd nodes between its inputs and its output."""
    pending = [*frame.between, *(tensor.grad_fn for tensor in _tensors(output))]
    while pending:
        node = pending.pop()
        if node is None or node in frame.boundary or node.name() == "BroadcastBackward":
            continue  # that one belongs to replicate(), before any module ran
        metadata = node.metadata
        if KEY not in metadata:
            metadata[KEY] = name
            pending += [following for following, _ in node.next_functions]


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _tensors(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _tensors(item)
