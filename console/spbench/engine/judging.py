"""Judge cases, and record their statuses as events.

A case is judged once its ranks have ended, and the ranks of the cases to which it refers.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from spbench.engine.faults.fault import Fault
from spbench.engine.recorder import Recorder
from spbench.errors import SpbenchError
from spbench.record.case_figures import find_ready
from spbench.record.judge import judge
from spbench.record.stragglers import Straggler, find_stragglers
from spbench_core.events.statuses import CaseStatus


def judge_ready_cases(recorder: Recorder, case_id: str | None = None) -> None:
    """Judge a case if it has ended, and all cases that have waited for others.

    Raises:
        FailedRunError: A status cannot be recorded.
    """
    cases = recorder.state.cases
    referring = recorder.state.referring
    ended = [case_id] if case_id is not None and case_id not in referring else []
    for case in [*find_ready(cases, [*ended, *referring])]:
        stragglers = find_stragglers(case)
        judgement = judge(case, cases, stragglers)
        recorder.record(
            "case_judged",
            case=case.id,
            status=judgement.status,
            reason=judgement.reason,
            expectations=judgement.expectations,
            **_build_straggler_fields(stragglers),
        )


def _build_straggler_fields(stragglers: Iterable[Straggler]) -> dict[str, Any]:
    """Return the fields of an event for stragglers; an empty dict without stragglers."""
    rows = [asdict(straggler) for straggler in stragglers]
    return {"stragglers": rows} if rows else {}


def record_fault(
    recorder: Recorder,
    case_id: str,
    fault: Fault,
    status: CaseStatus | None = None,
    *,
    job: int | None = None,
) -> None:
    """Record a fault as the status of a case.

    ``job`` is the number of its job if several run at once.
    """
    fields: dict[str, Any] = {
        "case": case_id,
        "status": status or fault.status,
        "reason": fault.message,
        "traceback": fault.traceback,
        "expectations": [],
        **_build_straggler_fields(find_stragglers(recorder.state.cases[case_id])),
    } | ({} if job is None else {"job": job})
    try:
        recorder.record("case_judged", **fields)
    except SpbenchError:
        # The log cannot be written. The recorder now continues without it.
        recorder.record("case_judged", **fields)
    with suppress(SpbenchError):
        judge_ready_cases(recorder)
