"""From RunState to the report: the only writer of its format."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from spbench.errors import ExitCode
from spbench.record.case_state import CaseState
from spbench.record.state import JobState, RankState, RunState
from spbench.record.statistics import summarize
from spbench.report.model import SCHEMA, Report
from spbench.report.recorded import recorded_case, settled
from spbench.report.times import timestamp

_REFUSED = {
    ExitCode.NOTHING: "skipped",
    ExitCode.BUDGET: "cancelled",
    ExitCode.INTERRUPTED: "cancelled",
    ExitCode.TERMINATED: "cancelled",
}


def build_report(state: RunState) -> dict[str, Any]:
    """Return the report of a run, finished or not, checked against its own format.

    A case that has no verdict, since the console was killed, counts as an error or as skipped.
    """
    run = state.run
    assert run is not None, "a state without run_start has no report"
    document = {
        "schema": SCHEMA,
        "run": {
            "id": run.id,
            "suite": run.suite,
            "started": timestamp(run.started),
            "finished": timestamp(run.finished),
            "duration_s": None if run.finished is None else round(run.finished - run.started, 6),
            "verdict": run.verdict or "error",
            "exit_code": ExitCode.ERROR if run.exit_code is None else run.exit_code,
            "argv": list(run.argv),
            "seed": run.seed,
            "findings": state.findings,
        },
        "environment": dict(run.environment) | {"ranks": _versions(state.ranks.values())},
        "cases": [_case(case, state) for case in state.cases.values()],
        "errors": state.errors or _reasons(state.cases.values()),
    }
    return checked(document)


def refused_report(
    error: str, exit_code: ExitCode, argv: Sequence[str], suite: str | None = None
) -> dict[str, Any]:
    """Return the report of a run that never started."""
    run = {
        "id": None,
        "suite": suite,
        "started": None,
        "finished": None,
        "duration_s": None,
        "verdict": _REFUSED.get(exit_code, "error"),
        "exit_code": int(exit_code),
        "argv": list(argv),
        "seed": None,
    }
    document = {"schema": SCHEMA, "run": run, "environment": {}, "cases": []}
    return checked(document | {"errors": error.splitlines()})


def checked(document: dict[str, Any]) -> dict[str, Any]:
    """Return the document as its format has it."""
    return Report.model_validate(document).model_dump(mode="json", by_alias=True)


def without_samples(report: dict[str, Any]) -> dict[str, Any]:
    """Return the report with its cases' samples left out."""
    return report | {"cases": [case | {"samples": {}} for case in report["cases"]]}


def _reasons(cases: Iterable[CaseState]) -> list[str]:
    bad = ("error", "timeout")
    return [f"{case.id}: {case.reason}" for case in cases if case.status in bad]


def _versions(ranks: Iterable[RankState]) -> dict[str, Any]:
    """What the ranks said of their software, once where all say the same."""
    told: dict[str, list[Any]] = {}
    for rank in ranks:
        facts = {**rank.versions, "fabric": rank.fabric, "threads": rank.threads}
        for name, value in facts.items():
            values = told.setdefault(name, [])
            if value not in values:
                values.append(value)
    return {name: values[0] if len(values) == 1 else values for name, values in told.items()}


def _case(case: CaseState, state: RunState) -> dict[str, Any]:
    result = settled(recorded_case(case))
    job = state.jobs.get(case.job) if case.job is not None else None
    return {
        "id": case.id,
        "name": case.name,
        "benchmark": case.benchmark,
        "params": result.params,
        "np": case.np,
        "status": result.status,
        "reason": result.reason,
        "traceback": case.traceback,
        "started": timestamp(case.started),
        "finished": timestamp(case.finished),
        "attempts": case.attempts,
        "warmup": case.params.get("warmup"),
        "launch": _launch(job) if job is not None else None,
        "checks": [asdict(check) for check in result.checks],
        "metrics": {name: asdict(metric) for name, metric in result.metrics.items()},
        "limits": {name: asdict(limit) for name, limit in result.limits.items()},
        "choices": case.choices,
        "measurements": case.measurements,
        "samples": result.samples,
        "expectations": case.expectations,
        "ranks": _ranks(case),
    }


def _launch(job: JobState) -> dict[str, Any]:
    return {
        "launcher": job.launcher,
        "version": job.version,
        "argv": list(job.argv),
        "hostfile": job.hostfile,
        "env": dict(job.env),
        "job": job.number,
        "oversubscribed": job.oversubscribed,
    }


def _ranks(case: CaseState) -> list[dict[str, Any]]:
    parts = case.ranks.values()
    crowd = Counter((part.host, cpu) for part in parts for cpu in part.cpus)
    return [_rank(case, rank, crowd) for rank in sorted(case.ranks)]


def _rank(case: CaseState, rank: int, crowd: Counter[tuple[str, int]]) -> dict[str, Any]:
    part = case.ranks[rank]
    summary = summarize(case.rank_times(rank))
    times = asdict(summary) if summary else None
    if times is not None:
        del times["stdev"]
    return {
        "rank": rank,
        "host": part.host,
        "local_rank": part.local_rank,
        "device": part.device,
        "cpus": list(part.cpus),
        "sharing": max((crowd[part.host, cpu] for cpu in part.cpus), default=None),
        "place": dict(part.place),
        "status": part.status,
        "time_ms": times,
    }
