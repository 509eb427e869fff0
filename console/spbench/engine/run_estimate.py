"""The estimated duration of a run and its cases, with texts for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property

from spbench.record.number_formatting import format_duration
from spbench_core.number_text import format_quantity

UNKNOWN = "unknown"
APPROXIMATE = "~"
"""Before an estimate from the work of a case, which is less exact than one from earlier runs."""
MAX_ERROR_FACTOR = 5
"""The factor within which an estimate from the work should be."""
_NOTED_START_SHARE = 0.1
"""The share of the duration from which the start of launches is noted next to it."""


class EstimateSource(Enum):
    """The origin of an estimate."""

    HISTORY = "from earlier runs"
    WORK = "from the work"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class CaseEstimate:
    """The estimated duration of a case, of all its repeats together.

    Attributes:
        seconds: The duration with a share of the start of its launches; None if it is unknown.
        source: The origin of the estimate.
        start_seconds: The share of the start.
        num_launches: The number of its launches.
    """

    seconds: float | None
    source: EstimateSource
    start_seconds: float = 0.0
    num_launches: int = 1

    @property
    def own_seconds(self) -> float | None:
        """The duration without the start of launches, which depends on the other cases."""
        return None if self.seconds is None else max(0.0, self.seconds - self.start_seconds)

    @property
    def own_text(self) -> str:
        """The duration without the start for a table: ``7 s``, ``~7 s`` or ``unknown``."""
        return RunEstimate({"": self}).own_text

    @property
    def text(self) -> str:
        """The estimate for people: ``about 7.0 s``, or ``unknown duration``."""
        if self.seconds is None:
            return "unknown duration"
        return f"about {format_estimate(self.seconds)}"


@dataclass(frozen=True)
class RunEstimate:
    """The estimated duration of a run, and of each of its cases by id."""

    cases: Mapping[str, CaseEstimate] = field(default_factory=dict)

    @cached_property
    def seconds(self) -> float | None:
        """The duration of all cases with an estimate; None if no case has one."""
        durations = [case.seconds for case in self.cases.values() if case.seconds is not None]
        return sum(durations) if durations else None

    @cached_property
    def start_seconds(self) -> float:
        """The part of `seconds` that is for the start of launches."""
        return sum(case.start_seconds for case in self.cases.values() if case.seconds is not None)

    @cached_property
    def counts(self) -> Mapping[EstimateSource, int]:
        """The number of cases by the source of their estimate."""
        return Counter(case.source for case in self.cases.values())

    def select_cases(self, names: Iterable[str]) -> RunEstimate:
        """Return the estimate of a run with only these cases."""
        return RunEstimate({name: self.cases[name] for name in names if name in self.cases})

    @property
    def text(self) -> str:
        """The estimate in one phrase, with its source."""
        unknown = self.counts[EstimateSource.UNKNOWN]
        cases = f"{format_quantity(unknown, 'case')} of unknown duration"
        if self.seconds is None:
            return cases if unknown else ""
        more = f", without {cases}" if unknown else ""
        return f"about {format_estimate(self.seconds)} ({self._source_text}){more}"

    @property
    def short_text(self) -> str:
        """The estimate for a title: ``about 7.0 s``, ``about 40 s + 2 unknown cases``."""
        unknown = self.counts[EstimateSource.UNKNOWN]
        if self.seconds is None:
            return "unknown duration" if unknown else ""
        more = f" + {format_quantity(unknown, f'{UNKNOWN} case')}" if unknown else ""
        return f"about {format_estimate(self.seconds)}{more}"

    @property
    def start_text(self) -> str:
        """The part of the start of launches: ``(6 s to start)``; empty if it is short."""
        if self.seconds is None or self.start_seconds < _NOTED_START_SHARE * self.seconds:
            return ""
        return f"({format_estimate(self.start_seconds)} to start)"

    @property
    def total_text(self) -> str:
        """The estimate with the part of the start: ``about 7.0 s (6 s to start)``."""
        return f"{self.short_text} {self.start_text}".strip()

    @property
    def own_text(self) -> str:
        """The duration without the start: ``7 s``, ``~7 s``, ``7 s + 2 unknown``."""
        unknown = self.counts[EstimateSource.UNKNOWN]
        durations = [case.own_seconds for case in self.cases.values()]
        known_durations = [duration for duration in durations if duration is not None]
        if not known_durations:
            return UNKNOWN if unknown else ""
        sign = APPROXIMATE if self.counts[EstimateSource.WORK] else ""
        more = f" + {unknown:,} {UNKNOWN}" if unknown else ""
        return f"{sign}{format_estimate(sum(known_durations))}{more}"

    @property
    def _source_text(self) -> str:
        computed = self.counts[EstimateSource.WORK]
        recorded = self.counts[EstimateSource.HISTORY]
        if not computed:
            return EstimateSource.HISTORY.value
        if not recorded:
            return f"estimated from the work, within a factor of {MAX_ERROR_FACTOR}"
        cases = format_quantity(computed, "case")
        return f"{cases} estimated from the work, the others from earlier runs"


NO_ESTIMATE = RunEstimate()


def render_estimate(estimate: RunEstimate) -> Iterator[str]:
    """Yield the duration of a run, then that of each of its cases, for people."""
    if not estimate.cases:
        return
    yield f"duration: {estimate.text}"
    for name, case in estimate.cases.items():
        yield f"  {name}: {case.text}"


def format_estimate(seconds: float) -> str:
    """Return a duration with only as many digits as an estimate has."""
    if seconds < 1:
        return format_duration(max(0.1, float(f"{seconds:.1g}")))
    if seconds < 99.5:
        return format_duration(float(f"{seconds:.2g}")).replace(".0 s", " s")
    step = 10 if seconds < 600 else 60
    return format_duration(step * round(seconds / step)).removesuffix(" 00 s")
