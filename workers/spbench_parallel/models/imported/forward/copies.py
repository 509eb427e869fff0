"""Copies of a network, which leave the user's module unchanged."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.parameter import is_lazy

from spbench_parallel.errors import CannotRunError
from spbench_parallel.models.imported.loading import describe_error


def copy_structure(name: str, module: nn.Module) -> nn.Module:
    """Return a copy that shares the parameters and copies the buffers.

    Raises:
        CannotRunError: The module cannot be copied.
    """
    return _copy_module(name, module, lambda tensor: tensor)


def copy_without_memory(name: str, module: nn.Module, mode: FakeTensorMode) -> nn.Module:
    """Return a copy with shapes only: its tensors have no memory."""
    copied = _copy_module(name, module, lambda tensor: mode.from_tensor(tensor, static_shapes=True))
    for child in copied.modules():
        if isinstance(child, _NormBase) and child.momentum is None:
            child.momentum = 0.1  # otherwise it reads its counter, which has no value here
    return copied


@contextmanager
def quiet_fake_tensors() -> Iterator[None]:
    """Suppress the traceback that fake tensors print if an operator rejects them."""
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    disabled = logger.disabled
    logger.disabled = True
    try:
        yield
    finally:
        logger.disabled = disabled


def is_compiled(module: nn.Module) -> bool:
    """Return whether a module is compiled by TorchScript or torch.compile."""
    return isinstance(module, torch.jit.ScriptModule) or hasattr(
        module, "_torchdynamo_orig_callable"
    )


def _copy_module(
    name: str, module: nn.Module, map_tensor: Callable[[torch.Tensor], torch.Tensor]
) -> nn.Module:
    for path, tensor in (*module.named_parameters(), *module.named_buffers()):
        if is_lazy(tensor):
            raise CannotRunError(
                f"network {name}: {path} has no shape yet; call the module on an image before"
            )
    memo: dict[int, object] = {
        id(parameter): map_tensor(parameter) for parameter in module.parameters()
    }
    for buffer in module.buffers():
        memo[id(buffer)] = map_tensor(buffer).detach().clone()
    for child in module.modules():
        if is_compiled(child) and child is not module:
            memo[id(child)] = child  # it is rejected when it is called
        for value in vars(child).values():
            # A tensor that was computed, such as the weight of weight_norm, has no deep copy.
            if isinstance(value, torch.Tensor) and id(value) not in memo:
                memo[id(value)] = map_tensor(value.detach()).clone()
    try:
        return copy.deepcopy(module, memo)
    except Exception as error:  # a copy may raise any error
        raise CannotRunError(
            f"network {name}: the module cannot be copied by copy.deepcopy "
            f"({describe_error(error)}); create such attributes outside the module"
        ) from error
