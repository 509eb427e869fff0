"""Cases and suites as the rest of the console sees them: complete, checked, immutable."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from spbench.suites.settings import LaunchSettings, SuiteLaunch
from spbench_core.catalog import BENCHMARKS
from spbench_core.catalog.benchmark import Benchmark, Metric, Ranks
from spbench_core.catalog.scaling import ScalingMode as ScaledWork
from spbench_core.catalog.work import Work

SCHEMA = "spbench.suite/1"

NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"
"""The names of suites, cases and systems."""

RepeatOrder = Literal["interleaved", "together"]
"""The order of repeats: each a launch of its own, the jobs by turns; or all of a case in one."""

MAX_REPEATS = 1000
"""The most repeats of a case."""

MAX_RANK_COUNTS = 100
"""The most numbers of ranks that a case is run on for its efficiency."""

MAX_HOSTS_AT_ONCE = 1000
"""The most hosts on which a case runs at once, a job each."""

STATISTICS = ("value", "n", "min", "p50", "p95", "p99", "max", "mean", "stdev")
"""The words that may follow a metric's name in an expectation."""

_SKEW = (
    "the slowest rank's median over that of the median rank with the same work; of waits that are "
    "measured, only the shortest counts"
)
DERIVED_METRICS = (Metric("skew", "1", "lower", _SKEW),)
"""Metrics that the report adds to every benchmark's own."""


@dataclass(frozen=True, slots=True)
class RepeatPolicy:
    """The end of a case's repeats: an interval of its median, or the time that they may take.

    Attributes:
        interval: The 95 % interval of the median of time_ms over its launches, over that median.
        max_time: Seconds of its launches; one that several cases share counts in equal parts.
    """

    interval: float
    max_time: float


@dataclass(frozen=True, slots=True)
class ScalingSeries:
    """What a case shares with the same case on other numbers of ranks.

    Attributes:
        of: The case's id without its number of ranks.
        work: Whether the work of all stays the same over them (strong), or a rank's (weak).
        throughput: The metric of the whole work over time; None: the work is the same at each
            number of ranks, or in proportion to them.
    """

    of: str
    work: ScaledWork
    throughput: str | None


@dataclass(frozen=True, slots=True)
class PerformanceReference:
    """A value that a metric is expected to have, and the deviations that are allowed.

    Attributes:
        value: The value, in the metric's unit.
        lower: How far a result may be below it, as a share: -0.1 is 10 %; None: no bound.
        upper: How far a result may be above it, as a share; None: no bound.
        system: The system that it belongs to; None: every system.
    """

    value: float
    lower: float | None
    upper: float | None
    system: str | None = None


@dataclass(frozen=True, slots=True)
class Expectation:
    """``metric: {max: limit}``: a bound on a metric's statistic, judged after the checks.

    ``metric`` is a metric's name, or ``name.stat`` (``time_ms.p95``). A limit that depends on what
    cases of the run measure is None, and ``expression`` says how it is worked out; once its cases
    are found, it names them by their ids.

    Attributes:
        reference: The reference that the limit follows from; None: the suite has the limit itself.
        systems: The reference of each system, until `spbench.suites.systems` chooses one. The limit
            is None then.
        skipped: Why the expectation is not judged; the limit is None then.
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
        id: ``name`` alone, or ``name[key=value,...]`` with the swept keys in file order.
        params: All parameters of the benchmark, read and completed.
        np: Ranks. None where neither the suite nor the benchmark says: then all slots.
        repeat: How often the case runs; all repeats share its id. With ``until`` at least so often.
        line: Where the case stands in its suite file.
        at_once: On how many hosts at most it runs at once, each with a job and ``np`` ranks of its
            own; 0: it is one job over all hosts.
        scaled: What it shares with the same case on other numbers of ranks; None: there are none.
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
    scaled: ScalingSeries | None = None

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
        """Whether its ranks import torch, which takes most of their start and memory."""
        return self.entry.imports_torch

    def estimate_work(self, np: int) -> Work | None:
        """Return the work of one repeat on so many ranks; None if it is unknown."""
        estimate = self.entry.work
        if estimate is None:
            return None
        try:
            return estimate(dict(self.params), np)
        except Exception:
            if not self.entry.plugin:
                raise
            return None  # a wrong estimate of a plug-in must not keep its case from running


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
