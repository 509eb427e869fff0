"""Layers of a network, between which a pipeline may cut it into stages."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from spbench_core.models.compose import add_maps, concat_maps
from spbench_core.models.count import COUNTING_BUILDER, Count
from spbench_core.models.parts import Builder, CellOutput, M, Map, Part

Flow = tuple[Map, ...]
"""The shapes between two layers: of one tensor, or of the two that a cell passes on."""


class Layer(ABC):
    """One of a network's layers, by a name without dots that no other has."""

    __slots__ = ()
    name: str

    @abstractmethod
    def output(self, flow: Flow) -> Flow:
        """Return the shapes of its outputs."""

    @abstractmethod
    def build(self, builder: Builder[M], flow: Flow) -> M:
        """Return the module, or count, that the builder makes of it, for inputs of these shapes.

        A module takes and gives a tensor where the flow is of one, and a tuple where it is of two.
        """

    @abstractmethod
    def drop_name(self) -> Layer:
        """Return it without its name: layers that are then equal do the same to equal maps."""

    def list_read_inputs(self, inputs: int) -> Sequence[int]:
        """Return which of its inputs it reads itself, by their places: all, if it says no more."""
        return range(inputs)

    def list_passed_inputs(self, outputs: int) -> Sequence[int | None]:
        """Return the place among its inputs of each output that is one as it came; else None."""
        return [None] * outputs

    def count(self, flow: Flow) -> Count:
        """Return its trainable parameters, and its multiply-adds for one image."""
        return self.build(COUNTING_BUILDER, flow)


@dataclass(frozen=True)
class Plain(Layer):
    """A layer from one map to one map."""

    name: str
    part: Part

    def output(self, flow: Flow) -> Flow:
        (data,) = flow
        return (self.part.output(data),)

    def build(self, builder: Builder[M], flow: Flow) -> M:
        (data,) = flow
        return self.part.build(builder, data)

    def drop_name(self) -> Plain:
        return replace(self, name="")


@dataclass(frozen=True)
class Cell(Layer):
    """A cell of a network that was found by search: sums of two operations, then a concatenation.

    It works on the outputs of the two cells before it; the first cell takes its one input for both.
    These, prepared, are states 0 and 1; the sum of the operations 2i and 2i + 1 is state 2 + i.

    Attributes:
        name: Its name.
        prepare: Applied to the previous cell's output, and to that of the one before.
        operations: Each with the state that it reads.
        places: The states that are its output.
    """

    name: str
    prepare: tuple[Part, Part]
    operations: tuple[tuple[int, Part], ...]
    state_output: CellOutput

    def output(self, flow: Flow) -> Flow:
        states = self._states(flow)
        output = concat_maps(*(states[index] for index in self.state_output.concat))
        return (output, flow[0]) if self.state_output.passes_previous else (output,)

    def build(self, builder: Builder[M], flow: Flow) -> M:
        states = self._states(flow)
        inputs = zip(self.prepare, (flow[0], flow[-1]), strict=True)
        prepare = [part.build(builder, data) for part, data in inputs]
        operations = [
            (index, part.build(builder, states[index])) for index, part in self.operations
        ]
        return builder.cell(prepare, operations, self.state_output)

    def drop_name(self) -> Cell:
        return replace(self, name="")

    def _states(self, flow: Flow) -> list[Map]:
        inputs = zip(self.prepare, (flow[0], flow[-1]), strict=True)
        states = [part.output(data) for part, data in inputs]
        for first, second in zip(self.operations[::2], self.operations[1::2], strict=True):
            one, other = (part.output(states[index]) for index, part in (first, second))
            states.append(add_maps(one, other))
        return states


@dataclass(frozen=True)
class Model:
    """A network for images of one size.

    Attributes:
        name: Its name, for people.
        image: The shape of an image.
        layers: The layers, in their order. The last one gives logits, ``batch x classes``, or of
            each pixel, ``batch x classes x rows x cols``.
    """

    name: str
    image: Map
    layers: tuple[Layer, ...]

    @cached_property
    def flows(self) -> tuple[Flow, ...]:
        """The input of each layer, and after them the output of the last."""
        flows: list[Flow] = [(self.image,)]
        for layer in self.layers:
            flows.append(layer.output(flows[-1]))
        return tuple(flows)

    @cached_property
    def counts(self) -> tuple[Count, ...]:
        """Parameters and multiply-adds of each layer."""
        return tuple(
            layer.count(flow) for layer, flow in zip(self.layers, self.flows, strict=False)
        )

    def drop_tensors(self, first: int, last: int, left_out: Collection[int]) -> Model:
        """Return it with some tensors left out of what its layers from ``first`` to ``last`` get.

        Args:
            first: The first of the layers.
            last: One past the last of them.
            left_out: The tensors, by their numbers in `routes.TensorTable`, none of which any of
                these layers reads or makes.
        """
        assert not left_out, "only layers that say what they pass on can do without it"
        return self

    def make_layer_key(self, index: int) -> tuple[Layer, Flow]:
        """Return what layers that do the same have in common: all but their names."""
        return self.layers[index].drop_name(), self.flows[index]

    @property
    def classes(self) -> int:
        """The number of classes that it tells apart."""
        return self.flows[-1][0].channels

    @property
    def is_segmentation(self) -> bool:
        """Whether it tells classes of pixels apart, not of images."""
        return self.flows[-1][0].shape[1:] != (1, 1)

    @property
    def targets_per_image(self) -> int:
        """The number of targets of an image: its one class, or one for each pixel."""
        return self.image.height * self.image.width if self.is_segmentation else 1

    @property
    def parameters(self) -> int:
        """The trainable parameters of all layers."""
        return sum(count.parameters for count in self.counts)
