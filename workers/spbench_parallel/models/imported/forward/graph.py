"""Graphs of networks by torch.fx: operators and their inputs.

torch.fx runs the forward pass once with symbols, so control flow that depends on values cannot be
traced. The graphs of training and evaluation must be equal, except for arguments that are
``self.training``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import fx, nn

from spbench_core.models.parts import MapShape
from spbench_parallel.errors import CannotRunError
from spbench_parallel.models.imported.forward.copies import copy_structure, is_compiled
from spbench_parallel.models.imported.forward.leaf_modules import (
    MODE_ATTRIBUTE,
    find_stochastic_op,
)
from spbench_parallel.models.imported.forward.observation import observe
from spbench_parallel.models.imported.forward.recording import record_graph
from spbench_parallel.models.imported.forward.sizes import get_attribute
from spbench_parallel.models.imported.forward.writes import (
    check_gradients,
    count_forward,
    replace_in_place_operators,
    take_counters,
)
from spbench_parallel.models.imported.loading import describe_error, find_user_line
from spbench_parallel.models.imported.messages import (
    locate,
    make_extra_argument_error,
    make_modes_message,
)

_DICT_KEY = "out"
"""The output that is used of models that return a dict."""


class TracedGraph(NamedTuple):
    """A network's graph for both modes.

    Attributes:
        module: A copy of the network, with shared parameters and the graph's constants.
        graph: The graph.
        drawing_nodes: The nodes that draw random numbers.
    """

    module: nn.Module
    graph: fx.Graph
    drawing_nodes: frozenset[fx.Node]


def trace_graph(name: str, module: nn.Module, image: MapShape) -> TracedGraph:
    """Return a network's graph for both modes, without in-place operators.

    The module does not change.
    """
    _check_root(name, module)
    mode_by_module = {child: child.training for child in module.modules() if is_compiled(child)}
    try:
        traced_copy = copy_structure(name, module)
        evaluation_graph, evaluation_constants = _record(name, traced_copy, image, training=False)
        traced_copy = copy_structure(name, module)
        graph, constants = _record(name, traced_copy, image, training=True)
        repeated_graph, repeated_constants = _record(
            name, traced_copy, image, training=True, repeated=True
        )
    finally:
        for child, mode in mode_by_module.items():
            child.training = mode  # copies share compiled modules
    _check_buffers(name, module, traced_copy)
    _check_repeated(name, graph, repeated_graph, constants, repeated_constants)
    copied_module = copy_structure(name, module).train()
    for path, value in constants.items():
        if "." not in path and not hasattr(copied_module, path):
            setattr(copied_module, path, value)
    _record_counters(name, copied_module, evaluation_graph, graph)
    _merge_modes(
        name, copied_module, image, (evaluation_graph, graph), (evaluation_constants, constants)
    )
    _take_one_output(name, graph)
    observations = [
        observe(name, copied_module, graph, image, training=mode) for mode in (False, True)
    ]
    drawing_nodes = frozenset(observations[0].drawing_nodes | observations[1].drawing_nodes)
    replace_in_place_operators(name, graph, observations)
    check_gradients(name, graph, copied_module, observations[1])
    for node in reversed(graph.nodes):
        must_stay = node.op in ("placeholder", "output") or node.target is count_forward
        if not must_stay and not node.users:
            graph.erase_node(node)
    return TracedGraph(copied_module, graph, drawing_nodes)


def _check_root(name: str, module: nn.Module) -> None:
    """Reject a compiled module, which cannot be traced."""
    if is_compiled(module):
        raise CannotRunError(
            f"network {name}: it is compiled (torch.jit or torch.compile); take the module as it "
            "was before"
        )


def _record(
    name: str, module: nn.Module, image: MapShape, *, training: bool, repeated: bool = False
) -> tuple[fx.Graph, dict[str, Any]]:
    """Return a graph, and its constants by path."""
    try:
        graph = record_graph(name, module, image, training=training)
    except CannotRunError as error:
        if repeated and error.__cause__ is not None:
            line = find_user_line(error.__cause__)
            cause = describe_error(error.__cause__)
            raise CannotRunError(
                f"network {name}: {line}{_NOT_REPEATABLE} ({cause})"
            ) from error.__cause__
        raise
    state_names = {path for path, _ in module.named_parameters(remove_duplicate=False)}
    state_names |= {path for path, _ in module.named_buffers(remove_duplicate=False)}
    constant_paths = {
        str(node.target) for node in graph.nodes if node.op == "get_attr"
    } - state_names
    constant_by_path = {path: get_attribute(module, path) for path in constant_paths}
    return graph, {path: _clone(value) for path, value in constant_by_path.items()}


_NOT_REPEATABLE = (
    "the forward pass is another one in a second call: it keeps values from one call to the next, "
    "or draws random numbers; let each call depend on its input only"
)


def _clone(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, torch.Tensor) else value


def _check_buffers(name: str, module: nn.Module, traced: nn.Module) -> None:
    """Reject a forward pass that changes or creates buffers."""
    buffer_before = dict(module.named_buffers(remove_duplicate=False))
    buffer_after = dict(traced.named_buffers(remove_duplicate=False))
    changed_paths = sorted(buffer_before.keys() ^ buffer_after.keys())
    changed_paths += [
        path
        for path in buffer_before
        if path in buffer_after and not _equal(buffer_before[path], buffer_after[path])
    ]
    if changed_paths:
        raise CannotRunError(
            f"network {name}: the forward pass changes {changed_paths[0]}, which ranks cannot have "
            "alike; leave it out, or change it in the training script"
        )


def _equal(first: Any, second: Any) -> bool:
    if isinstance(first, torch.Tensor) and isinstance(second, torch.Tensor):
        same = first.shape == second.shape and first.dtype == second.dtype
        return same and bool(torch.equal(torch.nan_to_num(first), torch.nan_to_num(second)))
    return first is second or repr(first) == repr(second)


def _check_repeated(
    name: str,
    graph: fx.Graph,
    repeated: fx.Graph,
    constants: Mapping[str, Any],
    repeated_constants: Mapping[str, Any],
) -> None:
    """Reject a forward pass that differs when it is called again."""
    for (node, text), (other, other_text) in zip(
        _iter_node_texts(graph), _iter_node_texts(repeated), strict=False
    ):
        if node.op == other.op == "get_attr" and node.target in constants:
            same = other.target in repeated_constants and _equal(
                constants[str(node.target)], repeated_constants[str(other.target)]
            )
        else:
            same = text == other_text
        if not same:
            raise CannotRunError(
                f"network {name}: {locate(_get_first_user(node))}: {_NOT_REPEATABLE}"
            )
    if len(graph.nodes) != len(repeated.nodes):
        raise CannotRunError(f"network {name}: {_NOT_REPEATABLE}")


def _iter_node_texts(graph: fx.Graph) -> Iterator[tuple[fx.Node, str]]:
    """Yield nodes with their computation as text, independent of node names."""
    label_by_node = {node: f"%{number}" for number, node in enumerate(graph.nodes)}
    for node in graph.nodes:
        target = node.target if node.op != "call_function" else locate(node)
        arguments = fx.node.map_arg((node.args, dict(node.kwargs)), label_by_node.__getitem__)
        yield node, f"{node.op} {target} {arguments}"


def _get_first_user(node: fx.Node) -> fx.Node:
    return next(iter(node.users), node) if node.op == "get_attr" else node


def _record_counters(
    name: str, module: nn.Module, evaluation_graph: fx.Graph, graph: fx.Graph
) -> None:
    """Make operators that count forward passes do so on each rank, in training."""
    evaluation_counters = take_counters(name, module, evaluation_graph)
    for counter, node in take_counters(name, module, graph).items():
        (path, number) = counter
        source = node.all_input_nodes[0]
        with graph.inserting_before(node):
            buffer = graph.get_attr(path) if source.op != "get_attr" else source
            mode = graph.get_attr(MODE_ATTRIBUTE)
            graph.call_function(count_forward, (buffer, mode, number))
        graph.erase_node(node)
    for counter, node in evaluation_counters.items():
        raise CannotRunError(
            f"network {name}: {locate(node)} changes {counter[0]} in evaluation too; let it "
            "count in training only"
        )


def _merge_modes(
    name: str,
    module: nn.Module,
    image: MapShape,
    graphs: tuple[fx.Graph, fx.Graph],
    constants: tuple[Mapping[str, Any], Mapping[str, Any]],
) -> None:
    """Let arguments of the training graph that follow the mode read the mode.

    Args:
        name: The network's name in errors.
        module: The network, with the constants of training.
        image: The shape of an image.
        graphs: The graphs of evaluation and of training.
        constants: Their constants.
    """
    evaluation_graph, graph = graphs
    counter_nodes = [node for node in graph.nodes if node.target is count_forward]
    added_nodes = {
        *counter_nodes,
        *(source for node in counter_nodes for source in node.all_input_nodes),
    }
    pairs = zip(
        list(evaluation_graph.nodes),
        [node for node in graph.nodes if node not in added_nodes],
        strict=False,
    )
    same_length = len(evaluation_graph.nodes) == len(graph.nodes) - len(added_nodes)
    for evaluated_node, trained_node in pairs:
        if not _ask_mode(graph, evaluated_node, trained_node) or not _same_constant(
            evaluated_node, trained_node, constants
        ):
            if not same_length:
                _reject_draws(name, module, graph, image)
                locations = (
                    locate(_get_first_user(evaluated_node)),
                    locate(_get_first_user(trained_node)),
                )
                outputs_differ = not all(
                    isinstance(_get_outputs(graph_), fx.Node) for graph_ in graphs
                )
                raise CannotRunError(
                    make_modes_message(name, *locations, outputs_differ=outputs_differ)
                )
            raise CannotRunError(
                f"network {name}: {locate(_get_first_user(trained_node))} is another one in "
                "evaluation: the forward pass asks self.training, which a graph cannot; take a "
                "module that does so by itself"
            )


def _get_outputs(graph: fx.Graph) -> Any:
    return next(iter(reversed(graph.nodes))).args[0]


def _same_constant(
    evaluated: fx.Node, trained: fx.Node, constants: tuple[Mapping[str, Any], Mapping[str, Any]]
) -> bool:
    if evaluated.op != "get_attr" or evaluated.target not in constants[0]:
        return True
    path = str(evaluated.target)
    return path in constants[1] and _equal(constants[0][path], constants[1][path])


def _reject_draws(name: str, module: nn.Module, graph: fx.Graph, image: MapShape) -> None:
    """Reject operators that draw, which evaluation often lacks."""
    for node in observe(name, module, graph, image, training=True).drawing_nodes:
        find_stochastic_op(name, module, node, 0, {node})


def _ask_mode(graph: fx.Graph, evaluated: fx.Node, trained: fx.Node) -> bool:
    """Let arguments that are False in evaluation and True in training read the mode.

    Returns:
        Whether it is the same operator otherwise.
    """
    if (evaluated.op, evaluated.target) != (trained.op, trained.target):
        return False
    if repr((evaluated.args, evaluated.kwargs)) == repr((trained.args, trained.kwargs)):
        return True
    with graph.inserting_before(trained):
        mode = graph.get_attr(MODE_ATTRIBUTE)
    try:
        trained.args = _merge_arguments(evaluated.args, trained.args, mode)
        trained.kwargs = _merge_arguments(evaluated.kwargs, trained.kwargs, mode)
    except ValueError:
        return False
    return True


def _merge_arguments(evaluated: Any, trained: Any, mode: fx.Node) -> Any:
    """Return arguments, with the mode for those that follow it.

    Raises:
        ValueError: They differ in other arguments.
    """
    if evaluated is False and trained is True:
        return mode
    if isinstance(trained, tuple | list) and len(trained) == len(evaluated):
        pairs = zip(evaluated, trained, strict=True)
        return type(trained)(_merge_arguments(*pair, mode) for pair in pairs)
    if isinstance(trained, dict) and trained.keys() == evaluated.keys():
        return {key: _merge_arguments(evaluated[key], trained[key], mode) for key in trained}
    if repr(evaluated) != repr(trained):
        raise ValueError("another argument")
    return trained


def _take_one_output(name: str, graph: fx.Graph) -> None:
    """Make the network's output one tensor; of a dict the entry ``out``."""
    (output_node,) = (node for node in graph.nodes if node.op == "output")
    output = output_node.args[0]
    if isinstance(output, dict) and isinstance(output.get(_DICT_KEY), fx.Node):
        output_node.args = (output[_DICT_KEY],)
    elif not isinstance(output, fx.Node):
        raise CannotRunError(
            f"network {name}: it gives several outputs; let it give one, or a dict with "
            f"{_DICT_KEY!r}, and leave out auxiliary ones by network_args"
        )
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    for node in placeholders[1:]:
        if node.users or not node.args:
            raise make_extra_argument_error(name, str(node.target))
        graph.erase_node(node)
