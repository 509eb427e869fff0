"""Graphs of networks by torch.fx: operators and what they read, without the numbers.

torch.fx runs the forward pass once with symbols in place of numbers, so that what depends on the
numbers themselves cannot be traced. The graphs of training and of evaluation must be one, but for
arguments that are ``self.training``.
"""

from __future__ import annotations

import copy
import operator
import re
from typing import Any

import torch
from torch import fx, nn

from spbench_core.models.parts import Map
from spbench_workers.errors import CannotRunError
from spbench_workers.models.imported.advice import modes_message, refuse_extra, tracing_error
from spbench_workers.models.imported.chance import Chance
from spbench_workers.models.imported.hooks import has_own_forward
from spbench_workers.models.imported.loading import is_installed, is_users, short
from spbench_workers.models.imported.tracer import SizedTracer, defaults_of, erase_defaults

_DICT_KEY = "out"
"""The output of models that return several under names."""
_MODE = "training"
"""The attribute that every module has of its own."""
_LINE = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)')
_UNITS = {
    "Dropout": "value",
    "Dropout2d": "channel",
    "StochasticDepth": "image",
    "DropPath": "image",
    "dropout": "value",
    "dropout2d": "channel",
    "stochastic_depth": "image",
    "drop_path": "image",
}
"""Classes and functions of chance that ranks can draw, with what they drop: see `Chance`."""
_CHANCE = "Dropout", "StochasticDepth", "DropPath", "DropBlock", "RReLU", "FractionalMaxPool"
_CHANCE_FUNCTIONS = "dropout", "stochastic_depth", "rand", "drop_path", "bernoulli"
_OTHER_FUNCTIONS = frozenset(
    ("rrelu", "rrelu_", "gumbel_softmax", "multinomial", "normal", "normal_", "poisson")
)
"""Functions that draw, whose names are parts of others'."""
_IN_PLACE = {
    operator.iadd: operator.add,
    operator.imul: operator.mul,
    operator.isub: operator.sub,
    operator.itruediv: operator.truediv,
}


def graph_of(name: str, module: nn.Module, image: Map) -> tuple[nn.Module, fx.Graph]:
    """Return a network's graph, alike in training and evaluation, without in-place steps.

    With it comes the module that has the graph's constants: a shallow copy.
    """
    found = []
    for training in (False, True):
        own, tracer = copy.copy(module), _Tracer(image)
        try:
            found.append(tracer.trace(own.train(training), defaults_of(own)))
        except Exception as error:  # whatever its code does with symbols
            raise tracing_error(name, error, tracer.calling, image) from error
        erase_defaults(found[-1])
    evaluated, graph = found
    if len(evaluated.nodes) != len(graph.nodes):
        raise CannotRunError(_other_operators(name, evaluated, graph))
    for one, other in zip(list(evaluated.nodes), list(graph.nodes), strict=True):
        if not _ask_mode(graph, one, other):
            raise CannotRunError(
                f"network {name}: {where(other)} is another one in evaluation: the forward pass "
                "asks self.training, which a graph cannot; take a module that does so by itself"
            )
    _take_one_output(name, graph)
    _leave_memory_alone(name, graph)
    for node in reversed(graph.nodes):
        if node.op not in ("placeholder", "output") and not node.users:
            graph.erase_node(node)
    return own, graph


def where(node: fx.Node) -> str:
    """Return the user's line of an operator, ``file:line``, and the operator; or that alone.

    Of a library's operator it is the line that calls it, with the path of its module.
    """
    lines = [found for found in _LINE.finditer(node.stack_trace or "") if is_users(found["file"])]
    what = str(node.target) if node.op != "call_function" else _function_name(node.target)
    if not lines:
        return what
    places = [f"{short(found['file'])}:{found['line']}" for found in lines]
    if not is_installed(lines[-1]["file"]):
        return f"{places[-1]}: {what}"
    own = [at for found, at in zip(lines, places, strict=True) if not is_installed(found["file"])]
    paths = [path for path, _ in node.meta.get("nn_module_stack", {}).values()]
    return ": ".join([*own[-1:], f"{paths[-1] if paths else 'it'} ({places[-1]})", what])


def _function_name(target: Any) -> str:
    return str(getattr(target, "__name__", target))


class _Tracer(SizedTracer):
    """A tracer that keeps the lines of the user's code, and modules of chance whole."""

    def __init__(self, image: Map) -> None:
        super().__init__(image)
        self.record_stack_traces = True

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        if has_own_forward(m):
            return False
        return is_of_chance(m) or super().is_leaf_module(m, module_qualified_name)


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


def _other_operators(name: str, evaluated: fx.Graph, graph: fx.Graph) -> str:
    """Return the message of a graph that is another one in training."""
    pairs = zip(evaluated.nodes, graph.nodes, strict=False)
    one, other = next(pair for pair in pairs if not _is_alike(*pair))
    ends = [list(each.nodes)[-1].args[0] for each in (evaluated, graph)]
    outputs_differ = not all(isinstance(end, fx.Node) for end in ends)
    return modes_message(name, where(one), where(other), outputs_differ=outputs_differ)


def _is_alike(one: fx.Node, other: fx.Node) -> bool:
    return (one.op, one.target) == (other.op, other.target)


def _take_one_output(name: str, graph: fx.Graph) -> None:
    """Make a network's output one tensor: of several under names that named ``out``."""
    (end,) = (node for node in graph.nodes if node.op == "output")
    given = end.args[0]
    if isinstance(given, dict) and isinstance(given.get(_DICT_KEY), fx.Node):
        end.args = (given[_DICT_KEY],)
    elif not isinstance(given, fx.Node):
        raise CannotRunError(
            f"network {name}: it gives several outputs; let it give one, or a dict with "
            f"{_DICT_KEY!r}, and leave out auxiliary ones by network_args"
        )
    inputs = [node for node in graph.nodes if node.op == "placeholder"]
    for node in inputs[1:]:
        if node.users or not node.args:
            raise refuse_extra(name, str(node.target))
        graph.erase_node(node)


def _leave_memory_alone(name: str, graph: fx.Graph) -> None:
    """Replace operators that write into their input by those that make a new tensor.

    What a layer gets belongs to the layer before. Whoever reads the input later reads the new one.
    """
    for node in list(graph.nodes):
        if node.op == "call_function" and node.target in _IN_PLACE:
            node.target = _IN_PLACE[node.target]
        elif node.op == "call_method" and _writes(node.target):
            node.target = node.target[:-1]
            if not hasattr(torch.Tensor, node.target):
                raise CannotRunError(
                    f"network {name}: {where(node)}_ writes into its input; make a new tensor"
                )
        elif node.kwargs.get("inplace"):
            node.kwargs = {**node.kwargs, "inplace": False}
        else:
            continue
        _read_instead(graph, node)


def _writes(method: Any) -> bool:
    return str(method).endswith("_") and not str(method).endswith("__")


def _read_instead(graph: fx.Graph, node: fx.Node) -> None:
    """Let operators after an in-place one that read its input read its output."""
    if not (node.args and isinstance(node.args[0], fx.Node)):
        return
    written, nodes = node.args[0], list(graph.nodes)
    later = set(nodes[nodes.index(node) + 1 :])
    written.replace_all_uses_with(node, delete_user_cb=lambda user: user in later)


def chance_of(name: str, module: nn.Module, node: fx.Node, index: int) -> Chance | None:
    """Return what a node drops in training; None where it draws nothing.

    Args:
        name: The network's name in errors.
        module: The network.
        node: The node.
        index: Its number among those that draw.

    Raises:
        CannotRunError: It draws random numbers that cannot be drawn by position.
    """
    found = _draws(module, node)
    if found is None:
        return None
    word, share, mode = found
    if share == 0:
        return None
    if word not in _UNITS or share is None or not 0 < share < 1 or mode == "batch":
        raise CannotRunError(
            f"network {name}: {where(node)} draws random numbers in training, and ranks draw "
            "others than one process; give network_args that make its share 0, as {dropout: 0}"
        )
    return Chance(index, share, _UNITS[word])


def _draws(module: nn.Module, node: fx.Node) -> tuple[str, float | None, Any] | None:
    """Return the word of what draws at a node, its share where it is known, and its mode."""
    if node.op == "call_module":
        called = module.get_submodule(str(node.target))
        if is_of_chance(called):
            return type(called).__name__, _share(called), getattr(called, "mode", None)
        inner = [share for one in called.modules() if (share := _inner_share(one))]
        return (f"what is in {type(called).__name__}", inner[0], None) if inner else None
    word = _function_name(node.target)
    if not node.op.startswith("call"):
        return None
    draws = word in _OTHER_FUNCTIONS or any(one in word for one in _CHANCE_FUNCTIONS)
    if node.op == "call_method" or not draws:
        return (word, None, None) if draws or _drops_within(node, word) else None
    words: dict[str, Any] = dict(zip(("p", "mode"), node.args[1:], strict=False))
    words |= node.kwargs
    share = words.get("p", words.get("drop_prob", 0.5))
    always = word in ("dropout", "dropout2d") and not _asks_mode(node)
    known = isinstance(share, float | int) and not always
    return word, float(share) if known else None, words.get("mode")


def _drops_within(node: fx.Node, word: str) -> bool:
    """Return whether a function is given a share to drop, as attention is; or what may be one."""
    named = [value for name, value in node.kwargs.items() if "dropout" in name]
    if word == "scaled_dot_product_attention":
        named += node.args[4:5]
    return any(value not in (0, False, None) for value in named)


def _asks_mode(node: fx.Node) -> bool:
    """Return whether one of torch's dropouts draws in training alone."""
    training = node.kwargs.get("training", node.args[2] if len(node.args) > 2 else True)
    return training is False or (isinstance(training, fx.Node) and training.target == _MODE)


def is_of_chance(module: nn.Module) -> bool:
    """Return whether a module draws random numbers in training, by the names that are in use."""
    return any(word in type(module).__name__ for word in _CHANCE)


def _inner_share(module: nn.Module) -> float:
    """Return the share that a module within one of torch's own drops; attention has a number."""
    found = _share(module) if is_of_chance(module) else getattr(module, "dropout", 0.0)
    return float(found) if isinstance(found, float | int) else 0.0


def _share(module: nn.Module) -> float:
    """Return the share of numbers that a module of chance drops, by the names that are in use."""
    found: float = getattr(module, "p", None) or getattr(module, "drop_prob", None) or 0.0
    return found
