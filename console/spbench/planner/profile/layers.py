"""Profiles: the measured times and sizes of a model, layer by layer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from spbench.planner.errors import PlannerError
from spbench.planner.profile.graph import Edge, find_cycle
from spbench.planner.ranges import MAX_BATCH, SIZES, TIMES_MS
from spbench_core.schedule.timetable import DATA_SHARE


@dataclass(frozen=True, slots=True)
class Origin:
    """The run of ``model.profile`` that measured a profile.

    Attributes:
        model: ``resnet``, ``amoebanet``, or a ``module:callable``.
        params: The parameters of the benchmark that have a value.
        ranks: Ranks that did the same work at the same time.
        threads: Threads per rank.
    """

    model: str
    params: tuple[tuple[str, Any], ...] = ()
    ranks: int = 1
    threads: int = 1


@dataclass(frozen=True, slots=True)
class LayerProfile:
    """One layer at the batch size of its profile.

    Attributes:
        name: Its name in the edges; unique in a profile.
        description: A description for people.
        forward_ms: Milliseconds of its forward pass.
        backward_ms: Milliseconds of its backward pass, for inputs and parameters together.
        activation_bytes: Its output, which crosses a cut if a later stage reads it.
        parameter_bytes: Its parameters, which do not grow with the batch.
        working_bytes: The most additional memory that it needs while it runs and then frees.
        kept_bytes: Memory kept from its forward to its backward pass; None if only the output is
            known, which is then used instead.
        data_ms: Milliseconds of its backward pass without the weight gradients that schedule zb-h1
            computes later; None if unknown.
        weights_ms: Milliseconds of these weight gradients.
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
    def data_and_weights_ms(self) -> tuple[float, float]:
        """Milliseconds of data gradients and of weight gradients, computed separately."""
        if self.data_ms is None or self.weights_ms is None:
            return self.backward_ms * DATA_SHARE, self.backward_ms * (1.0 - DATA_SHARE)
        return self.data_ms, self.weights_ms

    @property
    def kept_or_output_bytes(self) -> float:
        """Bytes kept from its forward to its backward pass: its output's if not recorded."""
        return self.activation_bytes if self.kept_bytes is None else self.kept_bytes


NUMBERS = tuple(
    entry.name for entry in fields(LayerProfile) if entry.name not in ("name", "description")
)
"""The fields of a layer that are numbers."""
PER_BATCH = tuple(name for name in NUMBERS if name != "parameter_bytes")
"""The numbers of a layer that grow with the batch."""


@dataclass(frozen=True, slots=True)
class BatchMeasurement:
    """The layers of a profile, in the same order, at another batch size."""

    batch_size: int
    layers: tuple[LayerProfile, ...]


@dataclass(frozen=True, slots=True)
class Profile:
    """A model as a graph of layers.

    Attributes:
        batch_size: Samples in a batch when the layers were measured.
        edges: By index, from a layer to one that reads its output.
        further_measurements: Measurements at further batch sizes, rising.
        origin: The run that measured it; None if unknown.

    Raises:
        PlannerError: It is empty or cyclic, takes no time, or has an invalid number.
    """

    name: str
    batch_size: int
    layers: tuple[LayerProfile, ...]
    edges: tuple[Edge, ...]
    further_measurements: tuple[BatchMeasurement, ...] = field(default=())
    origin: Origin | None = None

    def __post_init__(self) -> None:
        errors = _find_errors(self)
        if errors:
            raise PlannerError(f"the profile {self.name}: {errors[0]}")

    @property
    def batch_sizes(self) -> tuple[int, ...]:
        """The batch sizes at which the layers were measured, rising."""
        return tuple(
            sorted(
                {
                    self.batch_size,
                    *(measurement.batch_size for measurement in self.further_measurements),
                }
            )
        )

    def scale_layers(self, batch_size: int) -> tuple[LayerProfile, ...]:
        """Return the layers at another batch size.

        With one measurement, everything but the parameters grows in proportion. With several, it
        follows the line between the two nearest measurements. Beyond them that line continues, and
        stays between the outermost measurement and the value in proportion to it.
        """
        if batch_size == self.batch_size:
            return self.layers
        measurements = sorted(
            [BatchMeasurement(self.batch_size, self.layers), *self.further_measurements],
            key=lambda measurement: measurement.batch_size,
        )
        return tuple(
            _scale_layer(
                batch_size,
                [
                    (measurement.batch_size, measurement.layers[index])
                    for measurement in measurements
                ],
            )
            for index in range(len(self.layers))
        )

    def drop_layers(self, dropped: set[int]) -> Profile:
        """Return the profile without some layers, by index, and without their edges.

        Raises:
            PlannerError: No layer that takes time is left.
        """
        remaining = [index for index in range(len(self.layers)) if index not in dropped]
        new_index_by_old = {old_index: new_index for new_index, old_index in enumerate(remaining)}
        edges = tuple(
            (new_index_by_old[source], new_index_by_old[target])
            for source, target in self.edges
            if source in new_index_by_old and target in new_index_by_old
        )
        also = tuple(
            BatchMeasurement(
                measurement.batch_size, tuple(measurement.layers[index] for index in remaining)
            )
            for measurement in self.further_measurements
        )
        layers = tuple(self.layers[index] for index in remaining)
        return Profile(self.name, self.batch_size, layers, edges, also, self.origin)


def find_number_error(name: str, value: float) -> str | None:
    """Return the error of one of the `NUMBERS` of a layer; None if it is valid."""
    if not -math.inf < value < math.inf:  # isfinite cannot take whole numbers of 400 digits
        return "is no finite number"
    if value < 0:
        return "is negative"
    allowed = TIMES_MS if name.endswith("_ms") else SIZES
    return None if allowed.contains(value) else f"is out of range: give {allowed}"


def _find_errors(profile: Profile) -> list[str]:
    if not profile.layers:
        return ["it has no layers"]
    errors = _list_batch_size_errors(profile.batch_size)
    errors += _list_layer_errors(profile.layers)
    for measurement in profile.further_measurements:
        errors += _list_measurement_errors(profile, measurement)
        errors += _list_batch_size_errors(measurement.batch_size)
    further_batch_sizes = [measurement.batch_size for measurement in profile.further_measurements]
    if (
        sorted(set(further_batch_sizes)) != further_batch_sizes
        or profile.batch_size in further_batch_sizes
    ):
        errors.append("its further batch sizes do not rise, or repeat its own")
    return errors or _list_edge_errors(profile)


def _list_batch_size_errors(batch_size: int) -> list[str]:
    if 1 <= batch_size <= MAX_BATCH:
        return []
    return [f"the batch size {batch_size} is not from 1 to {MAX_BATCH}"]


def _list_measurement_errors(profile: Profile, measurement: BatchMeasurement) -> list[str]:
    if [layer.name for layer in measurement.layers] != [layer.name for layer in profile.layers]:
        return [f"its layers at batch size {measurement.batch_size} are not its layers"]
    return _list_layer_errors(measurement.layers)


def _list_layer_errors(layers: Sequence[LayerProfile]) -> list[str]:
    errors = []
    names = set()
    for layer in layers:
        if layer.name in names:
            errors.append(f"duplicate layer {layer.name}")
        names.add(layer.name)
        for name in NUMBERS:
            value = getattr(layer, name)
            if value is not None and (error := find_number_error(name, value)):
                errors.append(f"{name} of {layer.name} {error}")
    if not errors and not any(layer.forward_ms + layer.backward_ms for layer in layers):
        errors.append("its layers take no time")
    return errors


def _list_edge_errors(profile: Profile) -> list[str]:
    count = len(profile.layers)
    for source, target in profile.edges:
        if not (0 <= source < count and 0 <= target < count):
            return [f"the edge from {source} to {target} names a layer that is not there"]
    if len(set(profile.edges)) != len(profile.edges):
        return ["duplicate edge"]
    cycle = [profile.layers[node].name for node in find_cycle(count, profile.edges)]
    return [f"its layers make a cycle: {format_cycle(cycle)}"] if cycle else []


def format_cycle(names: Sequence[str]) -> str:
    """Return a cycle in one line, shortened if it is long: ``a -> b -> a``."""
    shown = [*names[:6], *(["..."] if len(names) > 6 else []), names[0]]
    return " -> ".join(shown)


def _scale_layer(batch_size: int, sizes_and_layers: list[tuple[int, LayerProfile]]) -> LayerProfile:
    scaled: dict[str, Any] = {}
    for name in PER_BATCH:
        sizes_and_numbers = [(size, getattr(layer, name)) for size, layer in sizes_and_layers]
        if all(number is not None for _, number in sizes_and_numbers):
            scaled[name] = _interpolate(batch_size, sizes_and_numbers)
    return replace(sizes_and_layers[0][1], **scaled)


def _interpolate(batch_size: int, sizes_and_numbers: list[tuple[int, float]]) -> float:
    """Return a value at a batch size from its values at others, which rise."""
    first_above = next(
        (index for index, (size, _) in enumerate(sizes_and_numbers) if size >= batch_size),
        len(sizes_and_numbers),
    )
    if len(sizes_and_numbers) == 1:
        return sizes_and_numbers[0][1] * batch_size / sizes_and_numbers[0][0]
    upper_index = min(max(first_above, 1), len(sizes_and_numbers) - 1)
    size_a, number_a = sizes_and_numbers[upper_index - 1]
    size_b, number_b = sizes_and_numbers[upper_index]
    on_line = number_a + (number_b - number_a) * (batch_size - size_a) / (size_b - size_a)
    if first_above == 0:
        # A fixed cost makes small batches dearer than in proportion, never cheaper.
        return min(max(on_line, number_a * batch_size / size_a), max(number_a, 0.0))
    return max(on_line, number_b) if first_above == len(sizes_and_numbers) else on_line
