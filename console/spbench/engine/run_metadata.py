"""The content of run.json and of the first event, with which a run starts."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from spbench.engine.plan import RunPlan
from spbench.record.hidden_values import hide_arguments, hide_params
from spbench.record.runs.folder import find_process_start, find_working_folder
from spbench.suites.case import DERIVED_METRICS, Case, Expectation
from spbench_core.events import fields as event_fields


def build_run_json(plan: RunPlan, run_id: str, environment: dict[str, Any]) -> dict[str, Any]:
    """Return the content of run.json, with the console's process."""
    return {
        "id": run_id,
        "suite": plan.suite.name,
        "file": str(plan.request.suite),
        "argv": hide_arguments(plan.request.argv),
        "cwd": find_working_folder(),
        "console": describe_console(),
        "request": plan.request.to_record(),
        "system": plan.request.system,
        "environment": environment,
        "seed": _find_common_seed(plan),
    }


def describe_console() -> dict[str, Any]:
    """Return the identity of this process, to detect later whether the run continues."""
    return {
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "started": event_fields.now(),
        "since_boot": find_process_start(os.getpid()),
    }


_END_FIELDS = (
    "verdict",
    "exit_code",
    "finished",
    "counts",
    "fault_outcome",
    "load_after",
    "fingerprint",
)
"""The fields of run.json that the end of a run adds."""


def build_resumed_json(run: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of run.json while a run that was cut short continues."""
    return {name: value for name, value in run.items() if name not in _END_FIELDS} | {
        "console": describe_console()
    }


def build_run_start(plan: RunPlan, run_id: str, environment: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of the event ``run_start``."""
    case_by_id: dict[str, Case] = {}
    np_by_first_rank: dict[str, dict[int, int]] = {}
    for job in plan.jobs:
        # A case has one job, one on each host, or one for each repeat. Those for repeats have the
        # same first rank, so that they count once.
        for case in job.cases:
            case_by_id[case.id] = case
            np_by_first_rank.setdefault(case.id, {})[job.first_rank] = job.np
    # the report keeps the order of the file, also if jobs run in another order
    ids = [case.id for case in plan.suite.cases if case.id in case_by_id]
    return {
        "id": run_id,
        "suite": plan.suite.name,
        "description": plan.suite.description,
        "argv": hide_arguments(plan.request.argv),
        "seed": _find_common_seed(plan),
        "environment": environment,
        "cases": [describe_case(case_by_id[id_], [*np_by_first_rank[id_].values()]) for id_ in ids],
    }


def _find_common_seed(plan: RunPlan) -> int | None:
    """Return the seed that all cases share; None if they differ."""
    seeds = {case.params.get("seed") for job in plan.jobs for case in job.cases}
    return seeds.pop() if len(seeds) == 1 else None


def describe_case(case: Case, ranks_per_job: Sequence[int]) -> dict[str, Any]:
    """Return the description of a case, with which readers of the run need no catalog.

    ``ranks_per_job`` are the numbers of ranks of its jobs: of one, or of one on each host.
    """
    until = {} if case.until is None else {"until": asdict(case.until)}
    shares = {"shares": list(ranks_per_job)} if len(ranks_per_job) > 1 else {}
    scaled: dict[str, Any] = {}
    if (series := case.scaling_series) is not None:
        scaled["scaled"] = {
            "of": series.case_id,
            "work": series.work,
            "throughput": series.throughput,
        }
    return _describe_identity(case, ranks_per_job) | until | shares | scaled


def _describe_identity(case: Case, ranks_per_job: Sequence[int]) -> dict[str, Any]:
    entry = case.entry
    coordinates = [
        entry.place(dict(case.params), rank) for np in ranks_per_job for rank in range(np)
    ]
    metrics = entry.list_metrics(dict(case.params))
    units = {metric.name: metric.unit for metric in (*metrics, *DERIVED_METRICS)}
    return {
        "id": case.id,
        "name": case.name,
        "benchmark": case.benchmark,
        "version": entry.version,
        "params": hide_params(case.params),
        "np": sum(ranks_per_job),
        "repeat": case.repeat,
        "inject": case.inject,
        "measures": entry.measures,
        "metrics": [
            {
                "name": m.name,
                "unit": m.unit,
                "better": m.better,
                "fold": m.fold,
                "part_of": m.part_of,
                "waits": m.waits,
            }
            for m in metrics
        ],
        "checks": list(entry.list_checks(dict(case.params))),
        "expect": [_describe_expectation(item, units) for item in case.expect],
        "places": coordinates if any(coordinates) else [],
    }


def _describe_expectation(item: Expectation, units: Mapping[str, str]) -> dict[str, Any]:
    described: dict[str, Any] = {"metric": item.metric, "op": item.op, "limit": item.limit}
    if item.expression is not None:
        described["expression"] = item.expression
    if item.reference is not None:
        name, _, statistic = item.metric.partition(".")
        unit = "1" if statistic == "n" else units[name]
        described["reference"] = {**asdict(item.reference), "unit": unit}
    if item.skipped is not None:
        described["skipped"] = item.skipped
    return described
