"""Layers of a network; a pipeline cuts it into stages between them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from spbench_core.models.compose import concat_shapes, require_equal_shapes
from spbench_core.models.count import COUNTING_BUILDER, Count
from spbench_core.models.parts import Builder, CellOutput, M, MapShape, Part

Flow = tuple[MapShape, ...]
"""The shapes of the tensors between two layers: one, or two after a cell."""


class Layer(ABC):
    """A layer of a network, with a unique name without dots."""

    __slots__ = ()
    name: str

    @abstractmethod
    def output(self, flow: Flow) -> Flow:
        """Return the shapes of its outputs for inputs of these shapes."""

    @abstractmethod
    def build(self, builder: Builder[M], flow: Flow) -> M:
        """Build the layer, for example as a module, for inputs of these shapes.

        A module takes and returns a tensor if the flow has one, and a tuple if it has two.
        """

    @abstractmethod
    def drop_name(self) -> Layer:
        """Return the layer without its name; equal ones compute the same for equal maps."""

    def list_read_inputs(self, inputs: int) -> Sequence[int]:
        """Return the indices of the inputs that it reads itself; by default all."""
        return range(inputs)

    def list_passed_inputs(self, outputs: int) -> Sequence[int | None]:
        """Return for each output the index of the unchanged input, or None."""
        return [None] * outputs

    def count(self, flow: Flow) -> Count:
        """Return its trainable parameters and its multiply-adds for one image."""
        return self.build(COUNTING_BUILDER, flow)


@dataclass(frozen=True)
class Plain(Layer):
    """A layer from one map to one map."""

    name: str
    part: Part

    def output(self, flow: Flow) -> Flow:
        (shape,) = flow
        return (self.part.output(shape),)

    def build(self, builder: Builder[M], flow: Flow) -> M:
        (shape,) = flow
        return self.part.build(builder, shape)

    def drop_name(self) -> Plain:
        return replace(self, name="")


@dataclass(frozen=True)
class Cell(Layer):
    """A cell from an architecture search: concatenated sums of operations.

    Its inputs are the outputs of the two previous cells; the first cell uses its only input twice.
    States 0 and 1 are the prepared inputs. State 2 + i is the sum of operations 2i and 2i + 1.

    Attributes:
        name: Its name.
        prepare: The parts applied to the output of the previous cell, and of the cell before it.
        operations: The operations, each with the state that it reads.
        state_output: The states that are its output.
    """

    name: str
    prepare: tuple[Part, Part]
    operations: tuple[tuple[int, Part], ...]
    state_output: CellOutput

    def output(self, flow: Flow) -> Flow:
        states = self._compute_states(flow)
        output = concat_shapes(*(states[index] for index in self.state_output.concat))
        return (output, flow[0]) if self.state_output.passes_previous else (output,)

    def build(self, builder: Builder[M], flow: Flow) -> M:
        states = self._compute_states(flow)
        parts_and_shapes = zip(self.prepare, (flow[0], flow[-1]), strict=True)
        prepare = [part.build(builder, shape) for part, shape in parts_and_shapes]
        operations = [
            (index, part.build(builder, states[index])) for index, part in self.operations
        ]
        return builder.cell(prepare, operations, self.state_output)

    def drop_name(self) -> Cell:
        return replace(self, name="")

    def _compute_states(self, flow: Flow) -> list[MapShape]:
        parts_and_shapes = zip(self.prepare, (flow[0], flow[-1]), strict=True)
        states = [part.output(shape) for part, shape in parts_and_shapes]
        operation_pairs = zip(self.operations[::2], self.operations[1::2], strict=True)
        for (first_index, first), (second_index, second) in operation_pairs:
            first_output = first.output(states[first_index])
            second_output = second.output(states[second_index])
            states.append(require_equal_shapes(first_output, second_output))
        return states


@dataclass(frozen=True)
class Model:
    """A network for images of one size.

    Attributes:
        name: Its name in messages.
        image: The shape of an image.
        layers: The layers, in their order. The last one returns logits, ``batch x classes``, or for
            each pixel ``batch x classes x rows x cols``.
    """

    name: str
    image: MapShape
    layers: tuple[Layer, ...]

    @cached_property
    def flows(self) -> tuple[Flow, ...]:
        """The input of each layer, and finally the output of the last."""
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
        """Return the model without some tensors between its layers ``first`` and ``last``.

        Args:
            first: The first of the layers.
            last: One past the last of them.
            left_out: The tensors, by their numbers in `routes.TensorTable`. None of these layers
                may read or make them.
        """
        assert not left_out, "only layers that list the inputs they pass on can drop some"
        return self

    def make_layer_key(self, index: int) -> tuple[Layer, Flow]:
        """Return a key that is equal for layers that compute the same."""
        return self.layers[index].drop_name(), self.flows[index]

    @property
    def classes(self) -> int:
        """The number of classes."""
        return self.flows[-1][0].channels

    @property
    def is_segmentation(self) -> bool:
        """Whether it classifies pixels instead of images."""
        return self.flows[-1][0].shape[1:] != (1, 1)

    @property
    def targets_per_image(self) -> int:
        """The number of targets of an image: 1, or its pixels for a segmentation."""
        return self.image.height * self.image.width if self.is_segmentation else 1

    @property
    def parameters(self) -> int:
        """The number of trainable parameters of all layers."""
        return sum(count.parameters for count in self.counts)
