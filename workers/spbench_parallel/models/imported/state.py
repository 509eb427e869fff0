"""Names of a network's tensors: in its modules, and in its ``state_dict``.

A tensor has several names if a module is registered twice, or a parameter is tied.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from spbench_parallel.errors import CannotRunError


def list_tensors_by_name(module: nn.Module) -> dict[str, torch.Tensor]:
    """Return all parameters and buffers of a module under each of their names."""
    parameters = module.named_parameters(remove_duplicate=False)
    return {**dict(parameters), **dict(module.named_buffers(remove_duplicate=False))}


def map_names_in_state(module: nn.Module) -> Mapping[str, tuple[str, ...]]:
    """Return the names in the ``state_dict`` of each parameter and buffer, by name.

    A buffer that is not persistent has no name there.
    """
    names_by_tensor: dict[int, list[str]] = {}
    for name, tensor in module.state_dict(keep_vars=True).items():
        names_by_tensor.setdefault(id(tensor), []).append(name)
    tensors = list_tensors_by_name(module)
    return {path: tuple(names_by_tensor.get(id(tensor), ())) for path, tensor in tensors.items()}


def check_state(network: str, module: nn.Module) -> None:
    """Check that weights can be trained in parts, and saved as a ``state_dict``.

    Args:
        network: The network's name in errors.
        module: The network.

    Raises:
        CannotRunError: An entry of its ``state_dict`` is not one of its tensors, two tensors share
            memory, or two normalisations share statistics.
    """
    tensors = list_tensors_by_name(module)
    tensor_ids = {id(tensor) for tensor in tensors.values()}
    for name, entry in module.state_dict(keep_vars=True).items():
        if id(entry) not in tensor_ids:
            raise CannotRunError(
                f"network {network}: {name} of its state_dict is no parameter or buffer of it, so "
                "that training cannot be saved there; leave out hooks of state_dict and "
                "get_extra_state, and register a buffer instead"
            )
    for first, second in _iter_overlapping(tensors):
        raise CannotRunError(
            f"network {network}: {first} and {second} are two tensors in one memory, and ranks "
            "would train each of them for itself; assign one parameter to both modules, or clone it"
        )
    _check_statistics(network, module)


def _iter_overlapping(tensors: Mapping[str, torch.Tensor]) -> Iterator[tuple[str, str]]:
    """Yield the names of two tensors with shared memory, if one is a parameter."""
    unique = {id(tensor): (name, tensor) for name, tensor in reversed(list(tensors.items()))}
    spans = [
        (tensor.data_ptr(), tensor.data_ptr() + _count_spanned_bytes(tensor), name, tensor)
        for name, tensor in unique.values()
        if not is_lazy(tensor) and tensor.numel() and tensor.data_ptr()
    ]
    spans.sort(key=lambda span: span[:3])
    for (_, end, first, lower), (start, _, second, upper) in pairwise(spans):
        if start < end and isinstance(lower, nn.Parameter) | isinstance(upper, nn.Parameter):
            yield first, second


def _count_spanned_bytes(tensor: torch.Tensor) -> int:
    """Return the bytes from a tensor's first number to its last one."""
    lengths_and_strides = zip(tensor.shape, tensor.stride(), strict=True)
    return (
        1 + sum((length - 1) * stride for length, stride in lengths_and_strides)
    ) * tensor.element_size()


def _check_statistics(network: str, module: nn.Module) -> None:
    """Reject running statistics that two modules share: ranks would diverge."""
    first_name_by_buffer: dict[int, str] = {}
    for path, norm in module.named_modules():
        if not isinstance(norm, nn.modules.batchnorm._NormBase):
            continue
        for name, buffer in norm.named_buffers(prefix=path):
            first_name = first_name_by_buffer.setdefault(id(buffer), name)
            if first_name != name:
                raise CannotRunError(
                    f"network {network}: {first_name} and {name} are the running statistics of two "
                    "modules in one tensor; use one module twice, or give each its own"
                )
