"""Profile files as pydantic models, ``spbench.profile/1``; see `json_file`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from spbench.planner.profile.graph import Edge, find_cycle
from spbench.planner.profile.layers import (
    BatchMeasurement,
    LayerProfile,
    Origin,
    Profile,
    find_number_error,
    format_cycle,
)
from spbench.planner.ranges import MAX_BATCH, SIZES, TIMES_MS
from spbench.planner.references import (
    ValidationContext,
    get_context,
    make_reference_validator,
    make_unique_validator,
    make_validation_error,
)
from spbench.suites.settings import StrictModel

SCHEMA = "spbench.profile/1"


def _check_number(value: float, info: ValidationInfo) -> float:
    if error := find_number_error(str(info.field_name), value):
        raise ValueError(f"{info.field_name} {error}")
    return value


def _check_edge(names: Any) -> Any:
    if not isinstance(names, list) or len(names) != 2:
        raise ValueError('an edge is a pair of names, ["from", "to"]')
    return names


Number = Annotated[float, Field(allow_inf_nan=True)]
Time = Annotated[Number, AfterValidator(_check_number), WithJsonSchema(TIMES_MS.json_schema())]
Size = Annotated[Number, AfterValidator(_check_number), WithJsonSchema(SIZES.json_schema())]
BatchSize = Annotated[int, Field(ge=1, le=MAX_BATCH)]
NamedEdge = Annotated[
    list[Annotated[str, make_reference_validator("layer")]],
    Field(min_length=2, max_length=2),
    BeforeValidator(_check_edge),
    make_unique_validator(tuple, "duplicate edge"),
]


class RepeatedLayerEntry(StrictModel):
    """A layer at a further batch size, an entry of ``layers`` in ``also``."""

    name: str = Field(min_length=1, description="that of the layer at the first batch size")
    description: str = Field(default="", description="what it is, for people")
    forward_ms: Time = Field(description="milliseconds of its forward pass")
    backward_ms: Time = Field(description="milliseconds of its backward pass")
    activation_bytes: Size = Field(description="its output")
    parameter_bytes: Any = Field(default=0.0, description="not read: the first batch size has it")
    working_bytes: Size | None = Field(
        default=None, description="needed at most while it runs; 0 if left out"
    )
    kept_bytes: Size | None = Field(
        default=None, description="kept from forward until backward; the output if left out"
    )
    data_ms: Time | None = Field(
        default=None,
        description="milliseconds of its backward pass without the gradients of weights that zb-h1"
        " computes later; half of it if left out",
    )
    weights_ms: Time | None = Field(
        default=None, description="milliseconds of these; half of the backward pass if left out"
    )

    def to_layer(self, parameter_bytes: float) -> LayerProfile:
        """Return the layer, with parameters of this size."""
        fields = {field_name: value for field_name, value in self if value is not None}
        return LayerProfile(**fields | {"parameter_bytes": parameter_bytes})


class LayerEntry(RepeatedLayerEntry):
    """A layer, an entry of ``layers``."""

    name: Annotated[str, make_unique_validator(str, "duplicate layer {!r}")] = Field(
        min_length=1, description="what the edges call it; no other layer has it"
    )
    parameter_bytes: Size = Field(description="its parameters")


class MeasuredEntry(StrictModel):
    """The layers at a further batch size, an entry of ``also``."""

    batch_size: BatchSize = Field(description="samples in a batch")
    layers: list[RepeatedLayerEntry] = Field(
        min_length=1, description="the profile's layers in its order"
    )

    @field_validator("layers")
    @classmethod
    def _check_names(
        cls, layers: list[RepeatedLayerEntry], info: ValidationInfo
    ) -> list[RepeatedLayerEntry]:
        order = get_context(info).layer_order
        if order and [layer.name for layer in layers] != order:
            raise ValueError("these must be the profile's layers in its order")
        return layers


class OriginEntry(StrictModel):
    """The run of ``model.profile`` that a profile was measured by."""

    model: str = Field(description="resnet, amoebanet or a module:callable")
    params: dict[str, str | int | Number | bool | dict[str, Any]] = Field(
        default={}, description="the model's parameters, as the benchmark has them"
    )
    ranks: int = Field(default=1, ge=1, description="how many ranks did the same work at once")
    threads: int = Field(default=1, ge=1, description="threads of each")


class ProfileFile(StrictModel):
    """A whole profile file."""

    schema_: Literal["spbench.profile/1"] = Field(alias="schema", description="the format")
    name: str = Field(default_factory=str, description="the file's name if left out")
    batch_size: BatchSize = Field(description="samples in a batch when the layers were measured")
    layers: list[LayerEntry] = Field(
        min_length=1, description="the layers, in an order in which they can run"
    )
    edges: list[NamedEdge] = Field(
        default_factory=list,
        description="the second reads the first one's output; left out, the layers are a chain",
    )
    also: list[MeasuredEntry] = Field(
        default=[], description="the same at further batch sizes, which rise"
    )
    origin: OriginEntry = Field(
        default_factory=lambda: OriginEntry(model=""), description="the model that it is of"
    )

    @field_validator("also")
    @classmethod
    def _check_batch_sizes(
        cls, also: list[MeasuredEntry], info: ValidationInfo
    ) -> list[MeasuredEntry]:
        further_batch_sizes = [measurement.batch_size for measurement in also]
        if (
            sorted(set(further_batch_sizes)) != further_batch_sizes
            or info.data.get("batch_size") in further_batch_sizes
        ):
            raise ValueError("further batch sizes must rise, and not repeat the first")
        return also

    @model_validator(mode="after")
    def _check_layers(self) -> ProfileFile:
        edges = self._edges()
        if cycle := find_cycle(len(self.layers), edges):
            cycle_names = format_cycle([self.layers[node].name for node in cycle])
            closing_edge = edges.index((cycle[-1], cycle[0]))
            raise make_validation_error(
                [(("edges", closing_edge), f"this edge closes a cycle: {cycle_names}")]
            )
        if not any(layer.forward_ms + layer.backward_ms for layer in self.layers):
            raise make_validation_error([(("layers",), "the layers take no time")])
        return self

    def _edges(self) -> list[Edge]:
        """Return the edges by layer index; a chain if the file has no edges."""
        if "edges" not in self.model_fields_set:
            return [(index - 1, index) for index in range(1, len(self.layers))]
        position = {layer.name: index for index, layer in enumerate(self.layers)}
        return [(position[source], position[target]) for source, target in self.edges]

    @classmethod
    def read(cls, data: object) -> ProfileFile:
        """Return the model of a file's data.

        Raises:
            ValidationError: There are errors; the exception contains all of them.
        """
        layers = data.get("layers") if isinstance(data, dict) else None
        entries = layers if isinstance(layers, list) else []
        layer_names = [entry.get("name") for entry in entries if isinstance(entry, dict)]
        names = [name for name in layer_names if isinstance(name, str)]
        context = ValidationContext({"layer": set(names)} if names else {}, names)
        return cls.model_validate(data, context=context)

    def to_profile(self, name: str) -> Profile:
        """Return the profile; ``name`` is used if the file does not contain one."""
        parameter_bytes = [layer.parameter_bytes for layer in self.layers]
        origin = Origin(**dict(self.origin) | {"params": tuple(self.origin.params.items())})
        return Profile(
            self.name if "name" in self.model_fields_set else name,
            self.batch_size,
            _build_layers(self.layers, parameter_bytes),
            tuple(self._edges()),
            tuple(
                BatchMeasurement(
                    measurement.batch_size, _build_layers(measurement.layers, parameter_bytes)
                )
                for measurement in self.also
            ),
            origin if "origin" in self.model_fields_set else None,
        )


def _build_layers(
    entries: Sequence[RepeatedLayerEntry], parameter_bytes: list[float]
) -> tuple[LayerProfile, ...]:
    return tuple(
        entry.to_layer(layer_parameter_bytes)
        for entry, layer_parameter_bytes in zip(entries, parameter_bytes, strict=True)
    )
