"""Plain data as JSON has it to a profile, with every error of it; see `profile_json`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from spbench.errors import did_you_mean
from spbench.planner.profile.graph import Edge, find_cycle
from spbench.planner.profile.layers import (
    NUMBERS,
    PER_BATCH,
    BatchMeasurement,
    LayerProfile,
    Profile,
    cycle_text,
    wrong_number,
)
from spbench.planner.profile.origin import Origin, read_origin
from spbench.planner.ranges import MAX_BATCH
from spbench.suites.yaml_nodes import KeyPath

SCHEMA = "spbench.profile/1"

_KEYS = {"schema", "name", "batch_size", "layers", "edges", "also", "origin"}
_OPTIONAL = {"working_bytes": 0.0, "kept_bytes": None}
_NEEDED = tuple(name for name in NUMBERS if name not in _OPTIONAL)


@dataclass(slots=True)
class ProfileReader:
    """Reads a profile from plain data.

    Attributes:
        found: Every error, with the path of what is wrong.
    """

    found: list[tuple[KeyPath, str]] = field(default_factory=list)

    def _blame(self, path: KeyPath, message: str) -> None:
        self.found.append((path, message))

    def profile(self, data: Any, name: str) -> Profile | None:
        """Return the profile; None where there are errors."""
        if not isinstance(data, dict):
            self._blame((), f"a profile is an object that begins with 'schema': '{SCHEMA}'")
            return None
        if data.get("schema") != SCHEMA:
            self._blame(("schema",), f"the schema must be {SCHEMA!r}")
        self._known(data, _KEYS, ())
        batch_size = self._batch_size(data, ())
        layers = self._layers(data, (), NUMBERS, None)
        edges = self._edges(data, layers)
        also = self._also(data, layers)
        origin = self._origin(data)
        given = data.get("name", name)
        if not isinstance(given, str):
            self._blame(("name",), "the name must be text")
        self._check_sizes(batch_size, also)
        self._check_graph(layers, edges)
        if self.found:
            return None
        return Profile(given, batch_size, layers, tuple(edges), tuple(also), origin)

    def _origin(self, data: Mapping[str, Any]) -> Origin | None:
        try:
            return read_origin(data["origin"]) if "origin" in data else None
        except ValueError as error:
            self._blame(("origin",), str(error))
            return None

    def _known(self, data: Mapping[str, Any], keys: set[str], path: KeyPath) -> None:
        for key in data:
            if key not in keys:
                self._blame((*path, key), f"{key!r} is no key here{did_you_mean(key, keys)}")

    def _batch_size(self, data: Mapping[str, Any], path: KeyPath) -> int:
        value = data.get("batch_size")
        if type(value) is not int or not 1 <= value <= MAX_BATCH:
            wrong = f"batch_size must be a whole number from 1 to {MAX_BATCH}"
            self._blame((*path, "batch_size"), wrong)
            return 1
        return value

    def _layers(
        self,
        data: Mapping[str, Any],
        path: KeyPath,
        numbers: tuple[str, ...],
        like: tuple[LayerProfile, ...] | None,
    ) -> tuple[LayerProfile, ...]:
        path = (*path, "layers")
        entries = data.get("layers")
        if not isinstance(entries, list) or not entries:
            self._blame(path, "layers must be a list of at least one layer")
            return ()
        lines: dict[str, int] = {}
        layers = []
        for index, entry in enumerate(entries):
            base = like[index] if like and index < len(like) else None
            layer = self._layer(entry, (*path, index), numbers, base)
            if layer is not None and lines.setdefault(layer.name, index) != index:
                self._blame((*path, index, "name"), f"the layer {layer.name!r} stands twice")
            layers += [layer] if layer else []
        return tuple(layers)

    def _layer(
        self, entry: Any, path: KeyPath, numbers: tuple[str, ...], base: LayerProfile | None
    ) -> LayerProfile | None:
        if not isinstance(entry, dict):
            self._blame(path, "a layer is an object with a name, times and sizes")
            return None
        self._known(entry, {"name", "description", *NUMBERS}, path)
        name, description = entry.get("name"), entry.get("description", "")
        if not isinstance(name, str) or not name:
            self._blame((*path, "name"), "a layer needs a name")
            name = ""
        if not isinstance(description, str):
            self._blame((*path, "description"), "the description must be text")
        given = {key: self._number(entry, key, path) for key in numbers if self._stands(entry, key)}
        for key in _NEEDED:
            if key in numbers and key not in entry:
                self._blame((*path, key), f"{key} is missing")
        values = {key: given.get(key, _OPTIONAL.get(key, 0.0)) for key in NUMBERS}
        if base is not None:
            values["parameter_bytes"] = base.parameter_bytes
        return LayerProfile(name, str(description), **values)  # type: ignore[arg-type]

    @staticmethod
    def _stands(entry: Mapping[str, Any], key: str) -> bool:
        return key in entry and not (key in _OPTIONAL and entry[key] is None)

    def _number(self, entry: Mapping[str, Any], key: str, path: KeyPath) -> float:
        value = entry[key]
        if type(value) not in (int, float):
            self._blame((*path, key), f"{key} must be a number")
            return 0.0
        if wrong := wrong_number(key, value):
            self._blame((*path, key), f"{key} {wrong}")
            return 0.0
        return float(value)

    def _edges(self, data: Mapping[str, Any], layers: tuple[LayerProfile, ...]) -> list[Edge]:
        entries = data.get("edges")
        if "edges" not in data:
            return [(index - 1, index) for index in range(1, len(layers))]
        if not isinstance(entries, list):
            self._blame(("edges",), "edges must be a list of pairs of names")
            return []
        if not layers:
            return []  # there are errors, and every name would be another one
        places = {layer.name: index for index, layer in enumerate(layers)}
        edges: dict[Edge, int] = {}
        for index, entry in enumerate(entries):
            edge = self._edge(entry, ("edges", index), places)
            if edge is not None and edges.setdefault(edge, index) != index:
                self._blame(("edges", index), "the edge stands twice")
        return list(edges)

    def _edge(self, entry: Any, path: KeyPath, places: Mapping[str, int]) -> Edge | None:
        pair = isinstance(entry, list) and len(entry) == 2
        if not pair or not all(isinstance(name, str) for name in entry):
            self._blame(path, 'an edge is a pair of names, ["from", "to"]')
            return None
        unknown = [name for name in dict.fromkeys(entry) if name not in places]
        for name in unknown:
            self._blame(path, f"no layer is called {name!r}{did_you_mean(name, places)}")
        return None if unknown else (places[entry[0]], places[entry[1]])

    def _also(
        self, data: Mapping[str, Any], layers: tuple[LayerProfile, ...]
    ) -> list[BatchMeasurement]:
        entries = data.get("also", [])
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            self._blame(("also",), "also must be a list of objects with batch_size and layers")
            return []
        points = []
        for index, entry in enumerate(entries):
            path: KeyPath = ("also", index)
            self._known(entry, {"batch_size", "layers"}, path)
            size = self._batch_size(entry, path)
            others = self._layers(entry, path, PER_BATCH, layers)
            if layers and [layer.name for layer in others] != [layer.name for layer in layers]:
                self._blame((*path, "layers"), "these must be the profile's layers in its order")
            points.append(BatchMeasurement(size, others))
        return points

    def _check_sizes(self, batch_size: int, also: list[BatchMeasurement]) -> None:
        sizes = [point.batch_size for point in also]
        if sorted(set(sizes)) != sizes or batch_size in sizes:
            self._blame(("also",), "further batch sizes must rise, and not repeat the first")

    def _check_graph(self, layers: tuple[LayerProfile, ...], edges: list[Edge]) -> None:
        if self.found:
            return
        cycle = find_cycle(len(layers), edges)
        if cycle:
            names = [layers[node].name for node in cycle]
            closing = edges.index((cycle[-1], cycle[0]))
            self._blame(("edges", closing), f"this edge closes a cycle: {cycle_text(names)}")
        elif not any(layer.forward_ms + layer.backward_ms for layer in layers):
            self._blame(("layers",), "the layers take no time")
