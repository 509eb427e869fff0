"""PipeDream's profile text, "torchgraph": one node or edge per line.

A node is ``name -- description -- forward_compute_time=F, backward_compute_time=B,
activation_size=A, parameter_size=P`` on one line, times in ms and sizes in bytes. An activation
size can be a list ``[a; b]``, which is summed. A fourth part ``stage_id=N`` is ignored. An edge
begins with a blank: ``<TAB>source -- target``, both named above it. Blank lines are ignored. The
file does not contain the batch size.

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
_STAGE = re.compile(r"stage_id=\d+")


def read_torchgraph(text: str, file: str, name: str, batch_size: int) -> Profile:
    """Return the profile of a text; ``file`` is the file name for errors.

    Raises:
        ProfileError: The text has errors; the exception contains all of them.
        PlannerError: The batch size is not positive.
    """
    draft = _Draft(file)
    for line_number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            draft.read(line_number, line)
    draft.check_text()
    return Profile(name, batch_size, tuple(draft.layers), tuple(draft.edges))


@dataclass(slots=True)
class _Draft:
    """A torchgraph while it is read: layers, edges and errors so far.

    Attributes:
        lines: The line of each node by name.
        positions: The index of each node by name.
    """

    file: str
    layers: list[LayerProfile] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)
    errors: list[Diagnostic] = field(default_factory=list)
    lines: dict[str, int] = field(default_factory=dict)
    positions: dict[str, int] = field(default_factory=dict)
    edge_lines: dict[Edge, int] = field(default_factory=dict)

    def report(self, line: int, message: str, column: int = 1) -> None:
        self.errors.append(Diagnostic(self.file, line, column, message))

    def read(self, line_number: int, line: str) -> None:
        columns = [column.strip() for column in line.strip().split(" -- ")]
        if line[0] in " \t":
            self._read_edge(line_number, columns)
        else:
            self._read_node(line_number, line, columns)

    def _read_node(self, line_number: int, line: str, columns: list[str]) -> None:
        if len(columns) not in (3, 4) or not columns[0]:
            message = "this is no node; write name -- description -- forward_compute_time=..., ..."
            return self.report(line_number, message)
        if len(columns) == 4 and not _STAGE.fullmatch(columns[3]):
            self.report(
                line_number, f"{columns[3]!r} is no stage_id=NUMBER", line.rfind(columns[3]) + 1
            )
        if columns[0] in self.lines:
            first_line = self.lines[columns[0]]
            return self.report(
                line_number, f"duplicate node {columns[0]} (first on line {first_line})"
            )
        self.lines[columns[0]] = line_number
        self.positions[columns[0]] = len(self.layers)
        number_by_field = self._read_numbers(line_number, line, columns[2])
        self.layers.append(LayerProfile(columns[0], columns[1], **number_by_field))
        return None

    def _read_numbers(self, line_number: int, line: str, text: str) -> dict[str, float]:
        number_by_field = dict.fromkeys(_FIELDS.values(), 0.0)
        missing = list(_FIELDS)
        for assignment in text.split(", "):
            field_name, equals, number_text = (side.strip() for side in assignment.partition("="))
            column = line.rfind(assignment) + 1
            if not equals or field_name not in _FIELDS:
                suggestion = did_you_mean(field_name, _FIELDS)
                self.report(
                    line_number, f"{assignment.strip()!r} is no field of a node{suggestion}", column
                )
            elif field_name not in missing:
                self.report(line_number, f"duplicate {field_name}", column)
            else:
                missing.remove(field_name)
                number_by_field[_FIELDS[field_name]] = self._read_value(
                    line_number, column, field_name, number_text
                )
        for field_name in missing:
            self.report(line_number, f"{field_name} is missing")
        return number_by_field

    def _read_value(self, line_number: int, column: int, field_name: str, text: str) -> float:
        is_list = text.startswith("[") and text.endswith("]") and field_name == "activation_size"
        addends = text[1:-1].split(";") if is_list else [text]
        try:
            numbers = [float(addend) for addend in addends]
        except ValueError:
            self.report(line_number, f"{field_name}: {text!r} is no number", column)
            return 0.0
        for addend_number in numbers:
            if error := find_number_error(_FIELDS[field_name], addend_number):
                self.report(line_number, f"{field_name}: {text} {error}", column)
                return 0.0
        return sum(numbers)

    def _read_edge(self, line_number: int, node_names: list[str]) -> None:
        if len(node_names) != 2:
            return self.report(line_number, "this is no edge; write <TAB>name -- name")
        unknown = [name for name in dict.fromkeys(node_names) if name not in self.lines]
        for name in unknown:
            suggestion = did_you_mean(name, self.lines)
            self.report(line_number, f"no node above is called {name!r}{suggestion}")
        if unknown:
            return None
        edge = self.positions[node_names[0]], self.positions[node_names[1]]
        if edge in self.edge_lines:
            first_line = self.edge_lines[edge]
            return self.report(line_number, f"duplicate edge (first on line {first_line})")
        self.edge_lines[edge] = line_number
        self.edges.append(edge)
        return None

    def check_text(self) -> None:
        """Check the whole text, and raise all errors.

        Raises:
            ProfileError: There are errors.
        """
        if not self.layers and not self.errors:
            self.report(1, "the profile has no nodes")
        if not self.errors:
            self._check_cycle()
        if not self.errors and not any(
            layer.forward_ms + layer.backward_ms for layer in self.layers
        ):
            self.report(1, "the nodes take no time: every forward and backward time is 0")
        if self.errors:
            raise ProfileError(self.errors)

    def _check_cycle(self) -> None:
        cycle = find_cycle(len(self.layers), self.edges)
        if cycle:
            line = self.edge_lines[cycle[-1], cycle[0]]
            names = [self.layers[node].name for node in cycle]
            self.report(line, f"this edge closes a cycle: {format_cycle(names)}")
