"""Two runs as a whole: the geometric mean of their cases' ratios, and the sums of their times.

The mean weighs every case alike, whatever its length; the sums weigh them by it, as a user waits.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import geometric_mean

from spbench.record.number_formatting import format_factor, format_time
from spbench.report.run_comparison import HEADLINE, Outcome, RunComparison


@dataclass(frozen=True, slots=True)
class Overall:
    """All cases of two runs together.

    Attributes:
        cases: The number of cases whose times can be compared.
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


def overall(comparison: RunComparison) -> Overall | None:
    """Return both runs as a whole; None with fewer than two cases that can be compared."""
    rows = [
        (row.ratio, row.a, row.b)
        for row in comparison.rows
        if row.metric == HEADLINE and row.outcome not in (None, Outcome.NOT_COMPARABLE)
    ]
    told = [(ratio, a, b) for ratio, a, b in rows if ratio and a and b]
    if len(told) < 2:
        return None
    ratios, of_a, of_b = zip(*told, strict=True)
    return Overall(len(told), geometric_mean(ratios), sum(of_a), sum(of_b))
