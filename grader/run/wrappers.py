"""What the script wrapped, with which class, and whether the trained model is inside."""

from __future__ import annotations

import functools
import weakref
from typing import Any

from torch import nn
from torch.nn.parallel import DataParallel, DistributedDataParallel

_KINDS = (DataParallel, DistributedDataParallel)
# Of the names with underscores around them, those that change how a wrapper works; the others are what
# Python puts into every class body, or its construction and display.
_SPECIAL_BEHAVIOUR = {"__call__", "__getattr__", "__getattribute__", "__setattr__", "__class__"}


def is_wrapper(module: object) -> bool:
    """Whether the object is really of a wrapper's class; `isinstance` believes what `__class__` says."""
    return issubclass(type(module), _KINDS)


def is_data_parallel(module: object) -> bool:
    """Whether the object is really a DataParallel or of a subclass."""
    return issubclass(type(module), DataParallel)


def _is_behaviour(name: str) -> bool:
    return not (name.startswith("__") and name.endswith("__")) or name in _SPECIAL_BEHAVIOUR


class Wrappers:
    """Every DataParallel and DistributedDataParallel built, in order."""

    def __init__(self, probe: Any) -> None:
        self._probe = probe
        self._built: list[tuple[nn.Module, dict[str, Any]]] = []
        self._resolved: weakref.WeakKeyDictionary[nn.Module, Any] = weakref.WeakKeyDictionary()

    def watch(self) -> None:
        """Note each construction, also of subclasses."""
        for kind in _KINDS:
            self._watch(kind)

    def _watch(self, kind: type[nn.Module]) -> None:
        construct = kind.__init__

        @functools.wraps(construct)
        def observed_init(wrapper: Any, *args: Any, **kwargs: Any) -> None:
            construct(wrapper, *args, **kwargs)
            self._note(wrapper, self._probe.site())

        kind.__init__ = observed_init  # type: ignore[assignment,method-assign]

    def _note(self, wrapper: nn.Module, site: dict[str, Any] | None) -> int:
        for index, (known, _) in enumerate(self._built):
            if known is wrapper:
                return index
        steps = self._probe.steps_done
        self._built.append((wrapper, {"built_after_steps": steps, "site": site}))
        return len(self._built) - 1

    def resolve(self, module: nn.Module) -> tuple[nn.Module, str, int | None]:
        """Return the whole model inside `module`, how it is reached, and the wrapper's index.

        The path is "wrapper" where one DataParallel holds every parameter of `module`, "partial"
        where only some, "bypass" where `module` itself is inside a wrapper, else "plain".
        """
        if is_wrapper(module):
            core: Any = module.module
            while is_wrapper(core):
                core = core.module
            return core, "wrapper", self._note(module, None)
        inside = [child for child in module.modules() if is_wrapper(child)]
        if inside:
            index = self._note(inside[0], None)
            covered = {id(p) for p in inside[0].parameters()}
            whole = all(id(p) in covered for p in module.parameters())
            return (self.resolve(inside[0])[0], "wrapper", index) if whole else (module, "partial", index)
        for index, (wrapper, _) in enumerate(self._built):
            if any(child is module for child in wrapper.modules()):
                return module, "bypass", index
        return module, "plain", None

    def records(self) -> list[dict[str, Any]]:
        """Return the fields of one `Wrapper` for each, as they stand at the end."""
        return [self._record(wrapper) | facts for wrapper, facts in self._built]

    def _record(self, wrapper: Any) -> dict[str, Any]:
        exact = type(wrapper)
        base = DataParallel if is_data_parallel(wrapper) else DistributedDataParallel
        replaced = {name for kind in exact.__mro__[: exact.__mro__.index(base)] for name in vars(kind)}
        replaced = {name for name in replaced if hasattr(base, name) and _is_behaviour(name)}
        replaced |= {name for name in vars(wrapper) if callable(getattr(base, name, None))}
        kind = "distributed" if base is DistributedDataParallel else "subclass"
        inner = getattr(wrapper, "module", None)
        return {
            "class_name": f"{exact.__module__}.{exact.__qualname__}",
            "kind": "data_parallel" if exact is DataParallel else kind,
            "overrides": sorted(replaced),
            "wraps": type(inner).__name__,
            "wraps_wrapper": isinstance(inner, nn.Module) and any(map(is_wrapper, inner.modules())),
            "device_ids": [int(i) for i in getattr(wrapper, "device_ids", None) or []],
            "output_device": getattr(wrapper, "output_device", None),
        }
