"""Facts about a case, shown next to its launch command."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from rich.style import Style
from rich.text import Text

from spbench.engine.run_estimate import CaseEstimate, format_estimate
from spbench.errors import UsageError
from spbench.tui.suites.case_rows import ALL_SLOTS

if TYPE_CHECKING:
    from spbench.suites.case import Case, Expectation
    from spbench.suites.edit.outline import Outline

_QUIET = Style(dim=True)
_STRONG = Style(bold=True)
_PARAM_SECTIONS = ("params", "matrix", "zip")
"""The keys of a case with parameters."""
_GAP = 3
"""Cells between two columns of parameters."""
_INHERITED = " (suite default)"


class CaseFacts(NamedTuple):
    """The values of a case, and how it is judged: its metrics, checks and faults."""

    values: Text
    judgement: Text


def render_case_facts(
    case: Case,
    estimate: CaseEstimate | None,
    entry_names: Set[str] = frozenset(),
    inherited: Set[str] = frozenset(),
    width: int = 0,
) -> CaseFacts:
    """Return the duration, ranks and parameters of a case, and its checks and faults.

    Parameters that the suite sets are bold. Call it in a thread: it loads the catalog.

    Args:
        case: The case.
        estimate: Its estimated duration.
        entry_names: The names of the parameters that it sets itself.
        inherited: The names of the values that it inherits from the suite.
        width: The cells in which parameters are placed in columns.
    """
    ranks = ALL_SLOTS if case.np is None else f"{case.np:,}"
    facts = {
        "duration": _describe_duration(estimate),
        "ranks": f"{ranks}{_INHERITED if 'np' in inherited else ''}",
        "repeats": f"{case.repeat}{_INHERITED if 'repeat' in inherited else ''}",
    }
    text = Text(f"{case.entry.summary}\n")
    for label, fact in facts.items():
        if fact:
            text.append(f"{label:<10}", _QUIET).append(f"{fact}\n")
    params = _render_params(case, entry_names | inherited, inherited, width)
    _append_section(text, "parameters (bold: set in the suite)", params)
    judgement = Text()
    sections = (
        ("metrics", Text(", ".join(_list_metric_names(case)))),
        ("checks", Text(", ".join(case.entry.list_checks(dict(case.params))))),
        ("expectations", Text(", ".join(map(_format_expectation, case.expect)))),
        ("faults to plant with F7", Text(_list_faults(case))),
    )
    for title, content in sections:
        _append_section(judgement, title, content)
    return CaseFacts(text, judgement)


def read_case_facts(text: str, case: Case, estimate: CaseEstimate | None, width: int) -> CaseFacts:
    """Return the facts about a case of a text; see `render_case_facts`."""
    entry_names = find_entry_names(text, case)
    inherited = find_inherited_names(text, case)
    return render_case_facts(case, estimate, entry_names, inherited, width)


def _append_section(text: Text, title: str, content: Text) -> None:
    if content:
        text.append(f"\n{title}\n", _QUIET).append_text(content).append("\n")


def _list_metric_names(case: Case) -> list[str]:
    from spbench.suites.expectations import list_metrics

    return [metric.name for metric in list_metrics(case.entry, case.params)]


def find_entry_names(text: str, case: Case) -> Set[str]:
    """Return the names of parameters that the entry of a case sets or sweeps."""
    outline = _read_outline(text)
    index = None if outline is None else outline.find_entry(case.line)
    if outline is None or index is None:
        return frozenset()
    data = outline.items[index].data
    keys = (key for section in _PARAM_SECTIONS for key in data.get(section) or ())
    params = (case.entry.find_param(key) for key in keys)
    return frozenset(param.name for param in params if param is not None)


@lru_cache(maxsize=1)  # the cases of a text are selected one after another
def _read_outline(text: str) -> Outline | None:
    from spbench.suites.edit.outline import Outline

    try:
        return Outline(text)
    except UsageError:
        return None


def find_inherited_names(text: str, case: Case) -> Set[str]:
    """Return the names of values that a case inherits from the suite."""
    if "defaults:" not in text:  # so that a large suite is not parsed again
        return frozenset()
    from spbench.suites.defaults import select_inherited

    outline = _read_outline(text)
    index = None if outline is None else outline.find_entry(case.line)
    if outline is None or index is None:
        return frozenset()
    defaults = outline.document.root.data.get("defaults")
    inherited = select_inherited(defaults, outline.items[index].data)
    params = map(case.entry.find_param, inherited.get("params", {}))
    return {*inherited, *(param.name for param in params if param is not None)}


def _describe_duration(estimate: CaseEstimate | None) -> str:
    if estimate is None or estimate.own_seconds is None:
        return ""
    text = f"{estimate.own_text} {estimate.source.value}"
    if estimate.start_seconds <= 0:
        return text
    return f"{text}, plus {format_estimate(estimate.start_seconds)} to start"


def _render_params(case: Case, changed: Set[str], inherited: Set[str], width: int) -> Text:
    """Return the parameters in columns, first those that the suite sets."""
    value_by_name = dict(_list_param_texts(case))
    if not value_by_name:
        return Text()
    names = sorted(value_by_name, key=lambda name: name not in changed)
    name_width = max(map(len, names)) + 1
    cells = []
    for name in names:
        cell = Text().append(f"{name:<{name_width}}", _QUIET)
        cell.append(value_by_name[name], _STRONG if name in changed else None)
        cells.append(cell.append(_INHERITED if name in inherited else ""))
    return _place_in_columns(cells, width)


def _place_in_columns(cells: Sequence[Text], width: int) -> Text:
    """Return texts from top to bottom in as many equal columns as the width allows."""
    column_width = max(cell.cell_len for cell in cells) + _GAP
    column_count = max(1, (width + _GAP) // column_width)
    row_count = -(-len(cells) // column_count)
    lines = []
    for row in range(row_count):
        line = Text()
        for cell in cells[row::row_count]:
            line.pad_right(-line.cell_len % column_width)
            line.append_text(cell)
        lines.append(line)
    return Text("\n").join(lines)


def _list_param_texts(case: Case) -> Iterator[tuple[str, str]]:
    """Yield names and values in the words of the form, without unset texts."""
    from spbench_core.catalog.default_texts import format_default_texts

    text_by_name = format_default_texts(case.entry, case.params)
    for name, value in case.params.items():
        text = text_by_name.get(name, "")
        if isinstance(value, Mapping):  # an environment; its values may be credentials
            text = ", ".join(value)
        if text:
            yield name, " ".join(text.split())


def _format_expectation(expectation: Expectation) -> str:
    limit = expectation.expression or expectation.limit
    if limit is None:
        return f"{expectation.metric} of each system"
    limit_text = limit if isinstance(limit, str) else f"{limit:g}"
    return f"{expectation.metric} {expectation.op} {limit_text}"


def _list_faults(case: Case) -> str:
    from spbench.suites.inject import list_effective_faults

    return ", ".join(list_effective_faults(case))
