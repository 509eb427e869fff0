"""What a check of the gate says: a table with a row for each case, and sentences below it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from spbench.report.gate.check import POWER, SLOWDOWNS, CaseGate, GateCheck

GATE_COLUMNS = ("case", "launches", "finds", "cries wolf", "note")
TOO_FEW = "not enough samples"


def percent(share: float) -> str:
    """Return a share as ``5 %``."""
    return f"{100 * share:.3g} %"


def gate_rows(check: GateCheck) -> Iterator[tuple[str, ...]]:
    """Yield the cells of `GATE_COLUMNS`: one row a case."""
    for one in check.cases:
        yield (
            one.case,
            str(one.launches or ""),
            _finds(one),
            "" if one.alarms is None else percent(one.alarms),
            "; ".join(_notes(one)),
        )


def _finds(one: CaseGate) -> str:
    if one.smallest is not None:
        return percent(one.smallest)
    return TOO_FEW if one.launches else ""


def _notes(one: CaseGate) -> Iterator[str]:
    if one.reason:
        yield one.reason
    if one.found and one.smallest is None:
        largest = percent(SLOWDOWNS[-1])
        yield f"{largest} is found in {percent(one.found[SLOWDOWNS[-1]])}"
        if one.needed is None:
            yield "more launches would not tell" if one.past else "32 launches would not tell"
    if one.needed is not None:
        yield f"{one.needed} launches a side would tell"
    if one.past:
        yield f"with {one.past} earlier runs"
    if one.error is False:
        yield "a planted error is NOT reported"


def gate_remarks(check: GateCheck) -> list[str]:
    """Return the sentences below the table."""
    told = []
    if check.alarms is not None:
        told.append(
            f"finds: the smallest of {', '.join(map(percent, SLOWDOWNS))} that is called worse in "
            f"{percent(POWER)} of {check.resamples} resamples; seed {check.seed}."
        )
        told.append(
            f"With nothing planted some case was called worse in {percent(check.alarms)} of them."
        )
    planted = [one for one in check.cases if one.error is not None]
    if planted:
        told.append(
            "A failed check, planted in each case that has a time, was reported in "
            f"{len(planted) - len(check.missed_errors)} of {len(planted)}."
        )
    return told


def gate_object(check: GateCheck) -> dict[str, Any]:
    """Return a check of the gate as JSON has it."""
    cases = [_case_object(one) for one in check.cases]
    return asdict(check) | {"power": POWER, "slowdowns": list(SLOWDOWNS), "cases": cases}


def _case_object(one: CaseGate) -> dict[str, Any]:
    found = [{"slowdown": each, "share": share} for each, share in one.found.items()]
    return asdict(one) | {"found": found, "smallest": one.smallest}
