"""Build the report of a run from its RunState."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from spbench.errors import ExitCode, describe_defect
from spbench.record.case_parts import SKEW, CaseExecution, CheckResult, RepeatAndRank
from spbench.record.case_state import CaseState
from spbench.record.hidden_values import hide_arguments
from spbench.record.noise import describe_case_noise
from spbench.record.run_parts import JobState, RankState
from spbench.record.state import RunState
from spbench.record.stragglers import Straggler
from spbench.report.document import PackedCases, ReportDocument, dump_json
from spbench.report.host_model import CaseGpuPart
from spbench.report.hosts import describe_case_gpus, describe_hosts
from spbench.report.model import (
    SCHEMA,
    CasePart,
    CheckPart,
    ChoicePart,
    EarlierPart,
    ExpectationPart,
    LaunchPart,
    LimitPart,
    MetricPart,
    RankPart,
    ReferencePart,
    RepeatsPart,
    Report,
    ScaledPart,
    StragglerPart,
    TimePart,
)
from spbench.report.times import format_timestamp
from spbench.stats.summary import summarize_repeats
from spbench_core.credentials import hide_credentials
from spbench_core.events.statuses import CaseStatus, CheckOutcome, RunStatus

_STATUS_BY_EXIT_CODE = {
    ExitCode.NOTHING: RunStatus.SKIPPED,
    ExitCode.BUDGET: RunStatus.CANCELLED,
    ExitCode.INTERRUPTED: RunStatus.CANCELLED,
    ExitCode.TERMINATED: RunStatus.CANCELLED,
}
"""The status of a run that never started; other exit codes are errors."""
_STATUS_AND_REASON_AT_END = {
    CaseStatus.WAITING: (CaseStatus.SKIPPED, "the console ended before this case"),
    CaseStatus.RUNNING: (CaseStatus.ERROR, "the console ended during this case"),
}
"""The status and reason of a case of a console that ended, by its status then."""


def build_report(state: RunState) -> dict[str, Any]:
    """Return the report of a run, finished or not, validated against its format.

    If the console was killed, cases without a final status count as errors or as skipped.
    """
    return build_document(state, build_cases(state)[0]).to_json()


def build_document(state: RunState, cases: PackedCases) -> ReportDocument:
    """Return the report of a run, to be written case by case.

    Args:
        state: The run.
        cases: Its cases, from `build_cases`.
    """
    run = state.run
    assert run is not None, "a state without run_start has no report"
    document = {
        "schema": SCHEMA,
        "run": {
            "id": run.id,
            "suite": run.suite,
            "started": format_timestamp(run.started),
            "finished": format_timestamp(run.finished),
            "duration_s": None if run.finished is None else round(run.finished - run.started, 6),
            "verdict": run.status or RunStatus.ERROR,
            "exit_code": ExitCode.ERROR if run.exit_code is None else run.exit_code,
            "argv": list(run.argv),
            "seed": run.seed,
            "findings": state.findings,
        },
        "environment": build_environment(state),
        "cases": [],
        "hosts": describe_hosts(state),
        "errors": _list_errors(state),
    }
    return ReportDocument(validate_document(document), cases)


def build_environment(state: RunState) -> dict[str, Any]:
    """Return facts on the machines and versions of console and ranks."""
    run = state.run
    if run is None:
        return {}
    environment = dict(run.environment) | {"ranks": _collect_versions(state.ranks.values())}
    if run.resumed:
        environment["resumed"] = run.resumed
    if run.load_after is not None:
        environment["load_after"] = run.load_after
    if (fingerprint := state.machines.fingerprint()) is not None:
        environment["fingerprint"] = fingerprint
    return environment


def _list_errors(state: RunState) -> list[str]:
    errors = state.errors or _list_reasons(state.cases.values())
    return [*errors, state.skipped_message] if state.skipped_message else errors


def build_cases(state: RunState) -> tuple[PackedCases, list[tuple[str, str]]]:
    """Return the cases of a report, each validated against the format.

    A case that does not fit the format is reported as an error, so that the report of the other
    cases is still written. The second result has the id and reason of each such case.
    """
    unreportable: list[tuple[str, str]] = []
    return PackedCases(_generate_case_texts(state, unreportable)), unreportable


def _generate_case_texts(state: RunState, unreportable: list[tuple[str, str]]) -> Iterator[str]:
    for case in state.cases.values():
        try:
            case_part = CasePart.model_validate(settle_case(_make_case_part(case, state)))
            text = dump_json(dump_model(case_part))
        except Exception as error:
            case_part = CasePart.model_validate(_make_unreportable_case(case, error))
            text = dump_json(dump_model(case_part))
        if case_part.status != case.status:
            unreportable.append((case_part.id, str(case_part.reason)))
        yield text


def build_rejected_report(
    error: str, exit_code: ExitCode, argv: Sequence[str], suite: str | None = None
) -> dict[str, Any]:
    """Return the report of a run that never started."""
    run = {
        "id": None,
        "suite": suite,
        "started": None,
        "finished": None,
        "duration_s": None,
        "verdict": _STATUS_BY_EXIT_CODE.get(exit_code, RunStatus.ERROR),
        "exit_code": int(exit_code),
        "argv": hide_arguments(argv),
        "seed": None,
    }
    document = {"schema": SCHEMA, "run": run, "environment": {}, "cases": []}
    return validate_document(document | {"errors": hide_credentials(error.splitlines())})


def validate_document(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document in the report's format.

    Raises:
        ValueError: The document is not a report.
    """
    return dump_model(Report.model_validate(document))


def dump_model(report: Report | CasePart) -> dict[str, Any]:
    """Return the JSON object of a report, or of a case."""
    return report.model_dump(mode="json", by_alias=True)


def _list_reasons(cases: Iterable[CaseState]) -> list[str]:
    return [f"{case.id}: {case.execution.reason}" for case in cases if case.status.is_broken]


def _collect_versions(ranks: Iterable[RankState]) -> dict[str, Any]:
    """Return the ranks' software versions: one value, or a list of different ones."""
    versions: dict[str, list[Any]] = {}
    for rank in ranks:
        version_by_name = {
            **rank.facts.versions,
            "fabric": rank.facts.fabric,
            "threads": rank.facts.threads,
        }
        for name, version in version_by_name.items():
            versions_of_name = versions.setdefault(name, [])
            if version not in versions_of_name:
                versions_of_name.append(version)
    return {
        name: versions_of_name[0] if len(versions_of_name) == 1 else versions_of_name
        for name, versions_of_name in versions.items()
    }


def build_case_parts(state: RunState) -> list[CasePart]:
    """Return the cases of a run, which may still run, in the suite's order.

    A case may be ``waiting`` or ``running``, which a report does not allow: see `settle_case`.
    """
    return [_make_case_or_error(case, state) for case in state.cases.values()]


def _make_case_or_error(case: CaseState, state: RunState) -> CasePart:
    try:
        return _make_case_part(case, state)
    except Exception as error:
        return _make_unreportable_case(case, error)


def _make_unreportable_case(case: CaseState, error: Exception) -> CasePart:
    """Return a case without results, because reporting them raised an error."""
    bare = CaseState(
        replace(case.identity, params={}, metrics={}),
        execution=CaseExecution(
            CaseStatus.ERROR, f"its results cannot be reported: {describe_defect(error)}"
        ),
    )
    return _make_case_part(bare, RunState())


def settle_case(case: CasePart) -> CasePart:
    """Return a case with a final status, given that its console has ended."""
    if case.status not in _STATUS_AND_REASON_AT_END:
        return case
    status, reason = _STATUS_AND_REASON_AT_END[case.status]
    return case.model_copy(update={"status": status, "reason": case.reason or reason})


def _make_case_part(case: CaseState, state: RunState) -> CasePart:
    identity = case.identity
    measured = case.measured
    execution = case.execution
    job = state.jobs.get(execution.job) if execution.job is not None else None
    return CasePart.model_construct(
        id=identity.id,
        name=identity.name,
        benchmark=identity.benchmark,
        version=identity.version,
        params=dict(identity.params),
        np=identity.np,
        status=execution.status,
        reason=execution.reason,
        traceback=execution.traceback,
        started=format_timestamp(execution.started),
        finished=format_timestamp(execution.finished),
        attempts=execution.attempts,
        earlier=[
            EarlierPart.model_construct(status=attempt.status, reason=attempt.reason)
            for attempt in execution.previous_attempts
        ],
        noisy=describe_case_noise(case),
        stragglers=[_make_straggler_part(case, straggler) for straggler in execution.stragglers],
        warmup=identity.params.get("warmup"),
        until=_make_repeats_part(case),
        scaled=ScaledPart.model_construct(**identity.scaled) if identity.scaled else None,
        launch=_make_launch_part(job) if job is not None else None,
        checks=[_make_check_part(name, results) for name, results in measured.checks.items()],
        metrics=_make_metric_parts(case),
        limits={
            name: LimitPart.model_construct(
                unit=identity.metrics[name].unit if name in identity.metrics else "", **limit
            )
            for name, limit in measured.median_references.items()
        },
        choices={
            name: ChoicePart.model_construct(value=choice["value"], reason=choice["reason"])
            for name, choice in measured.choices.items()
        },
        measurements=measured.labelled,
        samples={
            name: case.fold_samples(name) for name in measured.samples if name in identity.metrics
        },
        launches=sorted(set(measured.jobs.values())),
        medians=_compute_launch_medians(case),
        fastest=_find_fastest_iterations(case),
        expectations=[
            _make_expectation_part(expectation) for expectation in execution.expectations
        ],
        ranks=_make_rank_parts(case),
        gpus=[CaseGpuPart.model_construct(**fields) for fields in describe_case_gpus(case, state)],
    )


def _make_expectation_part(expectation: Mapping[str, Any]) -> ExpectationPart:
    reference = expectation.get("reference")
    if reference is None:
        return ExpectationPart.model_construct(**expectation)
    reference_part = ReferencePart.model_construct(**reference)
    return ExpectationPart.model_construct(**{**expectation, "reference": reference_part})


def _make_straggler_part(case: CaseState, straggler: Straggler) -> StragglerPart:
    return StragglerPart.model_construct(
        rank=straggler.rank,
        host=straggler.host,
        ratio=straggler.ratio,
        since=format_timestamp(straggler.since),
        duration_s=straggler.seconds,
        cause=straggler.cause,
        sentence=straggler.describe(case),
    )


def _make_repeats_part(case: CaseState) -> RepeatsPart | None:
    until = case.identity.until
    end = case.measured.repeats_end
    if until is None:
        return None
    return RepeatsPart.model_construct(
        interval=until["interval"],
        max_time=until["max_time"],
        why=end.reason if end else None,
        width=end.width if end else case.compute_interval_width(),
    )


def _make_metric_parts(case: CaseState) -> dict[str, MetricPart]:
    declared_metrics = (*case.identity.metrics.values(), SKEW)
    metrics_and_summaries = ((metric, case.summary(metric.name)) for metric in declared_metrics)
    return {
        metric.name: MetricPart.model_construct(
            value=summary.p50, unit=metric.unit, better=metric.better, **asdict(summary)
        )
        for metric, summary in metrics_and_summaries
        if summary is not None
    }


def _compute_launch_medians(case: CaseState) -> dict[str, list[float]]:
    """Return the median of each metric in each launch with values of all ranks."""
    return {
        name: medians
        for name in case.identity.metrics
        if (medians := case.compute_launch_medians(name))
    }


def _find_fastest_iterations(case: CaseState) -> list[float]:
    """Return the shortest iteration of each launch, if the case has times."""
    if "time_ms" not in case.identity.metrics:
        return []
    return [min(map(min, repeats)) for repeats in case.fold_by_job("time_ms")]


def _make_check_part(
    name: str, result_by_repeat_and_rank: Mapping[RepeatAndRank, CheckResult]
) -> CheckPart:
    failed_ranks = {
        rank for (_, rank), result in result_by_repeat_and_rank.items() if not result.passed
    }
    ranks = {rank for _, rank in result_by_repeat_and_rank}
    worst_check = max(
        result_by_repeat_and_rank.values(), key=lambda result: (not result.passed, result.error)
    )
    return CheckPart.model_construct(
        name=name,
        status=CheckOutcome.FAILED if failed_ranks else CheckOutcome.PASSED,
        max_abs_error=worst_check.max_abs_error,
        tolerance=worst_check.tolerance,
        ranks_passed=len(ranks - failed_ranks),
        ranks_failed=len(failed_ranks),
        detail=worst_check.detail,
    )


def _make_launch_part(job: JobState) -> LaunchPart:
    return LaunchPart.model_construct(
        launcher=job.launcher,
        version=job.version,
        argv=list(job.argv),
        hostfile=job.hostfile,
        env=dict(job.env),
        job=job.number,
        oversubscribed=job.oversubscribed,
        variables=_list_variables(job),
    )


def _list_variables(job: JobState) -> list[str]:
    variables = job.requested_placement.get("variables")
    if not isinstance(variables, list):
        return []
    return [variable for variable in variables if isinstance(variable, str)]


def _make_rank_parts(case: CaseState) -> list[RankPart]:
    rank_states = case.measured.ranks.values()
    ranks_by_core = Counter(
        (rank_state.host, cpu) for rank_state in rank_states for cpu in rank_state.facts.cpus
    )
    skews = case.compute_rank_skews()
    return [
        _make_rank_part(case, rank, ranks_by_core, skews.get(rank))
        for rank in sorted(case.measured.ranks)
    ]


def _make_rank_part(
    case: CaseState, rank: int, ranks_by_core: Counter[tuple[str, int]], skew: float | None
) -> RankPart:
    rank_state = case.measured.ranks[rank]
    time_summary = summarize_repeats(case.list_rank_times(rank))
    return RankPart.model_construct(
        rank=rank,
        host=rank_state.host,
        local_rank=rank_state.facts.local_rank,
        device=rank_state.device,
        cpus=list(rank_state.facts.cpus),
        sharing=max(
            (ranks_by_core[rank_state.host, cpu] for cpu in rank_state.facts.cpus), default=None
        ),
        numa=list(rank_state.facts.nodes),
        cores=rank_state.facts.cores,
        fabric=rank_state.facts.fabric,
        place=dict(rank_state.coordinates),
        status=rank_state.status,
        time_ms=TimePart.model_construct(**asdict(time_summary)) if time_summary else None,
        skew=skew,
    )
