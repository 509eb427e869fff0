"""GitHub annotations: cases that did not pass, at their lines in the suite."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from spbench.record.number_formatting import replace_line_controls
from spbench.record.runs.files import read_file
from spbench.report.formats.case_text import explain_status, list_bad_cases, list_unexplained_errors
from spbench.report.model import CasePart
from spbench.report.recorded import RecordedRun
from spbench.suites.loader import MAX_BYTES
from spbench.suites.yaml_nodes import YamlError, parse_yaml

MAX_ANNOTATIONS = 10
"""The number of annotations of a kind that GitHub shows per step; it drops others silently."""


def render_annotations(run: RecordedRun) -> str:
    """Return a workflow command of GitHub for each case that did not pass.

    With more than ten, the last one has the number of further cases.
    """
    lines = find_case_lines(run)
    file = run.summary.file
    commands = [_annotate_case(case, file, lines) for case in list_bad_cases(run)]
    commands += [
        _render_command(file, None, "spbench", error) for error in list_unexplained_errors(run)
    ]
    if len(commands) > MAX_ANNOTATIONS:
        hidden_count = len(commands) - MAX_ANNOTATIONS + 1
        commands[MAX_ANNOTATIONS - 1 :] = [
            _render_command(file, None, "spbench", f"and {hidden_count} more did not pass")
        ]
    return "".join(f"{command}\n" for command in commands)


def find_case_lines(run: RecordedRun) -> Mapping[str, int]:
    """Return the line of each case's entry in the run's copy of the suite, by name.

    It is empty if there is no copy, for example next to a single report file.
    """
    try:
        text = read_file(run.summary.folder.path / "suite.yaml", MAX_BYTES).decode()
        entries = parse_yaml(text).root.find_node(("cases",))
    except (OSError, ValueError, YamlError):
        return {}
    nodes = [node for _, node in entries.list_children().values()] if entries else []
    names_and_lines = ((node.find_node(("name",)), node.mark.line) for node in nodes)
    return {str(name.data): line for name, line in names_and_lines if name is not None}


def _annotate_case(case: CasePart, file: str | None, lines: Mapping[str, int]) -> str:
    title = f"{case.id}: {case.status_text}"
    return _render_command(file, lines.get(case.name), title, explain_status(case))


def _render_command(file: str | None, line: int | None, title: str, message: str) -> str:
    properties = {}
    if file:
        properties["file"] = _make_relative(file)
        if line:
            properties["line"] = str(line)
    properties["title"] = title
    fields = ",".join(f"{name}={_escape_property(text)}" for name, text in properties.items())
    return f"::error {fields}::{_escape_message(message)}"


def _make_relative(file: str) -> str:
    """Return a path relative to the current folder, the repository in GitHub's CI."""
    path = Path(file)
    folder = Path.cwd()
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else file


def _escape_message(text: str) -> str:
    plain = replace_line_controls(text.replace("\r", "\n"))
    return plain.replace("%", "%25").replace("\n", "%0A")


def _escape_property(text: str) -> str:
    return _escape_message(text).replace(":", "%3A").replace(",", "%2C")
