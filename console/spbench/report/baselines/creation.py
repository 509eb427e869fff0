"""Make baselines from runs, and update them with later runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from spbench.errors import UsageError
from spbench.record.runs.folder import RunFolder
from spbench.record.runs.history import RunSummary
from spbench.report.baselines.model import BaselineCase, BaselineFile, BaselineMetric
from spbench.report.comparison.conditions import find_faults
from spbench.report.comparison.judgement import explain_unfit
from spbench.report.comparison.model import HEADLINE, Outcome, RunComparison
from spbench.report.comparison.pairs import launch_medians
from spbench.report.comparison.unjudged import join_case_ids
from spbench.report.model import CasePart, CheckPart, LaunchPart, LimitPart, MetricPart
from spbench.report.recorded import RecordedRun
from spbench.stats.difference import compute_min_launches
from spbench.stats.summary import median
from spbench_core.events.statuses import CaseStatus, CheckOutcome, RunStatus

_OUTCOMES: Mapping[str, str] = {Outcome.TOO_FEW: "not judged"}
"""The displayed words of outcomes, if they differ from the format's words."""


class CaseChanges:
    """The changes of a baseline's cases, with one line per kind of change."""

    def __init__(self) -> None:
        self._cases: dict[str, list[str]] = {}

    def add(self, change: str, case: str) -> None:
        """Add the change of a case."""
        self._cases.setdefault(change, []).append(case)

    def lines(self) -> list[str]:
        """Return one line for each kind of change."""
        return [f"{change}: {join_case_ids(cases)}" for change, cases in self._cases.items()]


def make_baseline(name: str, run: RecordedRun) -> tuple[BaselineFile, list[str]]:
    """Make the baseline of a run, and return it with lines on excluded cases.

    Raises:
        UsageError: The run is still running, or no case of it has results.
    """
    id_ = run.summary.id
    if run.summary.status == RunStatus.RUNNING:
        raise UsageError(f"run {id_} is still running; wait for its end")
    reason_by_case = {case.id: explain_unfit(case) for case in run.cases.values()}
    cases = [
        _make_case(case, id_) for case in run.cases.values() if reason_by_case[case.id] is None
    ]
    if not any(case.metrics for case in cases):
        raise UsageError(f"no case of run {id_} has results that a later run could be held against")
    version = run.environment.get("spbench")
    baseline = BaselineFile(
        name=name,
        run=id_,
        runs=[id_],
        suite=run.summary.suite,
        spbench=version if isinstance(version, str) else None,
        environment={name: fact for name, fact in run.environment.items() if name == "fingerprint"},
        cases=cases,
    )
    left_out = CaseChanges()
    for id_, reason in reason_by_case.items():
        if reason:
            left_out.add(f"left out, {reason}", id_)
    return baseline, left_out.lines()


def _make_case(case: CasePart, run: str) -> BaselineCase:
    return BaselineCase(
        id=case.id,
        name=case.name,
        benchmark=case.benchmark,
        version=case.version,
        params=dict(case.params),
        np=case.np,
        runs=[run],
        noisy=case.noisy,
        crowded=case.crowded,
        checks=[check.name for check in case.checks],
        reference_ms=case.limits[HEADLINE].value if HEADLINE in case.limits else None,
        metrics={
            name: BaselineMetric(
                unit=metric.unit,
                better=metric.better,
                value=metric.value,
                launches=launch_medians(case, name),
                fastest=list(case.fastest) if name == HEADLINE else [],
                n=metric.n,
                min=metric.min,
                max=metric.max,
            )
            for name, metric in case.metrics.items()
        },
    )


def fault_warnings(run: RecordedRun) -> Iterator[str]:
    """Yield a warning if a baseline comes from a run with planted faults."""
    if faults := find_faults(run.summary):
        yield (
            f"warning: run {run.summary.id} was made with the planted fault "
            f"{', '.join(faults)}; the baseline has the times with this fault"
        )


def launch_warnings(baseline: BaselineFile) -> Iterator[str]:
    """Yield warnings on cases with too few launches for a comparison of all cases."""
    launches_by_case = {
        case.id: len(case.metrics[HEADLINE].launches)
        for case in baseline.cases
        if HEADLINE in case.metrics
    }
    num_cases = len(launches_by_case)
    needed = compute_min_launches(max(1, num_cases))
    purpose = "" if num_cases < 2 else f" to compare {num_cases} cases"
    for count in sorted({count for count in launches_by_case.values() if count < needed}):
        few_cases = [id_ for id_, launches in launches_by_case.items() if launches == count]
        yield (
            f"warning: too few launches to find a difference "
            f"({count} per case, {needed} needed{purpose}): "
            f"{join_case_ids(few_cases)}; repeat the run with `--set repeat={needed}`"
        )


def update_baseline(
    old: BaselineFile, run: RecordedRun, comparison: RunComparison, *, widen: bool
) -> tuple[BaselineFile, list[str]]:
    """Return a baseline updated with a run, and lines on the changes of its cases.

    Better cases replace those of the baseline, and new cases are added. The launches of other cases
    are added only with `widen`, which widens the range of usual times.

    Args:
        old: The baseline.
        run: The later run.
        comparison: The comparison of that run, b, with the baseline, a.
        widen: Whether launches of cases that are not better are added, too.

    Raises:
        UsageError: The run is from other machines, is still running, or has no results.
    """
    rows = [row for row in comparison.rows if row.metric == HEADLINE]
    mismatches = (row.reason for row in rows if row.outcome == Outcome.NOT_COMPARABLE)
    if mismatch := next(mismatches, None):
        raise UsageError(f"run {run.summary.id} cannot update {old.name}: {mismatch}")
    new, left_out = make_baseline(old.name, run)
    changes = CaseChanges()
    outcome_by_case = {row.case: row.outcome for row in rows}
    new_by_id = {case.id: case for case in new.cases}
    cases = [
        _update_case(case, new_by_id.get(case.id), outcome_by_case, changes, widen)
        for case in old.cases
    ]
    old_ids = {case.id for case in old.cases}
    for case in new_by_id.values():
        if case.id not in old_ids:
            cases.append(case)
            changes.add("added, new in the run", case.id)
    lines = [*left_out, *changes.lines()]
    if cases == old.cases:
        return old, lines
    runs = [*dict.fromkeys(run for case in cases for run in case.runs)]
    return old.model_copy(update={"cases": cases, "runs": runs}), lines


def _update_case(
    old: BaselineCase,
    new: BaselineCase | None,
    outcome_by_case: Mapping[str, Outcome | None],
    changes: CaseChanges,
    widen: bool,
) -> BaselineCase:
    outcome = outcome_by_case.get(old.id)
    if new is None or outcome is None or set(new.runs) <= set(old.runs):
        reason = "already part of it" if new and outcome else "no time in the run to compare"
        changes.add(f"kept, {reason}", old.id)
        return old
    if outcome == Outcome.BETTER:
        changes.add("replaced, better in the run", old.id)
        return new
    word = _OUTCOMES.get(outcome, outcome)
    if not widen:
        changes.add(f"kept, {word} in the run (--widen adds its launches)", old.id)
        return old
    changes.add(f"widened, {word} in the run, launches added", old.id)
    merged_metrics = {
        name: _merge_metrics(metric, new.metrics[name]) if name in new.metrics else metric
        for name, metric in old.metrics.items()
    }
    return new.model_copy(
        update={
            "metrics": new.metrics | merged_metrics,
            "runs": [*old.runs, *new.runs],
            "noisy": old.noisy or new.noisy,
            "crowded": _is_either_crowded(old, new),
        }
    )


def _is_either_crowded(old: BaselineCase, new: BaselineCase) -> bool | None:
    """Return whether one of two cases had more ranks than cores; None: unknown."""
    if old.crowded or new.crowded:
        return True
    return None if None in (old.crowded, new.crowded) else False


def _merge_metrics(old: BaselineMetric, new: BaselineMetric) -> BaselineMetric:
    launches = [*old.launches, *new.launches]
    fastest = [*old.fastest, *new.fastest] if old.fastest and new.fastest else []
    return BaselineMetric(
        unit=new.unit,
        better=new.better,
        value=median(launches),
        launches=launches,
        fastest=fastest,
        n=old.n + new.n,
        min=min(old.min, new.min),
        max=max(old.max, new.max),
    )


def make_baseline_run(baseline: BaselineFile, path: Path) -> RecordedRun:
    """Return a baseline in the form of a run, for comparisons with other runs."""
    summary = RunSummary(
        folder=RunFolder(path.parent),
        id=baseline.name,
        suite=baseline.suite,
        file=None,
        started=None,
        finished=None,
        status=RunStatus.BASELINE,
        exit_code=None,
        argv=(),
        duration_s=None,
        host=", ".join(_list_hosts(baseline)) or None,
        baseline_of=baseline.run,
    )
    cases = {case.id: _make_case_part(case) for case in baseline.cases}
    made_of = (baseline.run, *baseline.runs)
    return RecordedRun(summary, cases, environment=baseline.environment, made_of=made_of)


def _list_hosts(baseline: BaselineFile) -> Iterator[str]:
    fingerprint = baseline.environment.get("fingerprint")
    hosts = fingerprint.get("hosts") if isinstance(fingerprint, dict) else None
    return map(str, hosts) if isinstance(hosts, list) else iter(())


def _make_launch_part(case: BaselineCase) -> LaunchPart | None:
    """Return the launch; only whether it was crowded is known, if at all."""
    if case.crowded is None:
        return None
    return LaunchPart.model_construct(
        launcher="", version="", argv=[], hostfile=None, env={}, job=0, oversubscribed=case.crowded
    )


def _make_limit_parts(case: BaselineCase) -> dict[str, LimitPart]:
    if case.reference_ms is None:
        return {}
    return {HEADLINE: LimitPart(value=case.reference_ms, unit="ms", measured_by="a baseline's run")}


def _make_case_part(case: BaselineCase) -> CasePart:
    metrics = {
        name: MetricPart.model_construct(
            value=metric.value,
            unit=metric.unit,
            better=metric.better,
            n=metric.n,
            min=metric.min,
            max=metric.max,
        )
        for name, metric in case.metrics.items()
    }
    return CasePart.model_construct(
        id=case.id,
        name=case.name,
        benchmark=case.benchmark,
        version=case.version,
        params=case.params,
        np=case.np,
        status=CaseStatus.PASSED,
        reason=None,
        noisy=case.noisy,
        launch=_make_launch_part(case),
        limits=_make_limit_parts(case),
        checks=[_make_passed_check(name, case.np) for name in case.checks],
        metrics=metrics,
        medians={name: metric.launches for name, metric in case.metrics.items()},
        fastest=case.metrics[HEADLINE].fastest if HEADLINE in case.metrics else [],
    )


def _make_passed_check(name: str, np: int) -> CheckPart:
    """Return a check that passed on all ranks; a baseline does not keep its numbers."""
    return CheckPart(
        name=name,
        status=CheckOutcome.PASSED,
        max_abs_error=None,
        tolerance=0.0,
        ranks_passed=np,
        ranks_failed=0,
        detail="",
    )
