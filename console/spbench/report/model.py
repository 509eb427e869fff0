"""The format of a report, ``spbench.report/1``, which all views use."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, WithJsonSchema, model_validator

from spbench.record.efficiency import compute_efficiency, find_efficiency_time
from spbench.record.planted_faults import find_fault_outcome
from spbench.report.host_model import CaseGpuPart, HostPart, ReportPart
from spbench.suites.settings import build_json_schema
from spbench_core.events.run_events import Better
from spbench_core.events.statuses import (
    FINAL_STATUSES,
    CaseStatus,
    CheckOutcome,
    RankStatus,
    RunStatus,
)

SCHEMA = "spbench.report/1"


def _check_is_final(status: CaseStatus | RunStatus) -> CaseStatus | RunStatus:
    if status not in FINAL_STATUSES:
        raise ValueError(f"a report has no status {status.value!r}")
    return status


def _make_status_schema(title: str, values: Iterable[str] = ()) -> WithJsonSchema:
    """Return a status's JSON Schema with values instead of a reference to an enum."""
    enum = {"enum": [str(value) for value in values]} if values else {}
    return WithJsonSchema({**enum, "title": title, "type": "string"})


FinalStatus = Annotated[
    CaseStatus, AfterValidator(_check_is_final), _make_status_schema("Status", FINAL_STATUSES)
]
"""The status of a case in a report."""
FinalRunStatus = Annotated[
    RunStatus, AfterValidator(_check_is_final), _make_status_schema("Verdict", FINAL_STATUSES)
]
"""The status of a run in its report."""
CheckStatus = Annotated[
    CheckOutcome, _make_status_schema("Status", (CheckOutcome.PASSED, CheckOutcome.FAILED))
]
ExpectationStatus = Annotated[CheckOutcome, _make_status_schema("Status", tuple(CheckOutcome))]
RankPartStatus = Annotated[RankStatus, _make_status_schema("Status")]
_Scalar = str | int | float | bool | None


class RunPart(ReportPart):
    """The run as a whole. Times are UTC, RFC 3339."""

    id: str | None
    suite: str | None
    started: str | None
    finished: str | None
    duration_s: float | None
    verdict: FinalRunStatus
    exit_code: int
    argv: list[str]
    seed: int | None
    findings: list[str] = Field(
        default=[], description="what the run says of the cluster, in sentences"
    )


class LaunchPart(ReportPart):
    """How a case was launched."""

    launcher: str
    version: str
    argv: list[str]
    hostfile: str | None
    env: dict[str, str]
    job: int
    oversubscribed: bool
    variables: list[str] = Field(
        default=[], description="variables of the suite that the launcher's environment has"
    )

    @property
    def command_line(self) -> str:
        """The command line of the launch, with the recorded variables of the suite."""
        variables = [f"{name}={self.env[name]}" for name in self.variables if name in self.env]
        if not variables:
            return shlex.join(self.argv)
        return shlex.join(["env", *variables, *self.argv])


class CheckPart(ReportPart):
    """One check over all ranks and repeats: the worst comparison."""

    name: str
    status: CheckStatus
    max_abs_error: float | None
    tolerance: float
    ranks_passed: int
    ranks_failed: int
    detail: str

    @model_validator(mode="after")
    def _check_consistency(self) -> Self:
        """Reject a passed check with an error above its tolerance, or with failed ranks."""
        above = self.max_abs_error is not None and self.max_abs_error > self.tolerance
        if self.status == CheckOutcome.PASSED and (above or self.ranks_failed):
            raise ValueError(f"the check {self.name} passed, and its figures say that it failed")
        return self


class _Figure(ReportPart):
    value: float
    unit: str
    better: Better


class _Samples(ReportPart):
    n: int
    min: float
    p50: float
    p95: float
    p99: float
    max: float
    mean: float


class MetricPart(_Samples, _Figure):  # the fields of the last base come first
    """A metric over all repeats and iterations; ``value`` is p50."""

    stdev: float


class LimitPart(ReportPart):
    """The reference of a metric, as measured in the same job."""

    value: float | None
    unit: str
    measured_by: str


class ChoicePart(ReportPart):
    """A choice that the ranks made because no parameter sets it, with the reason."""

    value: str
    reason: str


class ReferencePart(ReportPart):
    """The reference that a limit follows from, with the allowed deviations."""

    value: float
    unit: str
    lower: float | None = Field(description="as a share of the value, 0 or below; null: no bound")
    upper: float | None = Field(description="as a share of the value, 0 or above; null: no bound")
    system: str | None = Field(description="the system that it belongs to; null: every system")


class ExpectationPart(ReportPart):
    """An expectation of the suite, with the measured value."""

    metric: str
    op: Literal["max", "min"]
    limit: float | None = Field(
        description="null if its expression came to none, or the system has no reference"
    )
    value: float | None
    status: ExpectationStatus
    expression: str | None = Field(
        default=None, description="how the limit is worked out from figures of cases of the run"
    )
    reason: str | None = Field(default=None, description="why there is no limit")
    reference: ReferencePart | None = Field(
        default=None, description="the reference that the limit follows from"
    )


class TimePart(_Samples):
    """A rank's own times of one iteration, in ms."""


class RankPart(ReportPart):
    """A rank's part in a case. ``place`` has its tile, stage and replica, if any."""

    rank: int
    host: str
    local_rank: int | None
    device: str | None
    cpus: list[int] = Field(default=[], description="the CPUs it may run on")
    sharing: int | None = Field(
        default=None, description="the most ranks that may run on any one of these CPUs; 1: alone"
    )
    numa: list[int] = Field(default=[], description="the NUMA nodes of these CPUs")
    cores: int | None = Field(default=None, description="the physical cores of these CPUs")
    fabric: str | None = Field(default=None, description="the adapters of its host, or tcp")
    place: dict[str, Any] = Field(default={})
    status: RankPartStatus
    time_ms: TimePart | None
    skew: float | None = Field(
        default=None,
        description="its own time over that of the median rank with the same work; null: none has",
    )


class StragglerPart(ReportPart):
    """A rank that was slow for long, or a host with all its ranks."""

    rank: int | None = Field(description="null: all ranks of the host")
    host: str
    ratio: float = Field(description="its time over that of the median rank with the same work")
    since: str | None = Field(description="when that began")
    duration_s: float
    cause: bool = Field(description="whether it is slow itself; false: it may wait for one that is")
    sentence: str


class EarlierPart(ReportPart):
    """The outcome of a case that was tried again."""

    status: FinalStatus
    reason: str | None


class RepeatsPart(ReportPart):
    """The repeats of a case that end once its median is precise, or at a time limit."""

    interval: float = Field(description="the width that was asked for, over the median")
    max_time: float = Field(description="the seconds that its launches might take")
    why: Literal["interval", "max_time", "repeats", "check"] | None = Field(
        description="what ended them: one of the two, too many, or a failed check; null: a fault"
    )
    width: float | None = Field(description="the width of the median's 95 % interval, over it")


class ScaledPart(ReportPart):
    """The common properties of a case on different numbers of ranks."""

    of: str = Field(description="its id without the number of ranks")
    work: Literal["strong", "weak"] = Field(
        description="what stays the same over them: the work of all, or that of a rank"
    )
    throughput: str | None = Field(
        description="the metric of the work over time; null: the work is as `work` says"
    )


class CasePart(ReportPart):
    """One case."""

    id: str
    name: str
    benchmark: str
    version: int = Field(default=1, description="the version of the benchmark")
    params: dict[str, Any]
    np: int
    status: FinalStatus
    reason: str | None
    traceback: str | None = None
    started: str | None
    finished: str | None
    attempts: int
    earlier: list[EarlierPart] = Field(
        default=[], description="how it came out before it was tried again"
    )
    warmup: int | None
    noisy: str | None = Field(
        default=None, description="why its times are not the hardware's alone; null: they are"
    )
    stragglers: list[StragglerPart] = Field(
        default=[], description="ranks and hosts that were slow for long, the worst first"
    )
    until: RepeatsPart | None = Field(
        default=None, description="what its repeats went on for, and what ended them"
    )
    scaled: ScaledPart | None = None
    launch: LaunchPart | None
    checks: list[CheckPart]
    metrics: dict[str, MetricPart]
    limits: dict[str, LimitPart]
    choices: dict[str, ChoicePart] = Field(default={})
    measurements: list[dict[str, _Scalar]] = Field(
        default=[], description="labelled values: a link's latency at one message size"
    )
    samples: dict[str, list[list[float]]] = Field(default={})
    launches: list[int] = Field(
        default=[], description="the jobs that ran its repeats; a job is one launch"
    )
    medians: dict[str, list[float]] = Field(
        default={}, description="each metric's median in each of these launches"
    )
    fastest: list[float] = Field(
        default=[], description="the shortest time_ms of an iteration in each of these launches"
    )
    expectations: list[ExpectationPart]
    ranks: list[RankPart]
    gpus: list[CaseGpuPart] = Field(
        default=[], description="the GPUs of its ranks while it was timed"
    )

    @property
    def shown_status(self) -> CaseStatus:
        """The case's status, or ``flaky`` if it passed in a later attempt."""
        passed_later = self.status == CaseStatus.PASSED and self.earlier
        return CaseStatus.FLAKY if passed_later else self.status

    @property
    def status_text(self) -> str:
        """The status for people, who see whether a planted fault was found."""
        outcome = find_fault_outcome(self.reason) if self.status.is_bad else None
        return outcome or self.shown_status

    def efficiency(self, metric: str = "time_ms") -> float | None:
        """Return a metric's efficiency, 1 if it equals its reference; None without either."""
        measured = self.metrics.get(metric)
        reference = self.limits.get(metric)
        if measured is None or reference is None:
            return None
        return compute_efficiency(measured.value, reference.value, measured.better)

    @property
    def shown_metrics(self) -> dict[str, MetricPart]:
        """The displayed metrics: all except an efficiency that is shown with the time."""
        has_efficiency = self.efficiency() is not None
        return {
            name: metric
            for name, metric in self.metrics.items()
            if not (has_efficiency and find_efficiency_time(name, self.limits) == "time_ms")
        }

    @property
    def disturbed(self) -> bool:
        """Whether its times are disturbed by noise or by more ranks than cores."""
        return bool(self.crowded) or self.noisy is not None

    @property
    def crowded(self) -> bool | None:
        """Whether it had more ranks than cores; None if that is unknown."""
        return None if self.launch is None else self.launch.oversubscribed

    @property
    def check_counts(self) -> tuple[int, int]:
        """The number of checks that passed and that were made, each counted once per rank."""
        passed = sum(check.ranks_passed for check in self.checks)
        return passed, passed + sum(check.ranks_failed for check in self.checks)


class Report(ReportPart):
    """A whole report."""

    schema_: Literal["spbench.report/1"] = Field(alias="schema")
    run: RunPart
    environment: dict[str, Any]
    cases: list[CasePart]
    hosts: list[HostPart] = Field(
        default=[], description="the load of each host, as its ranks said it"
    )
    errors: list[str]
    comparison: dict[str, Any] | None = Field(
        default=None,
        description="the run, b, against a baseline, a, as `spbench compare --format json` has it",
    )


def report_schema() -> dict[str, Any]:
    """Return the JSON Schema of a report."""
    return build_json_schema(Report, mode="serialization")
