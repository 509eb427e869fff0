"""A run of a graph without memory, which shows the effects of each operator.

It shows which operators write into their inputs, which draw random numbers, which tensors share
memory, and which parameters get gradients.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from spbench_core.models.parts import MapShape
from spbench_parallel.errors import CannotRunError
from spbench_parallel.models.imported.forward.copies import copy_without_memory, quiet_fake_tensors
from spbench_parallel.models.imported.loading import describe_error
from spbench_parallel.models.imported.messages import called_module, locate, make_size_error

_IMAGE_COUNT = 3


@dataclass
class Observation:
    """The values and effects of a run without memory.

    Attributes:
        values: The output of each node.
        written_inputs: By node, the inputs that it writes into.
        drawing_nodes: The nodes that draw random numbers.
        learning_names: The names of the parameters that get gradients, in training.
        name_by_storage: The names of parameters and buffers, by their memory.
    """

    values: dict[fx.Node, Any] = field(default_factory=dict)
    written_inputs: dict[fx.Node, list[fx.Node]] = field(default_factory=dict)
    drawing_nodes: set[fx.Node] = field(default_factory=set)
    learning_names: set[str] = field(default_factory=set)
    name_by_storage: dict[int, str] = field(default_factory=dict)


class _DrawDetector(TorchDispatchMode):
    """A mode that records whether an operator has drawn random numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.has_drawn = False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        self.has_drawn |= torch.Tag.nondeterministic_seeded in func.tags
        return func(*args, **(kwargs or {}))


class _ObservingInterpreter(fx.Interpreter):
    """A run that records the effects of each operator."""

    def __init__(self, module: nn.Module, graph: fx.Graph, fake_mode: FakeTensorMode) -> None:
        super().__init__(module, garbage_collect_values=False, graph=graph)
        self.observation = Observation()
        self.current: fx.Node | None = None
        self._fake_mode = fake_mode

    def run_node(self, n: fx.Node) -> Any:
        """Run an operator, and record its effects."""
        self.current = n
        versions_by_input = {
            node: [tensor._version for tensor in list_tensors(self.observation.values.get(node))]
            for node in n.all_input_nodes
        }
        detector = _DrawDetector()
        with detector:
            output = super().run_node(n)
        if isinstance(output, torch.Tensor) and not self._fake_mode.is_our_fake(output):
            output = self._fake_mode.from_tensor(output)
        self.observation.values[n] = output
        written_inputs = [
            node
            for node, before in versions_by_input.items()
            if [tensor._version for tensor in list_tensors(self.observation.values[node])] != before
        ]
        if written_inputs:
            self.observation.written_inputs[n] = written_inputs
        if detector.has_drawn:
            self.observation.drawing_nodes.add(n)
        return output


def observe(
    name: str,
    module: nn.Module,
    graph: fx.Graph,
    image: MapShape,
    *,
    training: bool,
) -> Observation:
    """Return the effects of the operators of a graph; in training with gradients.

    Raises:
        CannotRunError: An operator does not support such images.
    """
    fake_mode = FakeTensorMode(allow_non_fake_inputs=True)
    without_memory = copy_without_memory(name, module, fake_mode).train(training)
    interpreter = _ObservingInterpreter(without_memory, graph, fake_mode)
    try:
        with fake_mode, torch.set_grad_enabled(training), quiet_fake_tensors():
            output = interpreter.run(torch.empty(_IMAGE_COUNT, *image.shape))
    except Exception as error:  # an operator may raise any error for such shapes
        location = "" if interpreter.current is None else f"{locate(interpreter.current)}: "
        if training:
            raise CannotRunError(
                f"network {name}: {location}it fails in training ({describe_error(error)}); let it "
                "train on one process first"
            ) from error
        raise make_size_error(
            name, location, error, image, called_module(module, interpreter.current)
        ) from error
    interpreter.observation.learning_names = _find_learning_names(without_memory, output)
    interpreter.observation.name_by_storage = {
        storage_id(tensor): path
        for path, tensor in (
            *without_memory.named_parameters(),
            *without_memory.named_buffers(),
        )
    }
    return interpreter.observation


def storage_id(tensor: torch.Tensor) -> int:
    """Return a number that tensors with the same memory share."""
    return int(tensor.untyped_storage()._cdata)


def list_tensors(value: Any) -> list[torch.Tensor]:
    """Return the tensors of a value, which may be nested."""
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def _find_learning_names(module: nn.Module, output: Any) -> set[str]:
    """Return the names of the parameters that get gradients from an output."""
    names_by_parameter: dict[int, set[str]] = {}
    for name, tensor in module.named_parameters(remove_duplicate=False):
        names_by_parameter.setdefault(id(tensor), set()).add(name)
    open_functions = [
        tensor.grad_fn for tensor in list_tensors(output) if tensor.grad_fn is not None
    ]
    visited = set(open_functions)
    learning_names = set[str]()
    while open_functions:
        function = open_functions.pop()
        variable = getattr(function, "variable", None)
        learning_names |= names_by_parameter.get(id(variable), set())
        following = [
            next_function
            for next_function, _ in function.next_functions
            if next_function is not None
        ]
        open_functions += [
            next_function for next_function in following if next_function not in visited
        ]
        visited.update(following)
    return learning_names
