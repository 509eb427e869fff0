"""Profiles: the measured times and sizes of a model, layer by layer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from spbench.planner.errors import PlannerError
from spbench.planner.profile.graph import Edge, find_cycle
from spbench.planner.profile.origin import Origin
from spbench.planner.ranges import MAX_BATCH, SIZES, TIMES_MS
from spbench_core.schedule.timetable import DATA_SHARE


@dataclass(frozen=True, slots=True)
class LayerProfile:
    """One layer at the batch size of its profile.

    Attributes:
        name: What the edges call it; one layer of a profile has it.
        description: What it is, for people.
        forward_ms: Milliseconds of its forward pass.
        backward_ms: Milliseconds of its backward pass, for input and parameters together.
        activation_bytes: Its output: what crosses a cut when a later stage reads it.
        parameter_bytes: Its parameters; they do not grow with the batch.
        working_bytes: What it needs at most beside that while it runs, and gives back.
        kept_bytes: What is kept from its forward until its backward pass; None where only the
            output is known, which then stands for it.
        data_ms: Milliseconds of its backward pass without the gradients of weights that schedule
            zb-h1 computes later; None where that is not known.
        weights_ms: Milliseconds of these.
    """

    name: str
    description: str
    forward_ms: float
    backward_ms: float
    activation_bytes: float
    parameter_bytes: float
    working_bytes: float = 0.0
    kept_bytes: float | None = None
    data_ms: float | None = None
    weights_ms: float | None = None

    @property
    def parts_ms(self) -> tuple[float, float]:
        """Milliseconds of gradients of data and of weights, where they are computed apart."""
        if self.data_ms is None or self.weights_ms is None:
            return self.backward_ms * DATA_SHARE, self.backward_ms * (1.0 - DATA_SHARE)
        return self.data_ms, self.weights_ms

    @property
    def held_bytes(self) -> float:
        """Bytes kept from its forward until its backward pass."""
        return self.activation_bytes if self.kept_bytes is None else self.kept_bytes


NUMBERS = tuple(
    each.name for each in fields(LayerProfile) if each.name not in ("name", "description")
)
"""The fields of a layer that are numbers."""
PER_BATCH = tuple(name for name in NUMBERS if name != "parameter_bytes")
"""Those of them that grow with the batch."""


@dataclass(frozen=True, slots=True)
class BatchMeasurement:
    """The same layers, in the same order, at another batch size."""

    batch_size: int
    layers: tuple[LayerProfile, ...]


@dataclass(frozen=True, slots=True)
class Profile:
    """A model as a graph of layers.

    Attributes:
        batch_size: Samples in a batch when the layers were measured.
        edges: By index, from a layer to one that reads its output.
        also: What was measured at further batch sizes, rising.
        origin: Which of spbench's models it is of; None where nobody knows.

    Raises:
        PlannerError: It is empty or cyclic, takes no time, or has a number that cannot be.
    """

    name: str
    batch_size: int
    layers: tuple[LayerProfile, ...]
    edges: tuple[Edge, ...]
    also: tuple[BatchMeasurement, ...] = field(default=())
    origin: Origin | None = None

    def __post_init__(self) -> None:
        wrong = next(iter(_wrong(self)), None)
        if wrong:
            raise PlannerError(f"the profile {self.name}: {wrong}")

    @property
    def batch_sizes(self) -> tuple[int, ...]:
        """The batch sizes at which the layers were measured, rising."""
        return tuple(sorted({self.batch_size, *(point.batch_size for point in self.also)}))

    def rescale(self, batch_size: int) -> Profile:
        """Return the profile at another batch size; its layers are those of `layers_at`."""
        if batch_size == self.batch_size:
            return self
        return replace(self, batch_size=batch_size, layers=self.scale_layers(batch_size), also=())

    def scale_layers(self, batch_size: int) -> tuple[LayerProfile, ...]:
        """Return the layers at another batch size.

        With one measurement everything but the parameters grows in proportion. With several it
        follows the line between the two that are nearest; beyond them that line goes on, and
        stays between the outermost measurement and what is in proportion to it.
        """
        if batch_size == self.batch_size:
            return self.layers
        points = sorted(
            [BatchMeasurement(self.batch_size, self.layers), *self.also],
            key=lambda point: point.batch_size,
        )
        return tuple(
            _layer_at(batch_size, [(point.batch_size, point.layers[index]) for point in points])
            for index in range(len(self.layers))
        )

    def drop_layers(self, dropped: set[int]) -> Profile:
        """Return the profile without some layers, by index, and without their edges.

        Raises:
            PlannerError: Nothing is left that takes time.
        """
        kept = [index for index in range(len(self.layers)) if index not in dropped]
        place = {index: at for at, index in enumerate(kept)}
        return Profile(
            self.name,
            self.batch_size,
            tuple(self.layers[index] for index in kept),
            tuple((place[a], place[b]) for a, b in self.edges if a in place and b in place),
            tuple(
                BatchMeasurement(point.batch_size, tuple(point.layers[index] for index in kept))
                for point in self.also
            ),
            self.origin,
        )


def find_number_error(name: str, value: float) -> str | None:
    """Return what is wrong with one of the `NUMBERS` of a layer; None where nothing is."""
    if not -math.inf < value < math.inf:  # isfinite cannot take whole numbers of 400 digits
        return "is no finite number"
    if value < 0:
        return "is negative"
    allowed = TIMES_MS if name.endswith("_ms") else SIZES
    return None if allowed.contains(value) else f"is out of range: give {allowed}"


def _wrong(profile: Profile) -> list[str]:
    if not profile.layers:
        return ["it has no layers"]
    found = _wrong_size(profile.batch_size)
    found += _wrong_layers(profile.layers)
    for point in profile.also:
        found += _wrong_measurement(profile, point)
        found += _wrong_size(point.batch_size)
    sizes = [point.batch_size for point in profile.also]
    if sorted(set(sizes)) != sizes or profile.batch_size in sizes:
        found.append("its further batch sizes do not rise, or repeat its own")
    return found or _wrong_edges(profile)


def _wrong_size(size: int) -> list[str]:
    wrong = f"the batch size {size} is not from 1 to {MAX_BATCH}"
    return [] if 1 <= size <= MAX_BATCH else [wrong]


def _wrong_measurement(profile: Profile, point: BatchMeasurement) -> list[str]:
    if [layer.name for layer in point.layers] != [layer.name for layer in profile.layers]:
        return [f"its layers at batch size {point.batch_size} are not its layers"]
    return _wrong_layers(point.layers)


def _wrong_layers(layers: Sequence[LayerProfile]) -> list[str]:
    found = []
    names = set()
    for layer in layers:
        if layer.name in names:
            found.append(f"duplicate layer {layer.name}")
        names.add(layer.name)
        for name in NUMBERS:
            value = getattr(layer, name)
            if value is not None and (wrong := find_number_error(name, value)):
                found.append(f"{name} of {layer.name} {wrong}")
    if not found and not any(layer.forward_ms + layer.backward_ms for layer in layers):
        found.append("its layers take no time")
    return found


def _wrong_edges(profile: Profile) -> list[str]:
    count = len(profile.layers)
    for source, target in profile.edges:
        if not (0 <= source < count and 0 <= target < count):
            return [f"the edge from {source} to {target} names a layer that is not there"]
    if len(set(profile.edges)) != len(profile.edges):
        return ["duplicate edge"]
    cycle = [profile.layers[node].name for node in find_cycle(count, profile.edges)]
    return [f"its layers make a cycle: {format_cycle(cycle)}"] if cycle else []


def format_cycle(names: Sequence[str]) -> str:
    """Return a cycle in one line, shortened where it is long: ``a -> b -> a``."""
    shown = [*names[:6], *(["..."] if len(names) > 6 else []), names[0]]
    return " -> ".join(shown)


def _layer_at(batch_size: int, points: list[tuple[int, LayerProfile]]) -> LayerProfile:
    layer = points[0][1]
    changed: dict[str, Any] = {}
    for name in PER_BATCH:
        values = [(size, getattr(each, name)) for size, each in points]
        if all(value is not None for _, value in values):
            changed[name] = _value_at(batch_size, values)
    return replace(layer, **changed)


def _value_at(batch_size: int, points: list[tuple[int, float]]) -> float:
    """Return a value at a batch size from its values at others, which rise."""
    above = next((at for at, (size, _) in enumerate(points) if size >= batch_size), len(points))
    if len(points) == 1:
        return points[0][1] * batch_size / points[0][0]
    near = min(max(above, 1), len(points) - 1)
    (size_a, a) = points[near - 1]
    (size_b, b) = points[near]
    line = a + (b - a) * (batch_size - size_a) / (size_b - size_a)
    if above == 0:  # a fixed cost makes small batches dearer than in proportion, never cheaper
        return min(max(line, a * batch_size / size_a), max(a, 0.0))
    return max(line, b) if above == len(points) else line
