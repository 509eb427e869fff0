"""Operators that write into their input, as operators that make a new tensor.

What a layer gets belongs to the layer before, so that no operator of a graph may write into it. Two
runs without memory, in training and in evaluation, show which operators write, and which tensors
share memory. A buffer may be changed only as a counter: by
numbers, and read by nothing else.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
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
from spbench_parallel.models.imported.forward.recording import NO_GRADIENTS, NUMBER
from spbench_parallel.models.imported.forward.sizes import get_attribute
from spbench_parallel.models.imported.forward.symbols import IN_PLACE, writes_by_name
from spbench_parallel.models.imported.messages import locate

_RUNNING = functional.batch_norm, functional.instance_norm, torch.batch_norm, torch.instance_norm
"""Functions whose running statistics are buffers that they change."""
_COUNTING = {"add_": 1, "sub_": -1, operator.iadd: 1, operator.isub: -1}
"""Operators that add a number to a buffer, and its sign."""


def count_forward(buffer: torch.Tensor, training: bool, number: float) -> None:
    """Add a number to a buffer, once for each forward pass in training."""
    if training:
        # Through `data`: autograd refuses changes of what it keeps, and keeps no counter.
        buffer.data.add_(number)


def list_counters(module: nn.Module) -> Iterator[tuple[torch.Tensor, float]]:
    """Yield the counters of a stage's pieces, and what a forward pass adds to each."""
    for piece in module.modules():
        if isinstance(piece, fx.GraphModule):
            for node in piece.graph.nodes:
                if node.target is count_forward:
                    path, _, number = node.args
                    yield piece.get_buffer(str(path.target)), number


def take_counters(
    name: str, module: nn.Module, graph: fx.Graph
) -> dict[tuple[str, float], fx.Node]:
    """Return the operators that add a number to a buffer that nothing else reads.

    Raises:
        CannotRunError: A buffer or a parameter is changed in another way.
    """
    counting: dict[tuple[str, float], fx.Node] = {}
    buffers = dict(module.named_buffers(remove_duplicate=False))
    for node in list(graph.nodes):
        source = _changed_attribute(node)
        if source is None:
            continue
        path = str(source.target)
        rest = node.args[1:]
        readers = {
            user
            for other in graph.nodes
            if other.op == "get_attr" and other.target == path
            for user in other.users
        }
        counts = node.target in _COUNTING and len(rest) == 1 and not node.kwargs
        number = rest[0] if counts else None
        dead = {user for user in readers - {node} if _is_dead(user)}
        for user in dead:
            graph.erase_node(user)
        read = any(
            other.op == "get_attr" and other.target == path and other.meta.get(NUMBER)
            for other in graph.nodes
        )
        alone = not node.users and readers <= dead | {node} and not read
        if path not in buffers or not isinstance(number, int | float) or not alone:
            raise CannotRunError(
                f"network {name}: {locate(node)} changes {path} in the forward pass, which ranks "
                "cannot have alike; leave it out, or change it in the training script"
            )
        counting[path, number * _COUNTING[node.target]] = node
    return counting


def _is_dead(node: fx.Node) -> bool:
    """Return whether a node is a sum that nobody reads: what an assignment left behind."""
    return node.target in (operator.add, torch.add, "add") and not node.users


def _changed_attribute(node: fx.Node) -> fx.Node | None:
    """Return the parameter or buffer that a node changes by its name; None if it changes none."""
    if not writes_by_name(node) or not node.args:
        return None
    source = node.args[0]
    while isinstance(source, fx.Node) and source.op != "get_attr" and writes_by_name(source):
        source = source.args[0]
    return source if isinstance(source, fx.Node) and source.op == "get_attr" else None


def make_new_tensors(
    name: str,
    graph: fx.Graph,
    observations: Sequence[Observation],
) -> None:
    """Replace operators that write into their input by those that make a new tensor.

    Whoever reads the input later reads the new one.

    Raises:
        CannotRunError: Something else that shares the memory is read later, or there is no such
            operator.
    """
    for node in list(graph.nodes):
        written = [one for seen in observations for one in seen.written.get(node, ())]
        by_name = writes_by_name(node)
        if not written and not by_name:
            continue
        if node.target in _RUNNING:
            continue
        target = node.args[0] if node.args else None
        if by_name and not isinstance(target, fx.Node):
            target = next(iter(node.all_input_nodes), None)
        if by_name and _is_number(observations[0].values[node]):
            node.target = IN_PLACE[node.target]  # of a size: nothing is written
            continue
        if not by_name and written:
            target = written[0]
        assert isinstance(target, fx.Node), "something is written"
        for seen in observations:
            _check_source(name, node, target, seen)
        _check_gradients_off(name, node, target)
        aliases = _aliases(name, graph, node, target, observations)
        if not _make_new(node):
            raise CannotRunError(
                f"network {name}: {locate(node)} writes into its input; make a new tensor"
            )
        result = node
        if node.meta.get(NO_GRADIENTS):
            with graph.inserting_after(node):
                result = graph.call_method("detach", (node,))
            result.meta[NO_GRADIENTS] = True
            for seen in observations:
                seen.values[result] = seen.values[node]
            _read_instead(graph, node, result)
        for alias in (target, *aliases):
            _read_instead(graph, alias, result)


def _check_gradients_off(name: str, node: fx.Node, target: fx.Node) -> None:
    """Refuse an operator under no_grad that writes into a tensor with gradients."""
    if node.meta.get(NO_GRADIENTS) and not target.meta.get(NO_GRADIENTS):
        raise CannotRunError(
            f"network {name}: {locate(node)} writes under torch.no_grad into a tensor that was "
            "made outside; make a new tensor"
        )


def _read_instead(graph: fx.Graph, written: fx.Node, node: fx.Node) -> None:
    """Let operators after one that writes into its input read its output."""
    nodes = list(graph.nodes)
    later = set(nodes[nodes.index(node) + 1 :])
    written.replace_all_uses_with(node, delete_user_cb=lambda user: user in later)


def _check_source(
    name: str,
    node: fx.Node,
    target: fx.Node,
    seen: Observation,
) -> None:
    """Refuse an operator that writes into a parameter, a buffer or a constant.

    Raises:
        CannotRunError: It does.
    """
    paths = (seen.owned.get(storage_id(tensor)) for tensor in list_tensors(seen.values[target]))
    path = next((path for path in paths if path), None)
    if path is None and target.op == "get_attr":
        path = "a tensor that does not depend on the input"
    if path is not None:
        raise CannotRunError(
            f"network {name}: {locate(node)} changes {path} in the forward pass, which ranks "
            "cannot have alike; make a new tensor"
        )


def _aliases(
    name: str,
    graph: fx.Graph,
    node: fx.Node,
    target: fx.Node,
    observations: Sequence[Observation],
) -> list[fx.Node]:
    """Return the nodes that are the same tensor as what is written, and are read later.

    Raises:
        CannotRunError: A part of its memory is read later, or only in one mode.
    """
    nodes = list(graph.nodes)
    at = nodes.index(node)
    later = set(nodes[at + 1 :])
    aliases = []
    for other in nodes[:at]:
        readers = [user for user in other.users if user in later]
        if not writes_shape(node):
            readers = [user for user in readers if not _reads_size(user, observations)]
        if other is target or not readers:
            continue
        kinds = {_relation(seen.values, other, target) for seen in observations}
        if kinds == {"none"}:
            continue
        if kinds != {"same"} or writes_shape(node):
            raise CannotRunError(
                f"network {name}: {locate(node)} writes into memory that {locate(other)} shares, "
                "and that is read later; make a new tensor"
            )
        aliases.append(other)
    return aliases


def _reads_size(node: fx.Node, observations: Sequence[Observation]) -> bool:
    """Return whether a node reads numbers about a tensor, such as its shape, and not the tensor."""
    values = [seen.values.get(node) for seen in observations]
    return node.op != "output" and all(
        one is not None and not list_tensors(one) and bool(pytree.tree_leaves(one))
        for one in values
    )


def writes_shape(node: fx.Node) -> bool:
    """Return whether an operator changes the shape of its input, and not its numbers."""
    word = str(node.target)
    return node.op == "call_method" and word in ("squeeze_", "unsqueeze_", "t_", "transpose_")


def _relation(values: Mapping[fx.Node, Any], other: fx.Node, target: fx.Node) -> str:
    """Return whether two nodes are the ``same`` tensor, share ``memory``, or ``none``."""
    if values.get(other) is values.get(target):
        return "same"
    storages = [
        {storage_id(one) for one in list_tensors(values.get(node))} for node in (other, target)
    ]
    return "memory" if storages[0] & storages[1] else "none"


def _make_new(node: fx.Node) -> bool:
    """Make an operator return a new tensor; return whether it can."""
    if node.op == "call_module":
        return True  # pieces turn its `inplace` off
    if node.kwargs.get("inplace"):
        node.kwargs = {**node.kwargs, "inplace": False}
        return True
    if node.target in IN_PLACE:
        node.target = IN_PLACE[node.target]
        return True
    if node.kwargs.get("out") is not None or not writes_by_name(node):
        return False
    word = getattr(node.target, "__name__", str(node.target))[:-1]
    if node.op == "call_method":
        if not callable(getattr(torch.Tensor, word, None)):
            return False
        node.target = word
        return True
    for module in (functional, torch):
        if callable(getattr(module, word, None)) and getattr(module, f"{word}_", None):
            node.target = getattr(module, word)
            return True
    return False


def check_gradients(
    name: str,
    graph: fx.Graph,
    module: nn.Module,
    seen: Observation,
) -> None:
    """Refuse a graph that ends gradients, and uses a parameter that gets none.

    Plain torch would not change such a parameter; here weight decay would.

    Raises:
        CannotRunError: There is such a parameter.
    """
    if not any(_ends_gradients(node) for node in graph.nodes):
        return
    for node in graph.nodes:
        for path in _parameters_of(module, node):
            if path not in seen.learns:
                raise CannotRunError(
                    f"network {name}: {locate(node)} uses {path}, which gets no gradient (detach "
                    "or torch.no_grad); let all parameters learn, or make it a buffer"
                )


def _ends_gradients(node: fx.Node) -> bool:
    return node.target in ("detach", torch.detach) or (
        node.target is getattr and node.args[1] == "data"
    )


def _parameters_of(module: nn.Module, node: fx.Node) -> Iterator[str]:
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
