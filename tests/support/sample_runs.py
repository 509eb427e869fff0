"""Synthetic results of recorded runs."""

from __future__ import annotations

from pathlib import Path

from spbench.record.runs.folder import RunFolder
from spbench.record.runs.history import RunSummary
from spbench.report.model import CasePart, CheckPart, MetricPart
from spbench.report.recorded import RecordedRun
from spbench_core.events.statuses import RunStatus


def make_summary(id="20260101-000000-made-up-0000", **changes):
    fields = {
        "folder": RunFolder(Path("nowhere") / id),
        "id": id,
        "suite": "made-up",
        "file": "made-up.yaml",
        "started": 1000.0,
        "finished": 1002.5,
        "status": "passed",
        "exit_code": 0,
        "argv": ("run", "made-up.yaml"),
        "duration_s": 2.5,
        "host": "login",
    }
    fields |= changes
    fields["status"] = RunStatus(fields["status"])
    return RunSummary(**fields)


def make_metric(value, unit="ms", better="lower", n=3, spread=1.0):
    """Return a metric with a minimum ``spread`` below the median, p95 above it."""
    limits = {"min": value - spread, "p95": value + spread, "p99": value + spread}
    statistics = {"p50": value, "max": value + spread, "mean": value, "stdev": spread}
    return MetricPart(value=value, unit=unit, better=better, n=n, **limits, **statistics)


def make_case(id="a", metrics=None, **changes):
    """Return a case; ``metrics`` has parts of a report, or medians in ms, by name."""
    metrics = {"time_ms": 2.0} if metrics is None else metrics
    parts = {
        name: value if isinstance(value, MetricPart) else make_metric(value)
        for name, value in metrics.items()
    }
    fields = {
        "id": id,
        "name": id.partition("[")[0],
        "benchmark": "made.up",
        "params": {"halo_len": 1},
        "np": 2,
        "status": "passed",
        "reason": None,
        "started": None,
        "finished": None,
        "attempts": 1,
        "warmup": None,
        "launch": None,
        "metrics": parts,
        "checks": [],
        "limits": {},
        "choices": {},
        "samples": {},
        "measurements": [],
        "expectations": [],
        "ranks": [],
    }
    return CasePart(**fields | changes)


def make_run(*cases, **summary_fields):
    return RecordedRun(make_summary(**summary_fields), {case.id: case for case in cases})


def make_failed_check(detail=""):
    """Return a check that failed on one rank."""
    return CheckPart(
        name="halo",
        status="failed",
        max_abs_error=1.0,
        tolerance=0.0,
        ranks_passed=1,
        ranks_failed=1,
        detail=detail,
    )
