"""Annotations of GitHub: what did not pass, at its line of the suite's file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from spbench.record.number_formatting import strip_line_controls
from spbench.record.runs.files import read_file
from spbench.report.formats.case_text import explain_status, list_bad_cases, list_unexplained_errors
from spbench.report.model import CasePart
from spbench.report.recorded import RecordedRun
from spbench.suites.loader import MAX_BYTES
from spbench.suites.yaml_nodes import YamlError, parse_yaml

MOST_ANNOTATIONS = 10
"""GitHub shows so many annotations of a kind in a step, and leaves out the others silently."""


def render_annotations(run: RecordedRun) -> str:
    """Return a line for each case that did not pass, as GitHub reads them from a step's output.

    Beyond ten the last one counts the rest.
    """
    lines = find_case_lines(run)
    file = run.summary.file
    found = [_of_case(case, file, lines) for case in list_bad_cases(run)]
    found += [_command(file, None, "spbench", error) for error in list_unexplained_errors(run)]
    if len(found) > MOST_ANNOTATIONS:
        more = len(found) - MOST_ANNOTATIONS + 1
        found[MOST_ANNOTATIONS - 1 :] = [
            _command(file, None, "spbench", f"and {more} more did not pass")
        ]
    return "".join(f"{line}\n" for line in found)


def find_case_lines(run: RecordedRun) -> Mapping[str, int]:
    """Return the line of each case's entry in the suite as the run has read it, by its name.

    Empty where the suite is not at hand, as beside a report's file.
    """
    try:
        text = read_file(run.summary.folder.path / "suite.yaml", MAX_BYTES).decode()
        entries = parse_yaml(text).root.find_node(("cases",))
    except (OSError, ValueError, YamlError):
        return {}
    nodes = [node for _, node in entries.list_children().values()] if entries else []
    names = ((node.find_node(("name",)), node.mark.line) for node in nodes)
    return {str(name.data): line for name, line in names if name is not None}


def _of_case(case: CasePart, file: str | None, lines: Mapping[str, int]) -> str:
    title = f"{case.id}: {case.status}"
    return _command(file, lines.get(case.name), title, explain_status(case))


def _command(file: str | None, line: int | None, title: str, message: str) -> str:
    place = {"file": _within_here(file)} if file else {}
    place |= {"line": str(line)} if file and line else {}
    words = ",".join(f"{key}={_property(text)}" for key, text in (place | {"title": title}).items())
    return f"::error {words}::{_escaped(message)}"


def _within_here(file: str) -> str:
    """Return a path as it is from here: GitHub knows files by their place in the repository."""
    path = Path(file)
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else file


def _escaped(text: str) -> str:
    plain = strip_line_controls(text.replace("\r", "\n"))
    return plain.replace("%", "%25").replace("\n", "%0A")


def _property(text: str) -> str:
    return _escaped(text).replace(":", "%3A").replace(",", "%2C")
