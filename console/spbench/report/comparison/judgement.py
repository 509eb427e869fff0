"""Decide for each case whether a comparison judged it, and whether it is broken."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from spbench.record.planted_faults import blames_fault
from spbench.report.comparison.model import CaseJudgement, CasePair, JudgementKind, Outcome
from spbench.report.model import CasePart
from spbench.report.recorded import RecordedRun
from spbench_core.events.statuses import CaseStatus, CheckOutcome, RunStatus

_SELECTING = ("-k", "--case", "--failed")
"""Options of ``spbench run`` that exclude cases of a suite."""


def judge_cases(
    a: RecordedRun, b: RecordedRun, pairs: Mapping[str, CasePair]
) -> Iterator[CaseJudgement]:
    """Yield the judgement of each case of run b, then of each that is missing in b."""
    for id_, case in b.cases.items():
        if reason := explain_broken(a.cases.get(id_), case):
            outcome = _get_decided_outcome(pairs[id_]) if id_ in pairs else None
            yield CaseJudgement(id_, JudgementKind.BROKEN, outcome, reason)
        elif id_ not in pairs:
            yield CaseJudgement(id_, JudgementKind.UNJUDGED, reason=f"not in {_name_run(a)}")
        else:
            yield _judge_pair(pairs[id_])
    if _selects_cases(b):
        return
    for id_ in a.cases:
        if id_ not in b.cases:
            yield CaseJudgement(id_, JudgementKind.UNJUDGED, reason=f"only in {_name_run(a)}")


def _judge_pair(pair: CasePair) -> CaseJudgement:
    if outcome := _get_decided_outcome(pair):
        return CaseJudgement(pair.id, JudgementKind.JUDGED, outcome)
    row = pair.headline
    reason = "its time was not measured" if row is None else row.reason
    reason = pair.cancelled or reason
    return CaseJudgement(pair.id, JudgementKind.UNJUDGED, reason=reason)


def _get_decided_outcome(pair: CasePair) -> Outcome | None:
    row = pair.headline
    if row is None or row.outcome is None:
        return None
    return row.outcome if row.outcome.is_decided else None


def _name_run(run: RecordedRun) -> str:
    run_or_baseline = "baseline" if run.summary.status == RunStatus.BASELINE else "run"
    return f"{run_or_baseline} {run.summary.id}"


def _selects_cases(run: RecordedRun) -> bool:
    """Return whether a run was restricted to some cases, so that others are missing."""
    return any(word.startswith(_SELECTING) for word in run.summary.argv)


def explain_broken(a: CasePart | None, b: CasePart) -> str | None:
    """Return the reason why a case of run b is broken; None if it is not.

    A case is broken if it failed, lost a check, or has no result. One that the user cancelled is
    not broken, as it could still have passed.

    Args:
        a: The same case in run a; None if run a does not have it.
        b: The case that is judged.
    """
    if not b.status.is_final:
        return None
    if reason := _find_failed_check(b):
        return reason
    if b.status == CaseStatus.CANCELLED:
        return None
    if not b.status.is_measured:
        return b.status
    # If only a planted fault made it fail, its checks and expectations passed, and its times are
    # results.
    if b.status != CaseStatus.PASSED and not blames_fault(b.reason):
        return b.reason or b.status
    if a is None or a.version != b.version:
        return None
    check_names = {check.name for check in b.checks}
    missing_checks = [check.name for check in a.checks if check.name not in check_names]
    return f"check {missing_checks[0]} is missing" if missing_checks else None


def explain_unfit(case: CasePart) -> str | None:
    """Return the reason why a case's numbers are not results; None if they are.

    The numbers of a case with a failed expectation are results.
    """
    if reason := _find_failed_check(case):
        return reason
    return None if case.status.is_measured else case.status


def _find_failed_check(case: CasePart) -> str | None:
    failed_checks = [check.name for check in case.checks if check.status == CheckOutcome.FAILED]
    return f"check {failed_checks[0]} failed" if failed_checks else None
