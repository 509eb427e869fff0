"""OpenMetrics text of a run for Prometheus, by node_exporter's textfile or a push.

All families are gauges without timestamps, so that readers of Prometheus' older text format accept
the file, too. Units are base units: seconds, bytes.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from spbench.errors import FailedRunError, UsageError
from spbench.record.number_formatting import GLYPHS, replace_controls
from spbench.report.formats.case_text import has_passed
from spbench.report.model import CasePart, MetricPart
from spbench.report.recorded import RecordedRun
from spbench_core.events.statuses import RunStatus

STATISTICS = ("p50", "p95", "max")
"""The statistics of a metric with several samples; one sample has only p50."""

PUSH_TIMEOUT_S = 10.0
"""Seconds in which a push gateway must answer."""
# Gateways read the older text format, which accepts this text, too.
_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class BaseUnit(NamedTuple):
    """The unit in which Prometheus keeps a quantity.

    Attributes:
        ending: The end of metrics' names in spbench's unit.
        word: The name of Prometheus' unit.
        factor: The factor from spbench's unit to Prometheus' unit.
    """

    ending: str
    word: str
    factor: float


BASE_UNITS: Mapping[str, BaseUnit] = {
    "s": BaseUnit("s", "seconds", 1.0),
    "ms": BaseUnit("ms", "seconds", 1e-3),
    "us": BaseUnit("us", "seconds", 1e-6),
    "ns/B": BaseUnit("ns", "seconds_per_byte", 1e-9),
    "B": BaseUnit("bytes", "bytes", 1.0),
    "MB": BaseUnit("mb", "bytes", 1e6),
    "GB/s": BaseUnit("gb_s", "bytes_per_second", 1e9),
    "GFLOP/s": BaseUnit("gflops", "flops", 1e9),
    "1/s": BaseUnit("per_second", "per_second", 1.0),
    "1": BaseUnit("", "", 1.0),
}

Labels = tuple[tuple[str, str], ...]


@dataclass(slots=True)
class MetricFamily:
    """A metric family: its help, its unit, and a value for each set of labels."""

    help: str
    unit: str = ""
    samples: dict[Labels, float] = field(default_factory=dict)

    def add(self, labels: Mapping[str, str], value: float) -> None:
        """Add a value, or replace the value with the same labels."""
        self.samples[tuple(labels.items())] = value


def render_openmetrics(run: RecordedRun) -> str:
    """Return a run as OpenMetrics text."""
    families = _build_run_families(run)
    for case in run.cases.values():
        labels = {"suite": run.summary.suite, "case": case.id, "benchmark": case.benchmark}
        families["spbench_passed"].add(labels, float(has_passed(case)))
        for name, metric in case.metrics.items():
            _add_metric(families, labels, name, metric, case)
    lines = (line for name, family in families.items() for line in _render_family(name, family))
    return "".join(f"{line}\n" for line in (*lines, "# EOF"))


def push_metrics(text: str, gateway: str, suite: str) -> str:
    """Replace a suite's metrics in a gateway by this OpenMetrics text; return the URL.

    Raises:
        UsageError: The gateway's address is not an HTTP or HTTPS URL.
        FailedRunError: The gateway cannot be reached, does not answer, or rejects the text.
    """
    # Loaded late, since reports in other formats need no network.
    from http.client import HTTPException
    from urllib.error import HTTPError, URLError
    from urllib.parse import quote, urlsplit
    from urllib.request import Request, urlopen

    url = urlsplit(gateway)
    if url.scheme not in ("http", "https") or not url.hostname:
        raise UsageError(f"--push {gateway}: write http://HOST:PORT, the gateway's address")
    address = f"{gateway.rstrip('/')}/metrics/job/spbench/suite/{quote(suite, safe='')}"
    request = Request(address, text.encode(), {"Content-Type": _CONTENT_TYPE}, method="PUT")
    try:
        with urlopen(request, timeout=PUSH_TIMEOUT_S):
            return address
    except HTTPError as error:
        answer = " ".join(error.read(500).decode(errors="replace").split())
        raise FailedRunError(f"{address} refused the figures: {error.code} {answer}") from None
    except (URLError, OSError, HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        raise FailedRunError(f"cannot push to {address}: {reason}; is the gateway up?") from None


def _build_run_families(run: RecordedRun) -> dict[str, MetricFamily]:
    summary = run.summary
    suite_label = {"suite": run.summary.suite}
    version = run.environment.get("spbench")
    run_info = MetricFamily("The run that the figures are of.")
    label_values = {
        "run": summary.id,
        "host": summary.host,
        "version": version,
        "machines": run.fingerprint.get("id"),
    }
    run_info.add(
        suite_label | {name: str(value) for name, value in label_values.items() if value}, 1.0
    )
    case_counts = MetricFamily("Cases by their status.")
    for status, count in _count_statuses(run.cases.values()):
        case_counts.add(suite_label | {"status": status}, count)
    return {
        "spbench_run_info": run_info,
        "spbench_run_passed": _make_single_value_family(
            "Whether the run passed.", suite_label, summary.status == RunStatus.PASSED
        ),
        "spbench_run_exit_code": _make_single_value_family(
            "Its exit code.", suite_label, summary.exit_code
        ),
        "spbench_run_started_timestamp_seconds": _make_single_value_family(
            "When it started.", suite_label, summary.started, "seconds"
        ),
        "spbench_run_finished_timestamp_seconds": _make_single_value_family(
            "When it ended.", suite_label, summary.finished, "seconds"
        ),
        "spbench_run_duration_seconds": _make_single_value_family(
            "How long it took.", suite_label, summary.duration_s, "seconds"
        ),
        "spbench_run_cases": case_counts,
        "spbench_passed": MetricFamily("Whether a case passed."),
    }


def _make_single_value_family(
    help_text: str, labels: Mapping[str, str], value: float | None, unit: str = ""
) -> MetricFamily:
    """Return a family with one value, or without values if it is unknown."""
    family = MetricFamily(help_text, unit)
    if value is not None:
        family.add(labels, float(value))
    return family


def _count_statuses(cases: Iterable[CasePart]) -> Iterator[tuple[str, float]]:
    count_by_status: Counter[str] = Counter(case.status for case in cases)
    for status in dict.fromkeys((*GLYPHS, *count_by_status)):
        yield status, float(count_by_status[status])


def _add_metric(
    families: dict[str, MetricFamily],
    labels: dict[str, str],
    name: str,
    metric: MetricPart,
    case: CasePart,
) -> None:
    base_unit = BASE_UNITS.get(metric.unit, BASE_UNITS["1"])
    stem = family_name(name, base_unit)
    help_text = f"{stem.replace('_', ' ')} of a case."
    family = families.setdefault(f"spbench_case_{stem}", MetricFamily(help_text, base_unit.word))
    for statistic in STATISTICS if metric.n > 1 else STATISTICS[:1]:
        family.add(labels | {"stat": statistic}, getattr(metric, statistic) * base_unit.factor)
    limit = case.limits.get(name)
    if limit is not None and limit.value is not None:
        help_text = f"{stem.replace('_', ' ')} at best, as measured in the same job."
        limit_family = families.setdefault(
            f"spbench_limit_{stem}", MetricFamily(help_text, base_unit.word)
        )
        limit_family.add(labels, limit.value * base_unit.factor)


def family_name(metric: str, base: BaseUnit) -> str:
    """Return a metric's name with its base unit: ``time_ms`` becomes ``time_seconds``."""
    name = re.sub(r"[^a-zA-Z0-9_]", "_", metric)
    if base.ending:
        name = re.sub(rf"(^|_){base.ending}(?=_|$)", "", name).strip("_")
    return "_".join(filter(None, (name, base.word)))


def _render_family(name: str, family: MetricFamily) -> Iterator[str]:
    if not family.samples:
        return
    yield f"# HELP {name} {_escape(family.help)}"
    yield f"# TYPE {name} gauge"
    if family.unit:
        yield f"# UNIT {name} {family.unit}"
    for labels, value in family.samples.items():
        labels_text = ",".join(f'{label}="{_escape(text)}"' for label, text in labels)
        yield f"{name}{{{labels_text}}} {value!r}"


def _escape(text: str) -> str:
    return replace_controls(text).replace("\\", "\\\\").replace('"', '\\"')
