"""The text of a gate check: a table with a row for each case, and notes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from spbench.record.number_formatting import format_percent
from spbench.report.comparison.unjudged import join_case_ids
from spbench.report.gate.check import (
    MORE_LAUNCHES,
    POWER,
    SLOWDOWNS,
    CaseGate,
    GateCheck,
)
from spbench.report.text_tables import TextColumn, render_table, wrap_text
from spbench.stats.difference import MIN_PAST_RUNS
from spbench_core.number_text import format_quantity

_COLUMNS = (
    TextColumn("smallest found"),
    TextColumn("case", ids=True),
    TextColumn("launches", right=True),
    TextColumn("needed", right=True),
    TextColumn("false alarms", right=True),
)
MAX_ALARMS = 0.1
"""The share of false alarms above which a gate is not usable: twice the level of the test."""
NONE_FOUND = "? none found"
NO_TIME = "✗ no time"
_TOO_MANY = "-"


def gate_check_lines(check: GateCheck, width: int) -> Iterator[str]:
    """Yield a check of the gate as lines of at most ``width`` characters."""
    if check.cases:
        yield from render_table(_COLUMNS, list(map(_make_cells, check.cases)), width)
    for note in gate_notes(check):
        yield from wrap_text(note, width)


def gate_notes(check: GateCheck) -> Iterator[str]:
    """Yield the notes below the table, those on several cases once."""
    missed_cases = [case for case in check.cases if case.launches and case.smallest is None]
    needed_launches = [case.needed for case in missed_cases if case.needed is not None]
    if missed_cases:
        largest = _format_slowdown(SLOWDOWNS[-1])
        too_many = f"; {_TOO_MANY}: more than {MORE_LAUNCHES[-1]}"
        yield (
            f"none found: a slowdown of {largest} is found in less than {format_percent(POWER)} of "
            "resamples. needed: launches per side that find it"
            f"{too_many if len(needed_launches) < len(missed_cases) else ''}."
        )
    if needed_launches:
        yield f"Run the suite with `--set repeat={max(needed_launches)}`, or on a quieter machine."
    cases_by_reason: dict[str, list[str]] = {}
    for case in check.cases:
        if case.reason:
            cases_by_reason.setdefault(case.reason, []).append(case.case)
    for reason, cases in cases_by_reason.items():
        yield f"Nothing was planted, {reason}: {join_case_ids(cases)}."
    past_texts = [
        f"{case.case} ({format_quantity(case.past, 'run')})" for case in check.cases if case.past
    ]
    if past_texts:
        yield f"With the launches of earlier runs on these machines: {join_case_ids(past_texts)}."
    yield from _generate_method_notes(check)


def _generate_method_notes(check: GateCheck) -> Iterator[str]:
    """Yield notes on the planted slowdowns and errors, and on false alarms."""
    if check.alarms is not None:
        yield (
            f"Slowdowns of {', '.join(map(_format_slowdown, SLOWDOWNS))} were planted. "
            f"One is found if it is called worse in {format_percent(POWER)} of "
            f"{check.resamples} resamples (seed {check.seed})."
        )
        yield (
            "false alarms: the share of resamples that call the case worse with nothing planted; "
            f"{format_percent(check.alarms)} call some case worse."
        )
        if check.alarms > MAX_ALARMS:
            has_few_past_runs = any(0 < case.past < MIN_PAST_RUNS for case in check.cases)
            advice = f", or make {MIN_PAST_RUNS} runs, after which comparisons allow for it"
            yield (
                f"That is more than {format_percent(MAX_ALARMS)}: these launches and earlier runs "
                "differ too much for a gate; measure on a quieter machine"
                f"{advice if has_few_past_runs else ''}."
            )
    planted_cases = [case for case in check.cases if case.error is not None]
    if planted_cases:
        reported_count = len(planted_cases) - len(check.missed_errors)
        count = format_quantity(len(planted_cases), "case")
        yield f"A failed check was planted in {count} and reported in {reported_count}."
    if check.missed_errors:
        yield f"Planted errors that are NOT reported: {join_case_ids(check.missed_errors)}."


def gate_object(check: GateCheck) -> dict[str, Any]:
    """Return the JSON object of a gate check."""
    cases = [_build_case_object(case) for case in check.cases]
    return asdict(check) | {"power": POWER, "slowdowns": list(SLOWDOWNS), "cases": cases}


def _format_slowdown(share: float) -> str:
    """Return a planted slowdown, which is exact, such as ``5 %``."""
    return f"{100 * share:.3g} %"


def _make_cells(case: CaseGate) -> tuple[str, ...]:
    alarms = "" if case.alarms is None else format_percent(case.alarms)
    launches = str(case.launches or "")
    return (_format_smallest(case), case.case, launches, _format_needed(case), alarms)


def _format_smallest(case: CaseGate) -> str:
    if case.smallest is not None:
        return _format_slowdown(case.smallest)
    return NONE_FOUND if case.launches else NO_TIME


def _format_needed(case: CaseGate) -> str:
    """Return the needed launches; empty if those of the run suffice."""
    if not case.launches or case.smallest is not None:
        return ""
    return _TOO_MANY if case.needed is None else str(case.needed)


def _build_case_object(case: CaseGate) -> dict[str, Any]:
    shares = [{"slowdown": slowdown, "share": share} for slowdown, share in case.found.items()]
    return asdict(case) | {"found": shares, "smallest": case.smallest}
