"""Made-up results of recorded runs."""

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
        "verdict": "passed",
        "exit_code": 0,
        "argv": ("run", "made-up.yaml"),
        "duration_s": 2.5,
        "host": "login",
    }
    fields |= changes
    fields["verdict"] = RunStatus(fields["verdict"])
    return RunSummary(**fields)


def make_metric(value, unit="ms", better="lower", n=3, spread=1.0):
    """A metric whose least sample is ``spread`` below its median, and p95 as much above."""
    ends = {"min": value - spread, "p95": value + spread, "p99": value + spread}
    rest = {"p50": value, "max": value + spread, "mean": value, "stdev": spread}
    return MetricPart(value=value, unit=unit, better=better, n=n, **ends, **rest)


def make_case(id="a", metrics=None, **changes):
    """A case by its id; metrics are figures, or numbers in ms."""
    given = {"time_ms": 2.0} if metrics is None else metrics
    figures = {
        name: of if isinstance(of, MetricPart) else make_metric(of) for name, of in given.items()
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
        "metrics": figures,
        "checks": [],
        "limits": {},
        "choices": {},
        "samples": {},
        "measurements": [],
        "expectations": [],
        "ranks": [],
    }
    return CasePart(**fields | changes)


def make_run(*cases, **of_summary):
    return RecordedRun(make_summary(**of_summary), {each.id: each for each in cases})


def make_failed_check(detail=""):
    """A check that failed on one rank."""
    return CheckPart(
        name="halo",
        status="failed",
        max_abs_error=1.0,
        tolerance=0.0,
        ranks_passed=1,
        ranks_failed=1,
        detail=detail,
    )
