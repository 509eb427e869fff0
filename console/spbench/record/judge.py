"""The judgement of a case from its checks and expectations, and of a run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from spbench.errors import ExitCode
from spbench.record.case_figures import NotReachedError, evaluate_limit, read_figure
from spbench.record.case_state import CaseState
from spbench.record.comparison import NOTABLE_RANK, RankComparison, name_typical_rank
from spbench.record.findings import find_slow_parts
from spbench.record.messages.cases import describe_limit, describe_miss
from spbench.record.number_formatting import format_exact, format_factor
from spbench.record.planted_faults import FAULT, FAULT_FOUND, FAULT_MISSED, add_found_fault
from spbench.record.stragglers import (
    Straggler,
    advise_iterations,
    is_planted,
    list_planted_ranks,
)
from spbench.suites.expressions.expression import ExpressionError
from spbench_core.catalog.planted_fault import parse_fault
from spbench_core.events.statuses import CaseStatus, CheckOutcome, RunStatus


@dataclass(frozen=True, slots=True)
class Judgement:
    """The status of a case with its reason, and the result of each expectation."""

    status: CaseStatus
    reason: str | None
    expectations: list[dict[str, Any]]


def judge(
    case: CaseState,
    cases: Mapping[str, CaseState] = MappingProxyType({}),
    stragglers: Sequence[Straggler] = (),
) -> Judgement:
    """Judge a case after the end of its ranks: checks first, then expectations.

    A planted fault always fails the case, whether it was noticed or not.

    Args:
        case: The case.
        cases: All cases of the run, since expectations may depend on their figures.
        stragglers: The ranks and hosts that were slow in the case.
    """
    for name in case.identity.declared_checks:
        silent = _list_silent_ranks(case, name)
        if silent:
            names = name_ranks(case, silent)
            return Judgement(CaseStatus.ERROR, f"check {name} was not reported by {names}", [])
    expectations = [_judge_expectation(case, dict(item), cases) for item in case.identity.expect]
    failed_checks = describe_failed_checks(case)
    fault = case.identity.inject
    if failed_checks:
        reason = add_found_fault(failed_checks[0], fault)
        return Judgement(CaseStatus.FAILED, reason, expectations)
    failures = [item for item in expectations if item["status"] == CheckOutcome.FAILED]
    if failures:
        reason = add_found_fault(_describe_failed_expectation(case, failures[0]), fault)
        return Judgement(CaseStatus.FAILED, reason, expectations)
    if fault is not None:
        return Judgement(
            CaseStatus.FAILED, _describe_fault_result(case, fault, stragglers), expectations
        )
    return Judgement(CaseStatus.PASSED, None, expectations)


def _describe_fault_result(case: CaseState, fault: str, stragglers: Iterable[Straggler]) -> str:
    """Return whether a slow rank was noticed.

    A planted fault of another kind must fail a check.
    """
    unnoticed = f"{FAULT_MISSED} {fault}"
    planted_ranks = list_planted_ranks(case)
    if not planted_ranks:
        return unnoticed
    # the run's finding states how slow it is
    for straggler in stragglers:
        if is_planted(straggler, case):
            return f"{FAULT_FOUND}: {straggler.name} is slow"
    ranks = case.measured.ranks
    planted_keys = {(ranks[rank].host, rank) for rank in planted_ranks & ranks.keys()}
    for slow in find_slow_parts([case]):
        if slow.key in planted_keys or slow.key in {host for host, _ in planted_keys}:
            return f"{FAULT_FOUND}: {slow.name} is slow"
    planted_factor = parse_fault(fault).factor
    is_slight = planted_factor is not None and planted_factor < NOTABLE_RANK
    skew_by_rank = case.compute_rank_skews()
    slowed_ranks = [
        rank for rank in sorted(planted_ranks) if skew_by_rank.get(rank, 0.0) >= NOTABLE_RANK
    ]
    if slowed_ranks and not is_slight:
        ratio = format_factor(max(skew_by_rank[rank] for rank in slowed_ranks))
        names = name_ranks(case, slowed_ranks)
        take = "takes" if len(slowed_ranks) == 1 else "take"
        typical = name_typical_rank(ranks, slowed_ranks[0])
        return (
            f"{FAULT} {fault} not confirmed: {names} {take} {ratio} the time of"
            f" {typical}, but too briefly to be sure: {advise_iterations(case)}"
        )
    if planted_ranks.isdisjoint(skew_by_rank):
        return (
            f"{unnoticed}: no other rank does the work of {name_ranks(case, sorted(planted_ranks))}"
        )
    if not RankComparison(case.identity).separates(case.compute_active_medians()):
        return (
            f"{unnoticed}: {case.identity.benchmark} does not measure how long ranks wait for each "
            "other, so that all are as slow; expect a time, or plant the fault in another benchmark"
        )
    if planted_factor is not None and is_slight:
        skew_limit = _format_skew_limit((1 + planted_factor) / 2)
        return (
            f"{unnoticed}: a rank is named from {NOTABLE_RANK:g}x on; set {skew_limit} in the suite"
        )
    skew_limit = _format_skew_limit(NOTABLE_RANK)
    return f"{unnoticed}; {advise_iterations(case)}, or set {skew_limit} in the suite"


def _format_skew_limit(limit: float) -> str:
    """Return the expectation of a suite that fails a case with a larger skew."""
    return f"`expect: {{skew: {{max: {limit:.4g}}}}}`"


def _list_silent_ranks(case: CaseState, check: str) -> list[int]:
    """Return the ranks that did not report a check in some repeat."""
    results = case.measured.checks.get(check, {})
    identity = case.identity
    expected = ((repeat, rank) for repeat in range(case.repeats) for rank in range(identity.np))
    return sorted({rank for repeat, rank in expected if (repeat, rank) not in results})


def describe_failed_checks(case: CaseState) -> list[str]:
    """Return one message per failed check: ranks, largest error and location."""
    messages = []
    for name, results in case.measured.checks.items():
        ranks = sorted({rank for (_, rank), result in results.items() if not result.passed})
        if not ranks:
            continue
        worst = max(
            (result for result in results.values() if not result.passed),
            key=lambda result: (
                float("inf") if result.max_abs_error is None else result.max_abs_error
            ),
        )
        error = "not a number" if worst.max_abs_error is None else format_exact(worst.max_abs_error)
        location = f": {worst.detail}" if worst.detail else ""
        messages.append(
            f"check {name} failed on {name_ranks(case, ranks)}: largest error {error} "
            f"(tolerance {format_exact(worst.tolerance)}){location}"
        )
    return messages


def describe_other_failed_checks(case: CaseState) -> list[str]:
    """Return the messages of the failed checks that the reason of the case lacks."""
    reason = case.execution.reason or ""
    return [message for message in describe_failed_checks(case) if not reason.startswith(message)]


def name_ranks(case: CaseState, ranks: list[int]) -> str:
    """Return ``rank 3 on node02``, or ``ranks 0, 1 and 5 more``."""
    if len(ranks) == 1:
        host = case.measured.ranks[ranks[0]].host if ranks[0] in case.measured.ranks else "?"
        return f"rank {ranks[0]} on {host}"
    shown_ranks = ", ".join(map(str, ranks[:8]))
    return f"ranks {shown_ranks}" + (f" and {len(ranks) - 8} more" if len(ranks) > 8 else "")


def _judge_expectation(
    case: CaseState, expect: dict[str, Any], cases: Mapping[str, CaseState]
) -> dict[str, Any]:
    skipped = expect.pop("skipped", None)
    judged = expect | {"value": read_figure(case, expect["metric"])}
    if skipped is not None:
        return judged | {"status": CheckOutcome.SKIPPED.value, "reason": skipped}
    if expression := expect.get("expression"):
        try:
            judged["limit"] = evaluate_limit(expression, cases)
        except NotReachedError as error:
            return judged | {"status": CheckOutcome.SKIPPED.value, "reason": str(error)}
        except ExpressionError as error:
            return judged | {"status": CheckOutcome.FAILED.value, "reason": str(error)}
    status = CheckOutcome.PASSED if _is_met(**judged) else CheckOutcome.FAILED
    return judged | {"status": status.value}


def _is_met(op: str, limit: float | None, value: float | None, **_: Any) -> bool:
    if value is None or limit is None:
        return False
    return value <= limit if op == "max" else value >= limit


def describe_expected(item: Mapping[str, Any], unit: str = "") -> str:
    """Return an expectation, such as ``time_ms max 5 ms``, with its origin."""
    if item.get("reference"):
        return f"{item['metric']} {item['op']} {describe_limit(item)}"
    limit = item["limit"]
    expression = item.get("expression")
    limit_text = "" if limit is None else format_exact(limit, unit)
    figure = " = ".join(part for part in (limit_text, expression) if part)
    return f"{item['metric']} {item['op']} {figure}"


def divide_by_limit(value: float | None, limit: float | None) -> float | None:
    """Return a value over its limit; None if either is missing or the limit is 0."""
    return value / limit if value is not None and limit else None


def describe_not_judged(case: CaseState) -> Iterator[str]:
    """Yield a message for each expectation of a judged case that was skipped."""
    for item in case.execution.expectations:
        if item["status"] != CheckOutcome.SKIPPED:
            continue
        if item["limit"] is None and not item.get("expression"):
            yield f"expect of {item['metric']} skipped: {item.get('reason')}"
        else:
            expected = describe_expected(item, _find_unit(case, item))
            yield f"not judged: {expected}: {item.get('reason')}"


def _find_unit(case: CaseState, item: Mapping[str, Any]) -> str:
    info = case.identity.metrics.get(item["metric"].partition(".")[0])
    return info.unit if info is not None else ""


def _describe_failed_expectation(case: CaseState, item: dict[str, Any]) -> str:
    unit = _find_unit(case, item)
    if reason := item.get("reason"):
        return f"{describe_expected(item, unit)} cannot be judged: {reason}"
    if item["value"] is None:
        return f"expected {describe_expected(item, unit)}, but it was not measured"
    if item.get("reference"):
        return describe_miss(item)
    relation = "above" if item["op"] == "max" else "below"
    limit = format_exact(item["limit"], unit)
    if expression := item.get("expression"):
        limit = f"{limit} = {expression}"
    value = format_exact(item["value"], unit)
    return f"{item['metric']} is {value}, {relation} the expected {limit}"


def judge_run(cases: Iterable[CaseState]) -> tuple[RunStatus, ExitCode]:
    """Return status and exit code of a run that was not ended early."""
    statuses = {case.status for case in cases}
    if CaseStatus.ERROR in statuses:
        return RunStatus.ERROR, ExitCode.ERROR
    if CaseStatus.TIMEOUT in statuses:
        return RunStatus.TIMEOUT, ExitCode.ERROR
    if CaseStatus.FAILED in statuses:
        return RunStatus.FAILED, ExitCode.FAILED
    if CaseStatus.SKIPPED in statuses:  # less ran than requested
        return RunStatus.ERROR, ExitCode.ERROR
    return RunStatus.PASSED, ExitCode.PASSED
