"""The result of a comparison of two runs: by metric, by case, and over all cases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from statistics import geometric_mean

from spbench.record.number_formatting import format_factor, format_time
from spbench.record.runs.history import RunSummary
from spbench.report.comparison.deciding_factor import DecidingFactor
from spbench_core.events.statuses import CaseStatus
from spbench_core.number_text import format_quantity

HEADLINE = "time_ms"
"""The primary metric, which every case has."""


class Outcome(StrEnum):
    """The outcome of a metric in run b, compared with run a."""

    BETTER = "better"
    WORSE = "worse"
    SAME = "same"
    TOO_FEW = "not enough samples"
    NOT_COMPARABLE = "not comparable"

    @property
    def is_decided(self) -> bool:
        """Whether the metric was judged."""
        return self in (Outcome.BETTER, Outcome.WORSE, Outcome.SAME)


OUTCOMES = tuple(Outcome)


class JudgementKind(StrEnum):
    """Whether a comparison judged a case; a broken case fails with any time."""

    JUDGED = "judged"
    UNJUDGED = "unjudged"
    BROKEN = "broken"


_JUDGEMENTS = {"not judged": JudgementKind.UNJUDGED, "broken": JudgementKind.BROKEN}
ONLY_WORDS = (*OUTCOMES, *_JUDGEMENTS)
"""The words that choose rows of a comparison."""


@dataclass(frozen=True, slots=True)
class CaseJudgement:
    """The result of a comparison for one case.

    Attributes:
        outcome: The outcome of its time, if any; a broken case may have one, too.
        reason: Why it was not judged, or is broken; None if it was judged.
    """

    case: str
    judgement: JudgementKind
    outcome: Outcome | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class MetricRow:
    """One metric of one case in both runs.

    Attributes:
        a: The median in run a, in ``unit``; None if it was not measured.
        b: The same of run b.
        ratio: b over a; None if it cannot be computed.
        interval: The ends of the ratio's 95 % interval; None with too few launches.
        launches: The number of launches of a and of b.
        chance: The p-value: the probability of a difference this large between equals; None without
            a ratio.
        fastest: The ratio of the launches' fastest iterations; None for other metrics than time.
        by_fastest: Whether ``chance`` is small by the fastest iterations, and not by the medians.
        past: The number of earlier runs with a spread that widened the interval.
        factor: The ratio beyond which a time is judged without a test; None if the case is noisy.
        by_factor: Whether the outcome follows from this factor.
        outcome: None if the two cannot be judged.
        reason: Why there is no ratio or no outcome, or a remark on the outcome.
    """

    case: str
    metric: str
    unit: str
    better: str
    a: float | None
    b: float | None
    ratio: float | None = None
    interval: tuple[float, float] | None = None
    launches: tuple[int, int] = (0, 0)
    chance: float | None = None
    fastest: float | None = None
    by_fastest: bool = False
    past: int = 0
    factor: DecidingFactor | None = None
    by_factor: bool = False
    outcome: Outcome | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class CasePair:
    """A case that is in both runs.

    Attributes:
        differences: The differences between the two cases except in their times, one short clause
            each: parameters, ranks, the benchmark, noise.
        rows: One for each metric that either run has.
        broken: Whether it failed in b, lost a check there, or has no result.
        benchmark: The name of its benchmark.
    """

    id: str
    status_a: str
    status_b: str
    differences: tuple[str, ...]
    rows: tuple[MetricRow, ...]
    broken: bool = False
    benchmark: str = ""

    @property
    def headline(self) -> MetricRow | None:
        """The row of its primary metric, by which the case is judged."""
        return next((row for row in self.rows if row.metric == HEADLINE), None)

    @property
    def cancelled(self) -> str:
        """``cancelled in b`` for a case that the user stopped in run b, or an empty text."""
        runs = [
            name
            for name, status in (("a", self.status_a), ("b", self.status_b))
            if status == CaseStatus.CANCELLED
        ]
        return f"cancelled in {' and '.join(runs)}" if runs else ""

    @property
    def remarks(self) -> tuple[str, ...]:
        """The remarks on each row: statuses other than passed, and differences."""
        if self.status_a == self.status_b == CaseStatus.PASSED:
            return self.differences
        return (f"{self.status_a} in a, {self.status_b} in b", *self.differences)


@dataclass(frozen=True, slots=True)
class RunConditions:
    """The conditions under which the times of one run were measured.

    Attributes:
        faults: The planted faults, such as ``slow (case exchange)``.
        noise: Why the times of a case are noisy, by the case's id.
        crowded: The ids of the cases with more ranks than cores.
    """

    faults: tuple[str, ...] = ()
    noise: Mapping[str, str] = field(default_factory=dict)
    crowded: frozenset[str] = frozenset()

    def is_disturbed(self, case: str) -> bool:
        """Return whether a case's times are not those of the hardware only."""
        return case in self.noise or case in self.crowded


@dataclass(frozen=True, slots=True)
class RunComparison:
    """Two runs: the cases of both in a's order, and the ids that only one of them has.

    Attributes:
        judgements: The judgement of each case of either run, except those that a filter excluded
            from b.
        conditions: The conditions of run a and of run b.
        machines: The differences between the machines and libraries of the two runs, if any.
        versions: The ids of cases by a clause on the two versions of their benchmark.
        references: By case, the ratio of the references of its time in b and in a.
        needed_launches: The launches per side that a test of all its cases together needs.
        only: The outcome that `select_rows` has restricted the rows to.
    """

    a: RunSummary
    b: RunSummary
    cases: tuple[CasePair, ...]
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]
    judgements: tuple[CaseJudgement, ...] = ()
    conditions: tuple[RunConditions, RunConditions] = (RunConditions(), RunConditions())
    machines: str | None = None
    versions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    references: Mapping[str, float] = field(default_factory=dict)
    needed_launches: int = 0
    only: str | None = None

    @property
    def rows(self) -> Iterator[MetricRow]:
        """The rows of all cases."""
        return (row for pair in self.cases for row in pair.rows)

    def list_judged(self, kind: JudgementKind) -> list[CaseJudgement]:
        """Return the judgements of this kind."""
        return [judgement for judgement in self.judgements if judgement.judgement is kind]

    def select_rows(self, word: str) -> RunComparison:
        """Return the comparison with the rows of one outcome or judgement.

        Args:
            word: One of `ONLY_WORDS`.
        """
        if (kind := _JUDGEMENTS.get(word)) is not None:
            ids = {judgement.case for judgement in self.list_judged(kind)}
            return replace(self, cases=tuple(pair for pair in self.cases if pair.id in ids))
        pairs = (
            replace(pair, rows=tuple(row for row in pair.rows if row.outcome == word))
            for pair in self.cases
        )
        return replace(self, cases=tuple(pair for pair in pairs if pair.rows), only=word)

    @property
    def tally(self) -> str:
        """The numbers of cases: ``3 of 5 cases judged (1 worse, 2 same), 2 unjudged``."""
        counts = Counter(judgement.outcome for judgement in self.list_judged(JudgementKind.JUDGED))
        outcomes = [f"{counts[outcome]} {outcome}" for outcome in OUTCOMES if counts[outcome]]
        detail = f" ({', '.join(outcomes)})" if outcomes else ""
        judged = (
            f"{counts.total()} of {format_quantity(len(self.judgements), 'case')} judged{detail}"
        )
        others = (
            f"{len(judgements)} {kind}"
            for kind in (JudgementKind.UNJUDGED, JudgementKind.BROKEN)
            if (judgements := self.list_judged(kind))
        )
        return ", ".join((judged, *others))


@dataclass(frozen=True, slots=True)
class Overall:
    """All cases of two runs together.

    In the mean, every case has the same weight. In the sums, long cases weigh more.

    Attributes:
        cases: The number of cases with times that can be compared.
        mean_ratio: The geometric mean of the ratios of b to a.
        sum_a: The sum of a's median times of an iteration, in ms.
        sum_b: The same of run b.
    """

    cases: int
    mean_ratio: float
    sum_a: float
    sum_b: float

    @property
    def sentence(self) -> str:
        """The mean and the sums as text for a note."""
        cases = f"{self.cases} cases, each counted alike"
        mean = f"Geometric mean of b/a over {cases}: {format_factor(self.mean_ratio)}."
        sums = f"{format_time(self.sum_a)} in a, {format_time(self.sum_b)} in b"
        ratio = format_factor(self.sum_b / self.sum_a)
        return f"{mean} Sum of the times, mostly that of long cases: {sums} ({ratio})."


def compute_overall(comparison: RunComparison) -> Overall | None:
    """Return the mean ratio and the sums; None with fewer than two comparable cases."""
    rows = [
        (row.ratio, row.a, row.b)
        for row in comparison.rows
        if row.metric == HEADLINE and row.outcome not in (None, Outcome.NOT_COMPARABLE)
    ]
    comparable = [(ratio, a, b) for ratio, a, b in rows if ratio and a and b]
    if len(comparable) < 2:
        return None
    ratios, times_a, times_b = zip(*comparable, strict=True)
    return Overall(len(comparable), geometric_mean(ratios), sum(times_a), sum(times_b))
