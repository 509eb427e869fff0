"""Facts about a case, shown below its launch command."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from rich.style import Style
from rich.text import Text

from spbench.engine.run_estimate import CaseEstimate, format_estimate
from spbench_core.number_text import format_quantity

if TYPE_CHECKING:
    from spbench.suites.case import Case, Expectation

_QUIET = Style(dim=True)
_STRONG = Style(bold=True)


def render_case_facts(case: Case, estimate: CaseEstimate | None) -> Text:
    """Return the duration, parameters, checks, expectations and faults of a case.

    Parameters that differ from their default are bold. Call it in a thread: it loads the catalog.
    """
    sections = (
        ("duration", Text(_describe_duration(estimate))),
        ("parameters", _render_params(case)),
        ("checks", Text(", ".join(case.entry.list_checks(dict(case.params))))),
        ("expectations", Text(", ".join(map(_format_expectation, case.expect)))),
        ("faults to plant with F7", Text(_list_faults(case))),
    )
    text = Text(case.entry.summary)
    for title, content in sections:
        if content:
            text.append(f"\n{title}\n", _QUIET).append_text(content)
    return text


def _describe_duration(estimate: CaseEstimate | None) -> str:
    if estimate is None or estimate.own_seconds is None:
        return ""
    text = f"{estimate.own_text} {estimate.source.value}"
    if estimate.start_seconds <= 0:
        return text
    launches = format_quantity(estimate.num_launches, "launch", "launches")
    share = format_estimate(estimate.start_seconds)
    return f"{text}, and {share} as its share of the start of {launches}"


def _render_params(case: Case) -> Text:
    return Text("  ").join(_list_param_texts(case))


def _list_param_texts(case: Case) -> Iterator[Text]:
    from spbench.suites.expand import format_label

    for name, value in case.params.items():
        param = case.entry.find_param(name)
        is_default = param is None or value is None or value == param.default
        label = "auto" if value is None else format_label(value)
        if isinstance(value, Mapping):  # an environment; its values may be credentials
            label = ", ".join(value)
        # A name and its value stay on one line.
        name_text = Text().append(f"{name}\N{NO-BREAK SPACE}", _QUIET)
        yield name_text.append(label, None if is_default else _STRONG)


def _format_expectation(expectation: Expectation) -> str:
    limit = expectation.expression or expectation.limit
    if limit is None:
        return f"{expectation.metric} of each system"
    limit_text = limit if isinstance(limit, str) else f"{limit:g}"
    return f"{expectation.metric} {expectation.op} {limit_text}"


def _list_faults(case: Case) -> str:
    from spbench.suites.inject import list_effective_faults

    return ", ".join(list_effective_faults(case))
