"""Cases and suites for other packages: complete, checked, immutable."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from spbench.suites.settings import LaunchSettings, SuiteLaunch
from spbench_core.catalog import BENCHMARKS
from spbench_core.catalog.benchmark import Benchmark, Metric, Ranks
from spbench_core.catalog.work import Work
from spbench_core.events.run_events import ScalingMode

SCHEMA = "spbench.suite/1"
MIRRORED = "mirrored_"
"""The prefix of the names of a rank's second coordinates, in a bidirectional pipeline (GEMS)."""

NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"
"""The names of suites, cases and systems."""

RepeatOrder = Literal["interleaved", "together"]
"""The order of repeats: each in its own launch, interleaved over the jobs, or all in one launch."""

MAX_REPEATS = 1000
"""The limit of repeats of a case."""

MAX_RANK_COUNTS = 100
"""The limit of numbers of ranks on which a case runs to measure its efficiency."""

MAX_HOSTS_AT_ONCE = 1000
"""The limit of hosts on which a case runs at the same time, in a job on each."""

STATISTICS = ("value", "n", "min", "p50", "p95", "p99", "max", "mean", "stdev")
"""The statistics that may follow a metric's name in an expectation."""

_SKEW = (
    "the slowest rank's median over that of the median rank with the same work; of waits that are "
    "measured, only the shortest counts"
)
DERIVED_METRICS = (Metric("skew", "1", "lower", _SKEW),)
"""Metrics that the report adds to those of every benchmark."""


@dataclass(frozen=True, slots=True)
class RepeatPolicy:
    """The conditions that end the repeats of a case.

    Attributes:
        interval: The 95 % interval of the median of time_ms over its launches, divided by that
            median.
        max_time: Seconds of its launches; a launch of several cases counts in equal parts.
    """

    interval: float
    max_time: float


@dataclass(frozen=True, slots=True)
class ScalingSeries:
    """The series of the same case on several numbers of ranks.

    Attributes:
        case_id: The case's id without its number of ranks.
        work: The work that stays the same: in total (strong), or per rank (weak).
        throughput: The metric of the whole work over time; None: the work is the same for all
            numbers of ranks, or in proportion to them.
    """

    case_id: str
    work: ScalingMode
    throughput: str | None


@dataclass(frozen=True, slots=True)
class PerformanceReference:
    """The expected value of a metric, with the allowed deviations.

    Attributes:
        value: The value, in the metric's unit.
        lower: The allowed deviation below the value as a share: -0.1 is 10 %; None: no bound.
        upper: The allowed deviation above the value as a share; None: no bound.
        system: The system that it applies to; None: every system.
    """

    value: float
    lower: float | None
    upper: float | None
    system: str | None = None


@dataclass(frozen=True, slots=True)
class Expectation:
    """A bound on a metric, ``metric: {max: limit}``, judged after the checks.

    Attributes:
        metric: The name of a metric, or ``name.stat`` (``time_ms.p95``).
        op: The kind of bound.
        limit: The bound. It is None if it depends on metrics of cases of the run.
        expression: The expression that computes the limit, if it depends on cases. After
            `references` has resolved the cases, it contains their ids.
        reference: The reference that the limit follows from; None: the suite has the limit itself.
        systems: The reference of each system, until `choose_references` selects one. The limit is
            then None.
        skipped: The reason why the expectation is not judged. The limit is then None.
    """

    metric: str
    op: Literal["max", "min"]
    limit: float | None
    expression: str | None = None
    reference: PerformanceReference | None = None
    systems: Mapping[str, PerformanceReference] | None = None
    skipped: str | None = None


@dataclass(frozen=True, slots=True)
class Case:
    """One benchmark with one set of parameters.

    Attributes:
        id: ``name``, or ``name[key=value,...]`` with the swept keys in file order.
        name: The name of its entry in the suite.
        benchmark: The name of the benchmark.
        params: All parameters of the benchmark, parsed and completed.
        np: The number of ranks; None if neither the suite nor the benchmark sets it: all slots.
        repeat: The number of repeats, which share its id. With ``until`` it is the minimum.
        expect: Its expectations.
        launch: Its launch settings.
        line: Its line in the suite file.
        inject: The fault to inject, if any.
        until: The conditions that end its repeats, if any.
        at_once: The limit of hosts on which it runs at the same time, with a job of ``np`` ranks on
            each; 0: one job over all hosts.
        scaling_series: The series of the same case on other numbers of ranks, if any.
    """

    id: str
    name: str
    benchmark: str
    params: Mapping[str, Any]
    np: int | None
    repeat: int
    expect: tuple[Expectation, ...]
    launch: LaunchSettings
    line: int
    inject: str | None = None
    until: RepeatPolicy | None = None
    at_once: int = 0
    scaling_series: ScalingSeries | None = None

    @property
    def entry(self) -> Benchmark:
        """The benchmark's entry in the catalog."""
        return BENCHMARKS[self.benchmark]

    @property
    def ranks(self) -> Ranks:
        """The numbers of ranks that the benchmark runs on with these parameters."""
        return self.entry.ranks(dict(self.params))

    @property
    def imports_torch(self) -> bool:
        """Whether its ranks import torch, which takes most of their start time and memory."""
        return self.entry.imports_torch

    def estimate_work(self, np: int) -> Work | None:
        """Return the work of one repeat on a number of ranks, or None if it is unknown."""
        estimate = self.entry.work
        if estimate is None:
            return None
        try:
            return estimate(dict(self.params), np)
        except Exception:
            if not self.entry.plugin:
                raise
            return None  # a case of a plug-in runs even if its estimate fails


@dataclass(frozen=True, slots=True)
class Suite:
    """A suite file, checked and expanded."""

    path: Path
    text: str
    name: str
    description: str
    launch: SuiteLaunch
    cases: tuple[Case, ...] = field(default=())
    order: RepeatOrder = "interleaved"


def describe_stage(coordinates: Mapping[str, Any]) -> Hashable:
    """Return the stages of a rank in both directions, and whether it is a server.

    Ranks with an equal result do the same work.
    """
    names = (prefix + name for prefix in ("", MIRRORED) for name in ("stage", "stages"))
    return (*(str(coordinates.get(name)) for name in names), "server" in coordinates)
