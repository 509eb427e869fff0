"""A recorded run with its cases' results: from its report, or from its events without one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from spbench.record.case_state import SKEW, CaseState, CheckResult, Place
from spbench.record.folder import RunFolder
from spbench.record.history import RUNNING, RunSummary, summary_of
from spbench.record.state import RunState

_LOST = {
    "waiting": ("skipped", "the console ended before this case"),
    "running": ("error", "the console ended during this case"),
}
_STATISTICS = ("value", "min", "p50", "p95", "p99", "max", "mean", "stdev")


@dataclass(frozen=True, slots=True)
class RecordedMetric:
    """A metric over all repeats and iterations, in ``unit``; ``value`` is p50.

    ``better`` is ``lower``, ``higher`` or ``none``.
    """

    value: float
    unit: str
    better: str
    n: int
    min: float
    p50: float
    p95: float
    p99: float
    max: float
    mean: float
    stdev: float


@dataclass(frozen=True, slots=True)
class RecordedCheck:
    """A check over all ranks and repeats: its worst comparison. Status passed or failed."""

    name: str
    status: str
    max_abs_error: float | None
    tolerance: float
    ranks_passed: int
    ranks_failed: int
    detail: str


@dataclass(frozen=True, slots=True)
class RecordedLimit:
    """What a metric could reach at best, as measured in the same job."""

    value: float | None
    unit: str
    measured_by: str


@dataclass(frozen=True, slots=True)
class RecordedChoice:
    """What the ranks chose where the parameters left it open, and why."""

    value: str
    reason: str


@dataclass(frozen=True, slots=True)
class RecordedCase:
    """One case as it came out.

    Attributes:
        status: Its verdict; ``waiting`` or ``running`` in a run that still goes on.
        metrics: By name, in the benchmark's order; what was not measured is left out.
        samples: By metric: one list a repeat, folded over ranks, in the metric's unit.
        measurements: Labelled values: ``name``, ``value``, ``rank`` and the labels.
    """

    id: str
    name: str
    benchmark: str
    params: Mapping[str, Any]
    np: int
    status: str
    reason: str | None
    metrics: Mapping[str, RecordedMetric]
    checks: Sequence[RecordedCheck]
    limits: Mapping[str, RecordedLimit]
    choices: Mapping[str, RecordedChoice]
    samples: Mapping[str, Sequence[Sequence[float]]]
    measurements: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """A run and its cases by id, in the suite's order."""

    summary: RunSummary
    cases: Mapping[str, RecordedCase]
    findings: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()


def load_run(folder: RunFolder) -> RecordedRun:
    """Return what a run measured: from report.json, else by replay of its events.

    Raises:
        UsageError: It has no report, and its event log cannot be read.
    """
    summary = summary_of(folder)
    report = folder.read_json("report.json")
    try:
        return _of_report(summary, report)
    except (KeyError, TypeError, ValueError, AttributeError):
        # There is none, or it is damaged: the events are the truth.
        return _of_state(summary, folder.replay())


def recorded_case(case: CaseState) -> RecordedCase:
    """Return a case as far as its events tell; what has no verdict yet keeps its status."""
    infos = case.metrics
    return RecordedCase(
        id=case.id,
        name=case.name,
        benchmark=case.benchmark,
        params=dict(case.params),
        np=case.np,
        status=case.status,
        reason=case.reason,
        metrics=_metrics(case),
        checks=[_check(name, results) for name, results in case.checks.items()],
        limits={
            name: RecordedLimit(unit=infos[name].unit if name in infos else "", **limit)
            for name, limit in case.limits.items()
        },
        choices={name: RecordedChoice(**choice) for name, choice in case.choices.items()},
        samples={name: case.folded(name) for name in case.samples if name in infos},
        measurements=case.measurements,
    )


def settled(case: RecordedCase) -> RecordedCase:
    """Return a case with the verdict that it has once its console is gone."""
    if case.status not in _LOST:
        return case
    status, reason = _LOST[case.status]
    return replace(case, status=status, reason=case.reason or reason)


def _of_state(summary: RunSummary, state: RunState) -> RecordedRun:
    cases = [recorded_case(case) for case in state.cases.values()]
    if summary.verdict != RUNNING:
        cases = [settled(case) for case in cases]
    return RecordedRun(
        summary, {case.id: case for case in cases}, tuple(state.findings), tuple(state.errors)
    )


def _metrics(case: CaseState) -> dict[str, RecordedMetric]:
    metrics = {}
    for info in (*case.metrics.values(), SKEW):
        summary = case.summary(info.name)
        if summary is not None:
            metrics[info.name] = RecordedMetric(
                value=summary.p50, unit=info.unit, better=info.better, **asdict(summary)
            )
    return metrics


def _check(name: str, results: Mapping[Place, CheckResult]) -> RecordedCheck:
    failed = {rank for (_, rank), result in results.items() if not result.passed}
    ranks = {rank for _, rank in results}
    worst = max(results.values(), key=lambda result: (not result.passed, result.error))
    return RecordedCheck(
        name=name,
        status="failed" if failed else "passed",
        max_abs_error=worst.max_abs_error,
        tolerance=worst.tolerance,
        ranks_passed=len(ranks - failed),
        ranks_failed=len(failed),
        detail=worst.detail,
    )


def _of_report(summary: RunSummary, report: Mapping[str, Any]) -> RecordedRun:
    cases = [_case_of_report(part) for part in report["cases"]]
    return RecordedRun(
        summary,
        {case.id: case for case in cases},
        tuple(report["run"].get("findings", ())),
        tuple(report["errors"]),
    )


def _case_of_report(part: Mapping[str, Any]) -> RecordedCase:
    plain = {name: part[name] for name in ("id", "name", "benchmark", "np", "status", "reason")}
    return RecordedCase(
        **plain,
        params=dict(part["params"]),
        metrics={name: _metric_of_report(metric) for name, metric in part["metrics"].items()},
        checks=[RecordedCheck(**check) for check in part["checks"]],
        limits={name: RecordedLimit(**limit) for name, limit in part["limits"].items()},
        # A report of an older spbench may lack what follows.
        choices={name: RecordedChoice(**told) for name, told in part.get("choices", {}).items()},
        samples=part.get("samples", {}),
        measurements=part.get("measurements", []),
    )


def _metric_of_report(part: Mapping[str, Any]) -> RecordedMetric:
    figures = {name: float(part[name]) for name in _STATISTICS}
    return RecordedMetric(unit=part["unit"], better=part["better"], n=int(part["n"]), **figures)
