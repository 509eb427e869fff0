"""Replacement of in-place operators by operators that return a new tensor.

The input of a layer belongs to the previous layer, so no operator of a graph may write into it. Two
runs without memory, in training and in evaluation, show which operators write and which tensors
share memory. A buffer may only be changed as a counter: by numbers, and read by nothing else.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import Any

import torch
from torch import fx, nn
from torch.nn import functional
from torch.utils import _pytree as pytree

from spbench_parallel.errors import CannotRunError
from spbench_parallel.models.imported.forward.observation import (
    Observation,
    list_tensors,
    storage_id,
)
from spbench_parallel.models.imported.forward.recorder import NO_GRADIENTS, NUMBER
from spbench_parallel.models.imported.forward.sizes import get_attribute
from spbench_parallel.models.imported.forward.symbols import IN_PLACE, writes_by_name
from spbench_parallel.models.imported.messages import locate

_RUNNING_STATS_FUNCTIONS = (
    functional.batch_norm,
    functional.instance_norm,
    torch.batch_norm,
    torch.instance_norm,
)
"""Functions that change buffers with running statistics."""
_COUNTER_SIGNS = {"add_": 1, "sub_": -1, operator.iadd: 1, operator.isub: -1}
"""Operators that add a number to a buffer, and its sign."""


def count_forward(buffer: torch.Tensor, training: bool, number: float) -> None:
    """Add a number to a buffer, once per forward pass in training."""
    if training:
        # Bypass autograd, which rejects changes of saved tensors; it does not save counters.
        buffer.data.add_(number)


def list_counters(module: nn.Module) -> Iterator[tuple[torch.Tensor, float]]:
    """Yield the counters of a stage's pieces, and the number that a forward pass adds."""
    for piece in module.modules():
        if isinstance(piece, fx.GraphModule):
            for node in piece.graph.nodes:
                if node.target is count_forward:
                    path, _, number = node.args
                    yield piece.get_buffer(str(path.target)), number


def take_counters(
    name: str, module: nn.Module, graph: fx.Graph
) -> dict[tuple[str, float], fx.Node]:
    """Return the operators that add a number to a buffer that no other node reads.

    Raises:
        CannotRunError: A buffer or a parameter is changed in another way.
    """
    node_by_counter: dict[tuple[str, float], fx.Node] = {}
    buffers = dict(module.named_buffers(remove_duplicate=False))
    for node in list(graph.nodes):
        buffer_node = _find_changed_attribute(node)
        if buffer_node is None:
            continue
        path = str(buffer_node.target)
        operands = node.args[1:]
        readers = {
            user
            for other in graph.nodes
            if other.op == "get_attr" and other.target == path
            for user in other.users
        }
        is_counter = node.target in _COUNTER_SIGNS and len(operands) == 1 and not node.kwargs
        number = operands[0] if is_counter else None
        unused_readers = {user for user in readers - {node} if _is_dead(user)}
        for user in unused_readers:
            graph.erase_node(user)
        is_read = any(
            other.op == "get_attr" and other.target == path and other.meta.get(NUMBER)
            for other in graph.nodes
        )
        is_only_user = not node.users and readers <= unused_readers | {node} and not is_read
        if path not in buffers or not isinstance(number, int | float) or not is_only_user:
            raise CannotRunError(
                f"network {name}: {locate(node)} changes {path} in the forward pass, which ranks "
                "cannot have alike; leave it out, or change it in the training script"
            )
        node_by_counter[path, number * _COUNTER_SIGNS[node.target]] = node
    return node_by_counter


def _is_dead(node: fx.Node) -> bool:
    """Return whether a node is an unused sum, left over from an assignment."""
    return node.target in (operator.add, torch.add, "add") and not node.users


def _find_changed_attribute(node: fx.Node) -> fx.Node | None:
    """Return the parameter or buffer that a node changes by name; or None."""
    if not writes_by_name(node) or not node.args:
        return None
    source = node.args[0]
    while isinstance(source, fx.Node) and source.op != "get_attr" and writes_by_name(source):
        source = source.args[0]
    return source if isinstance(source, fx.Node) and source.op == "get_attr" else None


def replace_in_place_operators(
    name: str,
    graph: fx.Graph,
    observations: Sequence[Observation],
) -> None:
    """Replace in-place operators by operators that return a new tensor.

    Later readers of the input read the new tensor.

    Raises:
        CannotRunError: Another value that shares the memory is read later, or there is no such
            operator.
    """
    for node in list(graph.nodes):
        written_inputs = [
            source
            for observation in observations
            for source in observation.written_inputs.get(node, ())
        ]
        by_name = writes_by_name(node)
        if not written_inputs and not by_name:
            continue
        if node.target in _RUNNING_STATS_FUNCTIONS:
            continue
        target = node.args[0] if node.args else None
        if by_name and not isinstance(target, fx.Node):
            target = next(iter(node.all_input_nodes), None)
        if by_name and _is_number(observations[0].values[node]):
            node.target = IN_PLACE[node.target]  # a number: no tensor is written
            continue
        if not by_name and written_inputs:
            target = written_inputs[0]
        assert isinstance(target, fx.Node), "something is written"
        for observation in observations:
            _check_source(name, node, target, observation)
        _check_gradients_off(name, node, target)
        aliases = _find_aliases(name, graph, node, target, observations)
        if not _make_functional(node):
            raise CannotRunError(
                f"network {name}: {locate(node)} writes into its input; make a new tensor"
            )
        new_tensor = node
        if node.meta.get(NO_GRADIENTS):
            with graph.inserting_after(node):
                new_tensor = graph.call_method("detach", (node,))
            new_tensor.meta[NO_GRADIENTS] = True
            for observation in observations:
                observation.values[new_tensor] = observation.values[node]
            _redirect_readers(graph, node, new_tensor)
        for alias in (target, *aliases):
            _redirect_readers(graph, alias, new_tensor)


def _check_gradients_off(name: str, node: fx.Node, target: fx.Node) -> None:
    """Reject an operator under no_grad that writes into a tensor with gradients."""
    if node.meta.get(NO_GRADIENTS) and not target.meta.get(NO_GRADIENTS):
        raise CannotRunError(
            f"network {name}: {locate(node)} writes under torch.no_grad into a tensor that was "
            "made outside; make a new tensor"
        )


def _redirect_readers(graph: fx.Graph, target: fx.Node, node: fx.Node) -> None:
    """Make operators after an in-place one read its output instead."""
    nodes = list(graph.nodes)
    later_nodes = set(nodes[nodes.index(node) + 1 :])
    target.replace_all_uses_with(node, delete_user_cb=lambda user: user in later_nodes)


def _check_source(
    name: str,
    node: fx.Node,
    target: fx.Node,
    observation: Observation,
) -> None:
    """Check that an operator does not write into a parameter, buffer or constant.

    Raises:
        CannotRunError: It does.
    """
    paths = (
        observation.name_by_storage.get(storage_id(tensor))
        for tensor in list_tensors(observation.values[target])
    )
    path = next((path for path in paths if path), None)
    if path is None and target.op == "get_attr":
        path = "a tensor that does not depend on the input"
    if path is not None:
        raise CannotRunError(
            f"network {name}: {locate(node)} changes {path} in the forward pass, which ranks "
            "cannot have alike; make a new tensor"
        )


def _find_aliases(
    name: str,
    graph: fx.Graph,
    node: fx.Node,
    target: fx.Node,
    observations: Sequence[Observation],
) -> list[fx.Node]:
    """Return the nodes that are the same tensor as the target, and are read later.

    Raises:
        CannotRunError: A part of its memory is read later, or only in one mode.
    """
    nodes = list(graph.nodes)
    position = nodes.index(node)
    later_nodes = set(nodes[position + 1 :])
    aliases = []
    for other in nodes[:position]:
        readers = [user for user in other.users if user in later_nodes]
        if not writes_shape(node):
            readers = [user for user in readers if not _reads_size(user, observations)]
        if other is target or not readers:
            continue
        memory_relations = {
            _compare_memory(observation.values, other, target) for observation in observations
        }
        if memory_relations == {_MemoryRelation.SEPARATE}:
            continue
        if memory_relations != {_MemoryRelation.SAME} or writes_shape(node):
            raise CannotRunError(
                f"network {name}: {locate(node)} writes into memory that {locate(other)} shares, "
                "and that is read later; make a new tensor"
            )
        aliases.append(other)
    return aliases


def _reads_size(node: fx.Node, observations: Sequence[Observation]) -> bool:
    """Return whether a node reads only numbers about a tensor, such as its shape."""
    outputs = [observation.values.get(node) for observation in observations]
    return node.op != "output" and all(
        output is not None and not list_tensors(output) and bool(pytree.tree_leaves(output))
        for output in outputs
    )


def writes_shape(node: fx.Node) -> bool:
    """Return whether an operator changes only the shape of its input."""
    method = str(node.target)
    return node.op == "call_method" and method in ("squeeze_", "unsqueeze_", "t_", "transpose_")


class _MemoryRelation(Enum):
    """Whether two nodes are the same tensor, share memory, or neither."""

    SAME = "same"
    SHARED = "shared"
    SEPARATE = "separate"


def _compare_memory(
    values: Mapping[fx.Node, Any], other: fx.Node, target: fx.Node
) -> _MemoryRelation:
    if values.get(other) is values.get(target):
        return _MemoryRelation.SAME
    storages = [
        {storage_id(tensor) for tensor in list_tensors(values.get(node))}
        for node in (other, target)
    ]
    return _MemoryRelation.SHARED if storages[0] & storages[1] else _MemoryRelation.SEPARATE


def _make_functional(node: fx.Node) -> bool:
    """Make an operator return a new tensor; return whether that is possible."""
    if node.op == "call_module":
        return True  # pieces switch its `inplace` off
    if node.kwargs.get("inplace"):
        node.kwargs = {**node.kwargs, "inplace": False}
        return True
    if node.target in IN_PLACE:
        node.target = IN_PLACE[node.target]
        return True
    if node.kwargs.get("out") is not None or not writes_by_name(node):
        return False
    name = getattr(node.target, "__name__", str(node.target))[:-1]
    if node.op == "call_method":
        if not callable(getattr(torch.Tensor, name, None)):
            return False
        node.target = name
        return True
    for module in (functional, torch):
        if callable(getattr(module, name, None)) and getattr(module, f"{name}_", None):
            node.target = getattr(module, name)
            return True
    return False


def check_gradients(
    name: str,
    graph: fx.Graph,
    module: nn.Module,
    observation: Observation,
) -> None:
    """Reject a graph that ends gradients and has a parameter that gets none.

    Plain torch would not change such a parameter; here weight decay would.

    Raises:
        CannotRunError: There is such a parameter.
    """
    if not any(_ends_gradients(node) for node in graph.nodes):
        return
    for node in graph.nodes:
        for parameter_path in _iter_parameters(module, node):
            if parameter_path not in observation.learning_names:
                raise CannotRunError(
                    f"network {name}: {locate(node)} uses {parameter_path}, which gets no gradient "
                    "(detach or torch.no_grad); let all parameters learn, or make it a buffer"
                )


def _ends_gradients(node: fx.Node) -> bool:
    return node.target in ("detach", torch.detach) or (
        node.target is getattr and node.args[1] == "data"
    )


def _iter_parameters(module: nn.Module, node: fx.Node) -> Iterator[str]:
    """Yield the names of the parameters that a node uses."""
    if node.op == "call_module":
        for path, _ in module.get_submodule(str(node.target)).named_parameters():
            yield f"{node.target}.{path}"
    for source in node.all_input_nodes:
        if source.op == "get_attr" and isinstance(
            get_attribute(module, str(source.target)), nn.Parameter
        ):
            yield str(source.target)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | torch.SymInt | torch.SymFloat)
