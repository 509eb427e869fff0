"""The names of a network's tensors: in its modules, and in its ``state_dict``.

A tensor has several names if a module is registered twice, or a parameter is tied.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from spbench_parallel.errors import CannotRunError


def tensors_by_name(module: nn.Module) -> dict[str, torch.Tensor]:
    """Return all parameters and buffers of a module by name, with every name of each."""
    parameters = module.named_parameters(remove_duplicate=False)
    return {**dict(parameters), **dict(module.named_buffers(remove_duplicate=False))}


def names_in_state(module: nn.Module) -> Mapping[str, tuple[str, ...]]:
    """Return the names in the ``state_dict`` of each parameter and buffer, by each of its names.

    A buffer that is not persistent has none there.
    """
    by_tensor: dict[int, list[str]] = {}
    for name, tensor in module.state_dict(keep_vars=True).items():
        by_tensor.setdefault(id(tensor), []).append(name)
    tensors = tensors_by_name(module)
    return {path: tuple(by_tensor.get(id(tensor), ())) for path, tensor in tensors.items()}


def check_state(network: str, module: nn.Module) -> None:
    """Check that a network's weights can be trained in parts, and saved as its ``state_dict``.

    Args:
        network: Its name in errors.
        module: It.

    Raises:
        CannotRunError: An entry of its ``state_dict`` is none of its tensors, two tensors share
            memory, or two normalisations share statistics.
    """
    tensors = tensors_by_name(module)
    known = {id(tensor) for tensor in tensors.values()}
    for name, entry in module.state_dict(keep_vars=True).items():
        if id(entry) not in known:
            raise CannotRunError(
                f"network {network}: {name} of its state_dict is no parameter or buffer of it, so "
                "that training cannot be saved there; leave out hooks of state_dict and "
                "get_extra_state, and register a buffer instead"
            )
    for first, second in _pairs_in_memory(tensors):
        raise CannotRunError(
            f"network {network}: {first} and {second} are two tensors in one memory, and ranks "
            "would train each of them for itself; assign one parameter to both modules, or clone it"
        )
    _check_statistics(network, module)


def _pairs_in_memory(tensors: Mapping[str, torch.Tensor]) -> Iterator[tuple[str, str]]:
    """Yield the names of two tensors in one memory, of which one is a parameter."""
    unique = {id(tensor): (name, tensor) for name, tensor in reversed(list(tensors.items()))}
    spans = [
        (tensor.data_ptr(), tensor.data_ptr() + _bytes(tensor), name, tensor)
        for name, tensor in unique.values()
        if not is_lazy(tensor) and tensor.numel() and tensor.data_ptr()
    ]
    spans.sort(key=lambda span: span[:3])
    for (_, end, first, one), (start, _, second, other) in pairwise(spans):
        if start < end and isinstance(one, nn.Parameter) | isinstance(other, nn.Parameter):
            yield first, second


def _bytes(tensor: torch.Tensor) -> int:
    """Return the bytes from a tensor's first number to its last one."""
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    return (1 + sum((length - 1) * stride for length, stride in steps)) * tensor.element_size()


def _check_statistics(network: str, module: nn.Module) -> None:
    """Refuse running statistics of two modules in one tensor: ranks would move them apart."""
    owners: dict[int, str] = {}
    for path, norm in module.named_modules():
        if not isinstance(norm, nn.modules.batchnorm._NormBase):
            continue
        for name, buffer in norm.named_buffers(prefix=path):
            first = owners.setdefault(id(buffer), name)
            if first != name:
                raise CannotRunError(
                    f"network {network}: {first} and {name} are the running statistics of two "
                    "modules in one tensor; use one module twice, or give each its own"
                )
