"""The part of a report that the index has.

Only the JSON syntax of a report is certain, because its file may be damaged, or of another version.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from spbench.record.runs.case_durations import CaseTimes
from spbench.record.runs.report_text import read_report_file
from spbench_core.events.statuses import FINAL_STATUSES, CaseStatus

REPORT = "spbench.report/1"


class CaseWork(NamedTuple):
    """The first arguments of `hash_work`, from a report."""

    benchmark: Any
    version: Any
    np: Any
    params: Mapping[str, Any]


class LaunchMedian(NamedTuple):
    """The median of a metric in one launch, in the metric's unit."""

    metric: str
    job: int
    median: float


@dataclass(frozen=True, slots=True)
class IndexedCase:
    """The indexed part of a case.

    Attributes:
        work: The work, which determines the times.
        medians: The medians of each metric and launch.
        times: None if the case has not run.
    """

    id: str
    status: str
    work: CaseWork
    medians: tuple[LaunchMedian, ...]
    times: CaseTimes | None = None


@dataclass(frozen=True, slots=True)
class IndexedReport:
    """The indexed part of a report; its fields may be None or empty.

    Attributes:
        started: The start of the run, in seconds since the epoch.
        argv: The command line of the run.
        fingerprint: The short hash of the machines.
        hosts: The names of the hosts in the form of `join_hosts`.
        cores: The number of CPUs that all hosts have in common.
        cases: The cases by id; empty for a report of unknown schema.
    """

    started: float | None
    argv: tuple[Any, ...]
    fingerprint: str | None
    hosts: str | None
    cores: int | None
    cases: Mapping[str, IndexedCase]


def read_indexed_report(path: Path) -> IndexedReport:
    """Return the indexed part of a report's file; an empty one if it is damaged."""
    try:
        head, cases = read_report_file(path, read_case)
    except (OSError, ValueError):
        return make_indexed_report({}, ())
    return make_indexed_report(head, cases)


def make_indexed_report(
    head: Mapping[str, Any], cases: Iterable[IndexedCase | None]
) -> IndexedReport:
    """Return the indexed part of a report.

    Args:
        head: The report; its cases are not used.
        cases: The results of `read_case`.
    """
    is_known = head.get("schema") == REPORT
    run = _as_mapping(head.get("run"))
    argv = run.get("argv")
    machines = _as_mapping(_as_mapping(head.get("environment")).get("fingerprint"))
    fingerprint = machines.get("id")
    hosts = machines.get("hosts")
    return IndexedReport(
        started=_parse_rfc3339(run.get("started")),
        argv=tuple(argv) if isinstance(argv, list) else (),
        fingerprint=fingerprint if isinstance(fingerprint, str) else None,
        hosts=join_hosts(hosts) if isinstance(hosts, list) else None,
        cores=_read_common_cores(machines.get("cores")),
        cases={case.id: case for case in cases if case is not None} if is_known else {},
    )


def _read_common_cores(numbers: Any) -> int | None:
    if not isinstance(numbers, list) or len(numbers) != 1:
        return None
    cores = numbers[0]
    return cores if type(cores) is int and 0 < cores < 1 << 32 else None


def join_hosts(hosts: Iterable[Any]) -> str:
    """Return the names of hosts in the form in which the index has and finds them."""
    return ",".join(sorted(map(str, hosts)))


def read_case(case: Any) -> IndexedCase | None:
    """Return the indexed part of a case; None if it is not a case."""
    if not isinstance(case, dict) or not isinstance(case.get("id"), str):
        return None
    work = CaseWork(
        case.get("benchmark"),
        case.get("version", 1),
        case.get("np"),
        _as_mapping(case.get("params")),
    )
    status = str(case.get("status"))
    return IndexedCase(
        case["id"], status, work, tuple(_read_medians(case)), _read_times(case, status)
    )


def _read_times(case: Mapping[str, Any], status: str) -> CaseTimes | None:
    started = _parse_rfc3339(case.get("started"))
    finished = _parse_rfc3339(case.get("finished"))
    if started is None or finished is None or status not in FINAL_STATUSES:
        return None
    launches = case.get("launches")
    jobs = launches if isinstance(launches, list) else []
    if not jobs:
        jobs = [_as_mapping(case.get("launch")).get("job")]
    numbers = tuple(job for job in jobs if type(job) is int)
    samples_by_repeat = _as_mapping(case.get("samples")).get("time_ms")
    repeats = 1
    if isinstance(samples_by_repeat, list) and len(numbers) == 1:
        repeats = max(1, len(samples_by_repeat))
    return CaseTimes(case["id"], CaseStatus(status), started, finished, numbers, repeats)


def _parse_rfc3339(text: Any) -> float | None:
    """Return a time in seconds since the epoch; None if the text is not a valid time."""
    if not isinstance(text, str):
        return None
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError):
        return None


def _read_medians(case: Mapping[str, Any]) -> Iterator[LaunchMedian]:
    """Yield the valid medians of a case.

    In an older report, one launch ran all repeats of a case, and each metric has one value.
    """
    if "medians" not in case:
        job = _as_mapping(case.get("launch")).get("job")
        for metric, figures in _as_mapping(case.get("metrics")).items():
            yield from _check_median(metric, job, _as_mapping(figures).get("value"))
        return
    jobs = case.get("launches")
    jobs = jobs if isinstance(jobs, list) else []
    for metric, medians in _as_mapping(case["medians"]).items():
        for index, launch_median in enumerate(medians if isinstance(medians, list) else ()):
            job = jobs[index] if len(jobs) == len(medians) else index + 1
            yield from _check_median(metric, job, launch_median)


def _check_median(metric: str, job: Any, launch_median: Any) -> Iterator[LaunchMedian]:
    # Python reads NaN and infinities from JSON, and the index has neither
    is_finite = type(launch_median) in (int, float) and abs(launch_median) < 1e300
    if is_finite and type(job) is int and 0 <= job < 1 << 32:
        yield LaunchMedian(metric, job, float(launch_median))


def _as_mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
