"""Tracing of a network: its operators in order, with the shapes of what each reads and gives.

torch.fx runs the forward pass once with symbols in place of numbers, so that what depends on the
numbers themselves cannot be traced. The graphs of training and of evaluation must be one, but for
arguments that are ``self.training``. Shapes come from two runs without memory, of two batch sizes,
which tell what has a row for each image.
"""

from __future__ import annotations

import copy
import logging
import operator
import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import fx, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode

from spbench_core.models.parts import Map
from spbench_workers.errors import CannotRunError
from spbench_workers.models.imported.loading import in_words, is_users, place_of, short

_IMAGES = 3, 5
"""Images of the two runs that tell shapes: more than one, as batch normalisation asks for."""
_DICT_KEY = "out"
"""The output of models that return several under names."""
_LINE = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)')
_CHANCE = "Dropout", "StochasticDepth", "DropPath", "DropBlock"
_CHANCE_FUNCTIONS = "dropout", "stochastic_depth", "rand", "drop_path"
_IN_PLACE = {
    operator.iadd: operator.add,
    operator.imul: operator.mul,
    operator.isub: operator.sub,
    operator.itruediv: operator.truediv,
}


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator of a network.

    Attributes:
        node: Its node in the graph.
        shape: The shape of what it gives for one image; None where that is no tensor of floating
            point with a row for each image.
        multiply_adds: For one image.
        number: Whether it gives no tensor, but a size or another number.
        value: That number, where it is the same for any number of images; of a size all sides but
            the first.
    """

    node: fx.Node
    shape: tuple[int, ...] | None
    multiply_adds: int
    number: bool = False
    value: Any = None


@dataclass(frozen=True)
class Traced:
    """A traced network.

    Attributes:
        name: Its ``module:callable``.
        module: It as it was loaded, with its weights.
        graph: Its operators and their arguments.
        image: The shape of an image.
        operators: The operators that compute something, in their order.
    """

    name: str
    module: nn.Module
    graph: fx.Graph
    image: Map
    operators: tuple[Operator, ...]

    @cached_property
    def places(self) -> dict[fx.Node, int]:
        """The index of each operator, by its node; -1 of the image."""
        places = {node: -1 for node in self.graph.nodes if node.op == "placeholder"}
        return places | {each.node: at for at, each in enumerate(self.operators)}

    @cached_property
    def shapes(self) -> dict[fx.Node, tuple[int, ...]]:
        """The shape for one image of what has a row for each image."""
        shapes = {each.node: each.shape for each in self.operators if each.shape is not None}
        images = (node for node in self.graph.nodes if node.op == "placeholder")
        return dict.fromkeys(images, self.image.shape) | shapes


def traced(name: str, module: nn.Module, image: Map) -> Traced:
    """Trace a network.

    Args:
        name: Its name in errors.
        module: The network.
        image: The shape of an image.

    Raises:
        CannotRunError: It cannot be traced, not for such images, or it draws random numbers.
    """
    module, graph = _graph(name, module)
    shapes = [_shapes(name, module, graph, image, count) for count in _IMAGES]
    operators = []
    for node in graph.nodes:
        _refuse_chance(name, module, node)
        if node.op in ("call_module", "call_function", "call_method"):
            first, second = (found.get(node) for found in shapes)
            multiply_adds = 0 if first is None else first.multiply_adds // _IMAGES[0]
            number, value = _number(first, second)
            shape = _of_one_image(first, second)
            operators.append(Operator(node, shape, multiply_adds, number, value))
    return Traced(name, module, graph, image, tuple(operators))


def where(node: fx.Node) -> str:
    """Return the user's line of an operator, ``file:line``, and the operator; or that alone."""
    lines = [found for found in _LINE.finditer(node.stack_trace or "") if is_users(found["file"])]
    what = str(node.target) if node.op != "call_function" else _function_name(node.target)
    return f"{short(lines[-1]['file'])}:{lines[-1]['line']}: {what}" if lines else what


def _function_name(target: Any) -> str:
    return str(getattr(target, "__name__", target))


def _graph(name: str, module: nn.Module) -> tuple[nn.Module, fx.Graph]:
    """Return a network's graph, alike in training and evaluation, without in-place steps.

    With it comes the module that has the graph's constants: a shallow copy.
    """
    found = []
    for training in (False, True):
        own = copy.copy(module)
        try:
            found.append(_Tracer().trace(own.train(training)))
        except Exception as error:  # whatever its code does with symbols
            raise CannotRunError(
                f"network {name}: {place_of(error)}the forward pass cannot be traced, as it asks "
                f"for numbers that are not known before ({in_words(error)}); write it without that"
            ) from error
    evaluated, graph = found
    if len(evaluated.nodes) != len(graph.nodes):
        raise CannotRunError(
            f"network {name}: its forward pass has other operators in training than in evaluation; "
            "leave out auxiliary outputs, by network_args"
        )
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


_MODE = "training"
"""The attribute that every module has of its own."""


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


class _Tracer(fx.Tracer):
    """A tracer that keeps the lines of the user's code, and modules of chance whole."""

    def __init__(self) -> None:
        super().__init__()
        self.record_stack_traces = True

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return _is_of_chance(m) or super().is_leaf_module(m, module_qualified_name)


def _is_of_chance(module: nn.Module) -> bool:
    """Return whether a module draws random numbers in training, by the names that are in use."""
    return any(word in type(module).__name__ for word in _CHANCE)


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
            raise CannotRunError(f"network {name}: it takes {node.target} beside images")
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


@dataclass(frozen=True, slots=True)
class _Made:
    """What an operator gave in a run, and the multiply-adds that it took."""

    value: Any
    multiply_adds: int


class _Shapes(fx.Interpreter):
    """A run without memory that notes what each operator gives."""

    def __init__(self, module: nn.Module, graph: fx.Graph) -> None:
        super().__init__(module, graph=graph)
        self.made: dict[fx.Node, _Made] = {}
        self.at: fx.Node | None = None

    def run_node(self, n: fx.Node) -> Any:
        """Run an operator, and note it."""
        self.at = n
        with FlopCounterMode(display=False) as counted:
            value = super().run_node(n)
        self.made[n] = _Made(value, counted.get_total_flops() // 2)
        return value


def _shapes(
    name: str, module: nn.Module, graph: fx.Graph, image: Map, images: int
) -> dict[fx.Node, _Made]:
    run, was = _Shapes(module, graph), module.training
    module.eval()  # so that no running statistics move
    quiet = logging.getLogger("torch._subclasses.fake_tensor")
    quiet.disabled = True  # it would print a traceback beside the sentence
    try:
        with FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
            run.run(torch.empty(images, *image.shape))
    except Exception as error:  # whatever an operator says of such shapes
        at = "" if run.at is None else f"{where(run.at)}: "
        raise CannotRunError(
            f"network {name}: {at}it cannot take images of {image.height}x{image.width} "
            f"({in_words(error.__cause__ or error)}); take another image_size"
        ) from error
    finally:
        quiet.disabled = False
        module.train(was)
    return run.made


def _of_one_image(first: _Made | None, second: _Made | None) -> tuple[int, ...] | None:
    """Return the shape for one image, of what has a row for each; else None."""
    if first is None or second is None:
        return None
    one, other = first.value, second.value
    if not (isinstance(one, torch.Tensor) and one.is_floating_point() and one.dim() > 0):
        return None
    alike = one.shape[1:] == other.shape[1:]
    rows = (one.shape[0], other.shape[0]) == _IMAGES
    return tuple(one.shape[1:]) if alike and rows else None


def _number(first: _Made | None, second: _Made | None) -> tuple[bool, Any]:
    """Return whether an operator gives a size or a number, and it, where it is known before."""
    if first is None or second is None:
        return False, None
    one, other = first.value, second.value
    if isinstance(one, torch.Size):
        return True, tuple(one[1:]) if one[1:] == other[1:] else None
    if isinstance(one, int | float | bool):
        return True, one if one == other else None
    if isinstance(one, tuple | list) and all(isinstance(each, int | float) for each in one):
        return True, one if one == other else None
    return False, None


def attribute(module: nn.Module, path: str) -> Any:
    """Return what stands at a path of a module: a parameter, a buffer, a module, a constant."""
    found: Any = module
    for word in path.split("."):
        found = getattr(found, word)
    return found


def _refuse_chance(name: str, module: nn.Module, node: fx.Node) -> None:
    """Refuse operators that draw random numbers in training: ranks would draw others.

    Raises:
        CannotRunError: It is one.
    """
    chance: Any
    if node.op == "call_module":
        called = module.get_submodule(str(node.target))
        chance = _share(called) if _is_of_chance(called) else 0.0
    elif node.op == "call_function" and any(
        word in _function_name(node.target) for word in _CHANCE_FUNCTIONS
    ):
        chance = node.kwargs.get("p", node.args[1] if len(node.args) > 1 else 0.5)
    else:
        return
    if chance:
        raise CannotRunError(
            f"network {name}: {where(node)} draws random numbers in training, and ranks draw "
            "others than one process; give network_args that make its share 0, as {dropout: 0}"
        )


def _share(module: nn.Module) -> float:
    """Return the share of numbers that a module of chance drops, by the names that are in use."""
    found: float = getattr(module, "p", None) or getattr(module, "drop_prob", None) or 0.0
    return found
