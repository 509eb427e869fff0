"""Graphs of networks by torch.fx: operators and what they read, without the numbers.

torch.fx runs the forward pass once with symbols in place of numbers, so that what depends on the
numbers themselves cannot be traced. The graphs of training and of evaluation must be one, but for
arguments that are ``self.training``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from typing import Any

import torch
from torch import fx, nn
from torch.nn import functional

from spbench_core.models.parts import Map
from spbench_parallel.errors import CannotRunError
from spbench_parallel.models.imported.forward.copies import copy_structure, is_compiled
from spbench_parallel.models.imported.forward.leaf_modules import find_drop_rule, find_dropped_unit
from spbench_parallel.models.imported.forward.observation import observe
from spbench_parallel.models.imported.forward.recording import record_graph
from spbench_parallel.models.imported.forward.sizes import get_attribute
from spbench_parallel.models.imported.forward.writes import (
    check_gradients,
    count_forward,
    make_new_tensors,
    take_counters,
)
from spbench_parallel.models.imported.loading import describe_error, find_user_line
from spbench_parallel.models.imported.messages import (
    extra_argument_error,
    locate,
    modes_message,
)
from spbench_parallel.models.imported.stochastic import StochasticOp

_DICT_KEY = "out"
"""The output of models that return several under names."""
_MODE = "training"
"""The attribute that every module has of its own."""
_UNITS: dict[Any, str] = {
    functional.dropout: "value",
    torch.dropout: "value",
    functional.dropout2d: "channel",
}
"""torch's functions of chance that ranks can draw, with what they drop: see `Chance`."""


def trace_graph(
    name: str, module: nn.Module, image: Map
) -> tuple[nn.Module, fx.Graph, frozenset[fx.Node]]:
    """Return a network's graph, alike in training and evaluation, without in-place steps.

    With it come a copy of the module, which shares its parameters and has the graph's constants,
    and the operators that draw random numbers. The module itself does not change.
    """
    _check_root(name, module)
    modes = {child: child.training for child in module.modules() if is_compiled(child)}
    try:
        scratch = copy_structure(name, module)
        evaluated, fixed = _record(name, scratch, image, training=False)
        scratch = copy_structure(name, module)
        graph, constants = _record(name, scratch, image, training=True)
        again, others = _record(name, scratch, image, training=True, again=True)
    finally:
        for child, mode in modes.items():
            child.training = mode  # copies share what is compiled
    _check_buffers(name, module, scratch)
    _check_repeated(name, graph, again, constants, others)
    own = copy_structure(name, module).train()
    for path, value in constants.items():
        if "." not in path and not hasattr(own, path):
            setattr(own, path, value)
    _take_counters(name, own, evaluated, graph)
    _merge(name, own, image, (evaluated, graph), (fixed, constants))
    _take_one_output(name, graph)
    seen = [observe(name, own, graph, image, training=mode) for mode in (False, True)]
    draws = frozenset(seen[0].draws | seen[1].draws)
    make_new_tensors(name, graph, seen)
    check_gradients(name, graph, own, seen[1])
    for node in reversed(graph.nodes):
        kept = node.op in ("placeholder", "output") or node.target is count_forward
        if not kept and not node.users:
            graph.erase_node(node)
    return own, graph, draws


def _check_root(name: str, module: nn.Module) -> None:
    """Refuse what tracing a module's own forward would leave out."""
    if is_compiled(module):
        raise CannotRunError(
            f"network {name}: it is compiled (torch.jit or torch.compile); take the module as it "
            "was before"
        )


def _record(
    name: str, module: nn.Module, image: Map, *, training: bool, again: bool = False
) -> tuple[fx.Graph, dict[str, Any]]:
    """Return a graph and its constants by path."""
    try:
        graph = record_graph(name, module, image, training=training)
    except CannotRunError as error:
        if again and error.__cause__ is not None:
            place = find_user_line(error.__cause__)
            cause = describe_error(error.__cause__)
            raise CannotRunError(f"network {name}: {place}{_AGAIN} ({cause})") from error.__cause__
        raise
    owned = {path for path, _ in module.named_parameters(remove_duplicate=False)}
    owned |= {path for path, _ in module.named_buffers(remove_duplicate=False)}
    paths = {str(node.target) for node in graph.nodes if node.op == "get_attr"} - owned
    constants = {path: get_attribute(module, path) for path in paths}
    return graph, {path: _copied(value) for path, value in constants.items()}


_AGAIN = (
    "the forward pass is another one in a second call: it keeps values from one call to the next, "
    "or draws random numbers; let each call depend on its input only"
)


def _copied(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, torch.Tensor) else value


def _check_buffers(name: str, module: nn.Module, traced: nn.Module) -> None:
    """Refuse a forward pass that has changed the buffers of a copy, or has made others."""
    before = dict(module.named_buffers(remove_duplicate=False))
    after = dict(traced.named_buffers(remove_duplicate=False))
    changed = sorted(before.keys() ^ after.keys())
    changed += [path for path in before if path in after and not _equal(before[path], after[path])]
    if changed:
        raise CannotRunError(
            f"network {name}: the forward pass changes {changed[0]}, which ranks cannot have "
            "alike; leave it out, or change it in the training script"
        )


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        same = one.shape == other.shape and one.dtype == other.dtype
        return same and bool(torch.equal(torch.nan_to_num(one), torch.nan_to_num(other)))
    return one is other or repr(one) == repr(other)


def _check_repeated(
    name: str,
    graph: fx.Graph,
    again: fx.Graph,
    constants: Mapping[str, Any],
    others: Mapping[str, Any],
) -> None:
    """Refuse a forward pass that is another one when it is called again."""
    for (node, text), (other, other_text) in zip(_texts(graph), _texts(again), strict=False):
        if node.op == other.op == "get_attr" and node.target in constants:
            same = other.target in others and _equal(
                constants[str(node.target)], others[str(other.target)]
            )
        else:
            same = text == other_text
        if not same:
            raise CannotRunError(f"network {name}: {locate(_first_user(node))}: {_AGAIN}")
    if len(graph.nodes) != len(again.nodes):
        raise CannotRunError(f"network {name}: {_AGAIN}")


def _texts(graph: fx.Graph) -> Iterator[tuple[fx.Node, str]]:
    """Yield nodes with what they compute, which does not depend on the names of nodes."""
    numbers = {node: f"%{number}" for number, node in enumerate(graph.nodes)}
    for node in graph.nodes:
        target = node.target if node.op != "call_function" else locate(node)
        arguments = fx.node.map_arg((node.args, dict(node.kwargs)), numbers.__getitem__)
        yield node, f"{node.op} {target} {arguments}"


def _first_user(node: fx.Node) -> fx.Node:
    return next(iter(node.users), node) if node.op == "get_attr" else node


def _take_counters(name: str, module: nn.Module, evaluated: fx.Graph, graph: fx.Graph) -> None:
    """Let operators that count forward passes do so on each rank, in the modes that count."""
    always = take_counters(name, module, evaluated)
    for key, node in take_counters(name, module, graph).items():
        (path, number) = key
        source = node.all_input_nodes[0]
        with graph.inserting_before(node):
            buffer = graph.get_attr(path) if source.op != "get_attr" else source
            mode = graph.get_attr(_MODE)
            graph.call_function(count_forward, (buffer, mode, number))
        graph.erase_node(node)
    for key, node in always.items():
        raise CannotRunError(
            f"network {name}: {locate(node)} changes {key[0]} in evaluation too; let it "
            "count in training only"
        )


def _merge(
    name: str,
    module: nn.Module,
    image: Map,
    graphs: tuple[fx.Graph, fx.Graph],
    constants: tuple[Mapping[str, Any], Mapping[str, Any]],
) -> None:
    """Let operators of the graph of training whose arguments follow the mode ask for it.

    Args:
        name: The network's name in errors.
        module: The network, with the constants of training.
        image: The shape of an image.
        graphs: The graphs of evaluation and of training.
        constants: Their constants.
    """
    evaluated, graph = graphs
    counting = [node for node in graph.nodes if node.target is count_forward]
    added = {*counting, *(one for node in counting for one in node.all_input_nodes)}
    pairs = zip(
        list(evaluated.nodes), [node for node in graph.nodes if node not in added], strict=False
    )
    same_length = len(evaluated.nodes) == len(graph.nodes) - len(added)
    for one, other in pairs:
        if not _ask_mode(graph, one, other) or not _same_constant(one, other, constants):
            if not same_length:
                _refuse_draws(name, module, graph, image)
                places = locate(_first_user(one)), locate(_first_user(other))
                differ = not all(isinstance(_output(each), fx.Node) for each in graphs)
                raise CannotRunError(modes_message(name, *places, outputs_differ=differ))
            raise CannotRunError(
                f"network {name}: {locate(_first_user(other))} is another one in evaluation: the "
                "forward pass asks self.training, which a graph cannot; take a module that does so "
                "by itself"
            )


def _output(graph: fx.Graph) -> Any:
    return next(iter(reversed(graph.nodes))).args[0]


def _same_constant(
    one: fx.Node, other: fx.Node, constants: tuple[Mapping[str, Any], Mapping[str, Any]]
) -> bool:
    if one.op != "get_attr" or one.target not in constants[0]:
        return True
    path = str(one.target)
    return path in constants[1] and _equal(constants[0][path], constants[1][path])


def _refuse_draws(name: str, module: nn.Module, graph: fx.Graph, image: Map) -> None:
    """Refuse operators that draw, which are often those that evaluation has not."""
    for node in observe(name, module, graph, image, training=True).draws:
        find_stochastic_op(name, module, node, 0, {node})


def _ask_mode(graph: fx.Graph, evaluated: fx.Node, trained: fx.Node) -> bool:
    """Let an operator whose arguments are False in evaluation and True in training ask the mode.

    Returns:
        Whether it is the same operator but for that.
    """
    if (evaluated.op, evaluated.target) != (trained.op, trained.target):
        return False
    if repr((evaluated.args, evaluated.kwargs)) == repr((trained.args, trained.kwargs)):
        return True
    with graph.inserting_before(trained):
        mode = graph.get_attr(_MODE)
    try:
        trained.args = _merged(evaluated.args, trained.args, mode)
        trained.kwargs = _merged(evaluated.kwargs, trained.kwargs, mode)
    except ValueError:
        return False
    return True


def _merged(evaluated: Any, trained: Any, mode: fx.Node) -> Any:
    """Return arguments of which those that follow the mode are the mode.

    Raises:
        ValueError: They differ in something else.
    """
    if evaluated is False and trained is True:
        return mode
    if isinstance(trained, tuple | list) and len(trained) == len(evaluated):
        pairs = zip(evaluated, trained, strict=True)
        return type(trained)(_merged(one, other, mode) for one, other in pairs)
    if isinstance(trained, dict) and trained.keys() == evaluated.keys():
        return {key: _merged(evaluated[key], one, mode) for key, one in trained.items()}
    if repr(evaluated) != repr(trained):
        raise ValueError("another argument")
    return trained


def _take_one_output(name: str, graph: fx.Graph) -> None:
    """Make a network's output one tensor: of several under names that named ``out``."""
    (end,) = (node for node in graph.nodes if node.op == "output")
    output = end.args[0]
    if isinstance(output, dict) and isinstance(output.get(_DICT_KEY), fx.Node):
        end.args = (output[_DICT_KEY],)
    elif not isinstance(output, fx.Node):
        raise CannotRunError(
            f"network {name}: it gives several outputs; let it give one, or a dict with "
            f"{_DICT_KEY!r}, and leave out auxiliary ones by network_args"
        )
    inputs = [node for node in graph.nodes if node.op == "placeholder"]
    for node in inputs[1:]:
        if node.users or not node.args:
            raise extra_argument_error(name, str(node.target))
        graph.erase_node(node)


def find_stochastic_op(
    name: str, module: nn.Module, node: fx.Node, index: int, draws: Set[fx.Node]
) -> StochasticOp | None:
    """Return what a node drops in training; None where it draws nothing.

    Args:
        name: The network's name in errors.
        module: The network.
        node: The node.
        index: Its number among those that draw.
        draws: The nodes that draw random numbers.

    Raises:
        CannotRunError: It draws random numbers that cannot be drawn by position.
    """
    if node not in draws:
        return None
    unit, share = _drop_at(module, node)
    if unit is None or share is None or not 0 < share < 1:
        raise CannotRunError(
            f"network {name}: {locate(node)} draws random numbers in training, and ranks draw "
            "others than one process; give network_args that make its share 0, as {dropout: 0}"
        )
    return StochasticOp(index, share, unit)


def _drop_at(module: nn.Module, node: fx.Node) -> tuple[str | None, float | None]:
    """Return the unit and the share that a node drops; None if they are not known."""
    if node.op == "call_module":
        rule = find_drop_rule(module.get_submodule(str(node.target)))
        return (rule.unit, rule.share) if rule is not None else (None, None)
    if node.op != "call_function":
        return None, None
    arguments: dict[str, Any] = dict(zip(("p", "training"), node.args[1:3], strict=False))
    arguments |= node.kwargs
    if node.target in _UNITS:
        share = arguments.get("p", 0.5)
        training = arguments.get("training", arguments.get("train", True))
        known = isinstance(share, float | int) and _is_mode(training)
        return _UNITS[node.target], float(share) if known else None
    return _drop_of_function(node)


def _drop_of_function(node: fx.Node) -> tuple[str | None, float | None]:
    """Return the unit and the share that a user's function drops, found by calling it."""

    def call(values: torch.Tensor) -> Any:
        def chosen(one: fx.Node) -> Any:
            return values if one is node.args[0] else True

        args, kwargs = fx.node.map_arg((node.args, dict(node.kwargs)), chosen)
        function: Any = node.target
        return function(*args, **kwargs)

    numbers = [one for one in (*node.args, *node.kwargs.values()) if type(one) is float]
    modes = [one for one in node.all_input_nodes if one is not node.args[0]]
    if not modes or not all(_is_mode(one) for one in modes):
        return None, None
    units = ((find_dropped_unit(call, number), number) for number in numbers if 0 < number < 1)
    return next(((unit, number) for unit, number in units if unit is not None), (None, None))


def _is_mode(value: Any) -> bool:
    """Return whether an argument is False in evaluation and True in training."""
    return value is False or (isinstance(value, fx.Node) and value.target == _MODE)
