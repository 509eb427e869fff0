"""A run held against another or a baseline, with what the home knows of their machines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from spbench.errors import ExitCode
from spbench.record.number_formatting import clean
from spbench.report.compare import HEADLINE, MetricRow, RunComparison, compare
from spbench.report.export import comparison_object
from spbench.report.machines import unlike
from spbench.report.past import past_of
from spbench.report.recorded import RecordedRun
from spbench.report.tables import interval


def comparison_of(
    home: Path, a: RecordedRun, b: RecordedRun, *, force: bool = False
) -> RunComparison:
    """Return run b against run a; ``force`` compares although their machines differ."""
    apart = None if force else unlike(a, b)
    return compare(a, b, past_of(home, a, b), unlike=apart)


def with_outcome(comparison: RunComparison, *outcomes: str) -> list[MetricRow]:
    """Return the headline rows that came out as one of these."""
    rows = (row for row in comparison.rows if row.metric == HEADLINE)
    return [row for row in rows if row.outcome in outcomes]


def sentence_of(row: MetricRow, baseline: str) -> str:
    """Return a row in a sentence: how a case's time differs from the baseline's."""
    assert row.ratio is not None, "it was compared"
    if row.by_fastest:
        told = f"the fastest iteration of each launch takes {row.fastest:.3g} times that"
        return f"{row.case}: {told} of baseline {baseline}, and the medians {row.ratio:.3g} times"
    within = f" (95 %: {interval(row)})" if row.interval else ""
    return f"{row.case}: {row.metric} is {row.ratio:.3g} times that of baseline {baseline}{within}"


def failed_by(run: RecordedRun, rows: list[MetricRow], baseline: str) -> RecordedRun:
    """Return a run whose cases of these rows have failed, since they differ from a baseline."""
    cases = dict(run.cases)
    for row in rows:
        case = cases[row.case]
        if case.status == "passed":
            why = sentence_of(row, baseline)
            cases[row.case] = case.model_copy(update={"status": "failed", "reason": why})
    return replace(run, cases=cases)


@dataclass(frozen=True, slots=True)
class Held:
    """A run beside its baseline; ``fails`` are the outcomes of a time that fail it."""

    run: RecordedRun
    comparison: RunComparison
    fails: frozenset[str]

    @property
    def failing(self) -> list[str]:
        """A sentence for each case whose time fails the run."""
        return [sentence_of(row, self.comparison.a.id) for row in self._failing()]

    @property
    def shown(self) -> RecordedRun:
        """The run with those cases failed, as a test server is to show them."""
        return failed_by(self.run, self._failing(), self.comparison.a.id)

    def _failing(self) -> list[MetricRow]:
        return with_outcome(self.comparison, *self.fails)

    def exit_code(self, code: ExitCode) -> ExitCode:
        """Return the exit code of a run that had this one without its baseline."""
        return ExitCode.FAILED if self._failing() and code == ExitCode.PASSED else code

    def tell(self, write: Callable[[str], None]) -> None:
        """Print what differs from the baseline, and what could not be compared."""
        for line in self._lines():
            write(clean(line))

    def _lines(self) -> Iterator[str]:
        comparison = self.comparison
        name = comparison.a.id
        for row in with_outcome(comparison, "worse", "better"):
            yield f"{row.outcome}: {sentence_of(row, name)}"
        if apart := with_outcome(comparison, "not comparable"):
            count = f"{len(apart)} case{'s are' if len(apart) > 1 else ' is'}"
            yield f"warning: {count} not comparable with {name}: {apart[0].reason}"
        if not comparison.cases:
            yield f"warning: baseline {name} has no case of this run"
        yield f"against baseline {name}: {comparison.tally}"

    def document(self, report: dict[str, Any]) -> dict[str, Any]:
        """Return a report with the comparison, and the verdict that follows from it."""
        report = report | {"comparison": comparison_object(self.comparison)}
        run = report["run"]
        if self.exit_code(ExitCode(run["exit_code"])) != run["exit_code"]:
            report["run"] = run | {"verdict": "failed", "exit_code": int(ExitCode.FAILED)}
            report["errors"] = [*report["errors"], *self.failing]
        return report


@dataclass(frozen=True, slots=True)
class Against:
    """A baseline that a run is going to be held against; ``fails`` as in `Held`."""

    home: Path
    baseline: RecordedRun
    fails: frozenset[str]

    def hold(self, run: RecordedRun) -> Held:
        """Return a run beside the baseline."""
        return Held(run, comparison_of(self.home, self.baseline, run), self.fails)
