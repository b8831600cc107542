"""The entry points of torch that every training script passes, replaced by functions that tell of it.

Each function here replaces one kind for the rest of the process and calls what it is given.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

Observer = Callable[[Optimizer], None]


def watch_calls(called: Callable[..., Any], split: Callable[..., Any]) -> None:
    """Every call of a module goes through `called(call, module, args, kwargs)`, and every
    `torch.nn.parallel.data_parallel` through `split(function, module, inputs, args, kwargs)`."""
    call, function = nn.Module.__call__, nn.parallel.data_parallel

    def observed_call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        return called(call, module, args, kwargs)

    @functools.wraps(function)
    def observed_split(module: nn.Module, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        return split(function, module, inputs, args, kwargs)

    nn.Module.__call__ = functools.update_wrapper(observed_call, call)  # type: ignore[method-assign]
    nn.parallel.data_parallel = observed_split


def watch_backward(called: Callable[[torch.Tensor], None]) -> None:
    """Tell `called` the tensor that a backward pass is about to start from."""

    def observed(start: Any) -> Any:
        @functools.wraps(start)
        def observed_start(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            loss = tensors if isinstance(tensors, torch.Tensor) else next(iter(tensors), None)
            if isinstance(loss, torch.Tensor):
                called(loss)
            return start(tensors, *args, **kwargs)

        return observed_start

    torch.autograd.backward = observed(torch.autograd.backward)
    torch.autograd.grad = observed(torch.autograd.grad)


def watch_optimizers(constructed: Observer, before_step: Observer, after_step: Observer) -> None:
    """Tell of every optimizer's construction, and of each of its steps before and after."""
    construct = Optimizer.__init__

    @functools.wraps(construct)
    def observed_init(optimizer: Any, *args: Any, **kwargs: Any) -> None:
        construct(optimizer, *args, **kwargs)
        constructed(optimizer)

    Optimizer.__init__ = observed_init  # type: ignore[assignment,method-assign]
    register_optimizer_step_pre_hook(lambda optimizer, args, kwargs: before_step(optimizer))
    register_optimizer_step_post_hook(lambda optimizer, args, kwargs: after_step(optimizer))


def watch_warnings(shown: Callable[[str], None]) -> None:
    """Tell the text of every warning that is shown."""
    show = warnings.showwarning

    @functools.wraps(show)
    def observed_show(message: Any, *args: Any, **kwargs: Any) -> None:
        shown(str(message))
        show(message, *args, **kwargs)

    warnings.showwarning = observed_show
