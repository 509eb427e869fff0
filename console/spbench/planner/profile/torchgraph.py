"""PipeDream's profile text, "torchgraph": one node or edge a line.

A node is ``name -- description -- forward_compute_time=F, backward_compute_time=B,
activation_size=A, parameter_size=P`` on one line, times in ms and sizes in bytes; a size may be a
list ``[a; b]``, which is summed; a fourth part ``stage_id=N`` is read over. An edge begins with a
blank: ``<TAB>name -- name``, from and to, both named above it. Blank lines are nothing.
The batch size is not in the file.

Source: msr-fiddle/pipedream, graph/graph.py, ``Graph.from_str``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from spbench.errors import Diagnostic, did_you_mean
from spbench.planner.errors import ProfileError
from spbench.planner.profile.graph import Edge, find_cycle
from spbench.planner.profile.layers import LayerProfile, Profile, find_number_error, format_cycle

_FIELDS = {
    "forward_compute_time": "forward_ms",
    "backward_compute_time": "backward_ms",
    "activation_size": "activation_bytes",
    "parameter_size": "parameter_bytes",
}
_NAME = re.compile(r"\S+")
_STAGE = re.compile(r"stage_id=\d+")


def read_torchgraph(text: str, file: str, name: str, batch_size: int) -> Profile:
    """Return the profile of a text; ``file`` is what the errors name.

    Raises:
        ProfileError: The text has errors; it holds them all.
        PlannerError: The batch size is not positive.
    """
    draft = _Draft(file)
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            draft.read(number, line)
    draft.check_whole()
    return Profile(name, batch_size, tuple(draft.layers), tuple(draft.edges))


@dataclass(slots=True)
class _Draft:
    """A torchgraph while it is read: nodes and edges so far, and the errors."""

    file: str
    layers: list[LayerProfile] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)
    found: list[Diagnostic] = field(default_factory=list)
    lines: dict[str, int] = field(default_factory=dict)
    places: dict[str, int] = field(default_factory=dict)
    edge_lines: dict[Edge, int] = field(default_factory=dict)

    def blame(self, line: int, message: str, column: int = 1) -> None:
        self.found.append(Diagnostic(self.file, line, column, message))

    def read(self, number: int, line: str) -> None:
        parts = [part.strip() for part in line.strip().split(" -- ")]
        if line[0] in " \t":
            self._read_edge(number, parts)
        else:
            self._read_node(number, line, parts)

    def _read_node(self, number: int, line: str, parts: list[str]) -> None:
        if len(parts) not in (3, 4) or not parts[0]:
            message = "this is no node; write name -- description -- forward_compute_time=..., ..."
            return self.blame(number, message)
        if len(parts) == 4 and not _STAGE.fullmatch(parts[3]):
            self.blame(number, f"{parts[3]!r} is no stage_id=NUMBER", line.rfind(parts[3]) + 1)
        if parts[0] in self.lines:
            first = self.lines[parts[0]]
            return self.blame(number, f"duplicate node {parts[0]} (first on line {first})")
        self.lines[parts[0]] = number
        self.places[parts[0]] = len(self.layers)
        numbers = self._numbers(number, line, parts[2])
        self.layers.append(LayerProfile(parts[0], parts[1], **numbers))
        return None

    def _numbers(self, number: int, line: str, text: str) -> dict[str, float]:
        values = dict.fromkeys(_FIELDS.values(), 0.0)
        missing = list(_FIELDS)
        for pair in text.split(", "):
            key, equals, written = (part.strip() for part in pair.partition("="))
            column = line.rfind(pair) + 1
            if not equals or key not in _FIELDS:
                near = did_you_mean(key, _FIELDS)
                self.blame(number, f"{pair.strip()!r} is no field of a node{near}", column)
            elif key not in missing:
                self.blame(number, f"duplicate {key}", column)
            else:
                missing.remove(key)
                values[_FIELDS[key]] = self._value(number, column, key, written)
        for key in missing:
            self.blame(number, f"{key} is missing")
        return values

    def _value(self, number: int, column: int, key: str, written: str) -> float:
        listed = written.startswith("[") and written.endswith("]") and key == "activation_size"
        words = written[1:-1].split(";") if listed else [written]
        try:
            values = [float(word) for word in words]
        except ValueError:
            self.blame(number, f"{key}: {written!r} is no number", column)
            return 0.0
        for value in values:
            if wrong := find_number_error(_FIELDS[key], value):
                self.blame(number, f"{key}: {written} {wrong}", column)
                return 0.0
        return sum(values)

    def _read_edge(self, number: int, parts: list[str]) -> None:
        if len(parts) != 2:
            return self.blame(number, "this is no edge; write <TAB>name -- name")
        unknown = [name for name in dict.fromkeys(parts) if name not in self.lines]
        for name in unknown:
            near = did_you_mean(name, self.lines)
            self.blame(number, f"no node above is called {name!r}{near}")
        if unknown:
            return None
        edge = self.places[parts[0]], self.places[parts[1]]
        if edge in self.edge_lines:
            first = self.edge_lines[edge]
            return self.blame(number, f"duplicate edge (first on line {first})")
        self.edge_lines[edge] = number
        self.edges.append(edge)
        return None

    def check_whole(self) -> None:
        """Raise what was found, or what only the whole text shows."""
        if not self.layers and not self.found:
            self.blame(1, "the profile has no nodes")
        if not self.found:
            self._check_cycle()
        if not self.found and not any(each.forward_ms + each.backward_ms for each in self.layers):
            self.blame(1, "the nodes take no time: every forward and backward time is 0")
        if self.found:
            raise ProfileError(self.found)

    def _check_cycle(self) -> None:
        cycle = find_cycle(len(self.layers), self.edges)
        if cycle:
            line = self.edge_lines[cycle[-1], cycle[0]]
            names = [self.layers[node].name for node in cycle]
            self.blame(line, f"this edge closes a cycle: {format_cycle(names)}")
