"""The gate: compare a run with a baseline, and decide whether the run fails."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from spbench.errors import ExitCode
from spbench.record.runs.folder import RunFolder
from spbench.record.runs.notes import NO_NOTE, RunNote, read_note, write_note
from spbench.report.comparison.compare import compare, rules_out_slowdown
from spbench.report.comparison.conditions import describe_machine_differences, make_past_lookup
from spbench.report.comparison.model import (
    HEADLINE,
    CaseJudgement,
    JudgementKind,
    MetricRow,
    Outcome,
    RunComparison,
)
from spbench.report.comparison.notes import comparison_summary
from spbench.report.comparison.text import gate_lines
from spbench.report.comparison.unjudged import find_not_slower
from spbench.report.export import comparison_object
from spbench.report.model import CasePart
from spbench.report.recorded import RecordedRun
from spbench.report.text_tables import PIPE_WIDTH, wrap_text
from spbench_core.events.statuses import CaseStatus, RunStatus
from spbench_core.number_text import format_quantity


def compare_with_past(
    home: Path, a: RecordedRun, b: RecordedRun, *, force: bool = False
) -> RunComparison:
    """Compare run b with run a, with the launches of earlier runs.

    ``force`` compares them although their machines or work differ.
    """
    mismatch = None if force else describe_machine_differences(a, b)
    return compare(a, b, make_past_lookup(home, a, b), mismatch=mismatch, force=force)


@dataclass(frozen=True, slots=True)
class GatePolicy:
    """The conditions under which a comparison fails.

    Attributes:
        outcomes: The outcomes of a case that fail a comparison; if empty, no comparison fails.
        most_unjudged: The number of cases that may be unjudged.
    """

    outcomes: frozenset[str]
    most_unjudged: int = 0

    def exit_code(self, comparison: RunComparison) -> ExitCode:
        """Return the exit code of a comparison."""
        if not self.outcomes:
            return ExitCode.PASSED
        outcomes = {case.outcome for case in comparison.judgements}
        if comparison.list_judged(JudgementKind.BROKEN) or not self.outcomes.isdisjoint(outcomes):
            return ExitCode.FAILED
        if not self._has_result(comparison):
            return ExitCode.UNJUDGED
        return ExitCode.FAILED if self.list_failing_unjudged(comparison) else ExitCode.PASSED

    def list_failing_unjudged(self, comparison: RunComparison) -> list[CaseJudgement]:
        """Return the unjudged cases if there are too many, so that a comparison fails."""
        harmless = self._find_harmless(comparison)
        unjudged = comparison.list_judged(JudgementKind.UNJUDGED)
        possibly_slower = [case for case in unjudged if case.case not in harmless]
        allowed = len(possibly_slower) <= self.most_unjudged and self._has_result(comparison)
        return possibly_slower if self.outcomes and not allowed else []

    def _has_result(self, comparison: RunComparison) -> bool:
        """Return whether any case is judged or cannot fail the comparison."""
        judged = comparison.list_judged(JudgementKind.JUDGED)
        return bool(judged or self._find_harmless(comparison))

    def _find_harmless(self, comparison: RunComparison) -> set[str]:
        """Return the unjudged cases that cannot fail the comparison with any outcome."""
        if Outcome.BETTER in self.outcomes:
            return set()
        rows = (pair.headline for pair in comparison.cases)
        return {row.case for row in rows if row is not None and rules_out_slowdown(row)}

    def explain_failures(self, comparison: RunComparison, word: str = "unjudged") -> Iterator[str]:
        """Yield the reasons why a comparison fails because of too few judged cases.

        Args:
            comparison: The comparison.
            word: The word for unjudged cases; programs search reports for the default.
        """
        if not self.outcomes:
            return
        if not self._has_result(comparison) and not comparison.list_judged(JudgementKind.BROKEN):
            yield f"no case was judged against {comparison.a.id}"
        elif cases := self.list_failing_unjudged(comparison):
            count = format_quantity(len(cases), "case")
            yield f"{count} {word}, and --max-unjudged allows {self.most_unjudged}"

    def explain_failures_to_users(self, comparison: RunComparison) -> Iterator[str]:
        """Yield the reasons why a comparison fails, in the wording for users."""
        if not self.outcomes:
            return
        failing_outcomes = [
            case.outcome if case.judgement is JudgementKind.JUDGED else case.judgement
            for case in comparison.judgements
            if case.judgement is JudgementKind.BROKEN or case.outcome in self.outcomes
        ]
        if failing_outcomes:
            outcomes = " or ".join(dict.fromkeys(map(str, failing_outcomes)))
            count = format_quantity(len(failing_outcomes), "case")
            yield f"{count} {outcomes} compared with {comparison.a.id}"
        word = "not judged"
        if self._find_harmless(comparison):
            word = "not judged and maybe slower"
        elif find_not_slower(comparison):
            word = "not judged or only not slower"
        yield from self.explain_failures(comparison, word)


def rows_with_outcome(comparison: RunComparison, *outcomes: str) -> list[MetricRow]:
    """Return the primary rows of the cases with one of these outcomes."""
    outcome_by_case = {case.case: case.outcome for case in comparison.judgements}
    rows = (row for row in comparison.rows if row.metric == HEADLINE)
    return [row for row in rows if outcome_by_case.get(row.case) in outcomes]


def describe_difference(row: MetricRow, baseline: str) -> str:
    """Return a message on the difference of a case's time from the baseline's."""
    assert row.ratio is not None, "it was compared"
    if row.by_fastest:
        fastest_text = f"the fastest iteration of each launch takes {row.fastest:.3g} times that"
        return f"{fastest_text} of baseline {baseline}, and the medians {row.ratio:.3g} times"
    interval_text = ""
    if row.interval:
        interval_text = f" (95 %: {row.interval[0]:.2f} to {row.interval[1]:.2f})"
    if row.by_factor:
        interval_text = f", {row.reason}"
    return f"{row.metric} is {row.ratio:.3g} times that of baseline {baseline}{interval_text}"


@dataclass(frozen=True, slots=True)
class GateResult:
    """A run with its comparison, and the policy that decides whether it fails."""

    run: RecordedRun
    comparison: RunComparison
    policy: GatePolicy

    @property
    def failure_reasons(self) -> list[str]:
        """The reasons why the run fails the comparison."""
        reasons = [f"{case}: {reason}" for case, reason in self._explain_failing_cases().items()]
        return [*reasons, *self.policy.explain_failures(self.comparison)]

    @property
    def run_for_programs(self) -> RecordedRun:
        """The run for CI servers: cases that fail the comparison have the status failed.

        A finding has the number of judged cases, whether the run fails or not. Its wording is
        fixed, since programs search reports for it.
        """
        return self._with_failed(
            self._explain_failing_cases(),
            self.comparison.tally,
            self.policy.explain_failures(self.comparison),
        )

    @property
    def run_for_readers(self) -> RecordedRun:
        """The run for users: cases keep their status, and a failing run is failed.

        The errors of the run count the cases that fail the comparison or were not judged. The
        comparison lists them with reasons. If it judged no case, the run keeps its status.
        """
        return self._with_failed(
            {},
            comparison_summary(self.comparison),
            self.policy.explain_failures_to_users(self.comparison),
        )

    def _with_failed(
        self, failing: Mapping[str, str], tally: str, failures: Iterable[str]
    ) -> RecordedRun:
        findings = (*self.run.findings, f"against baseline {self.comparison.a.id}: {tally}")
        exit_code = self.policy.exit_code(self.comparison)
        if exit_code == ExitCode.PASSED:
            return replace(self.run, findings=findings)
        cases = dict(self.run.cases)
        missing = []
        for id_, reason in failing.items():
            if id_ in cases:
                cases[id_] = _fail_case(cases[id_], reason)
            else:
                missing.append(f"{id_}: {reason}")
        errors = (*self.run.errors, *missing, *failures)
        summary = self.run.summary
        if summary.status == RunStatus.PASSED and (failing or exit_code == ExitCode.FAILED):
            summary = replace(summary, status=RunStatus.FAILED, exit_code=int(exit_code))
        return replace(self.run, cases=cases, errors=errors, findings=findings, summary=summary)

    def exit_code(self, code: ExitCode) -> ExitCode:
        """Return the exit code of a run, given its exit code without the baseline."""
        return self.policy.exit_code(self.comparison) if code == ExitCode.PASSED else code

    def print_to(
        self, write: Callable[[str], None], *, quiet: bool = False, width: int = PIPE_WIDTH
    ) -> None:
        """Print the differences from the baseline, and the number of judged cases.

        With ``quiet``, cases are listed only if the comparison fails.
        """
        passes = self.policy.exit_code(self.comparison) == ExitCode.PASSED
        if not quiet or not passes:
            for line in gate_lines(self.comparison, width):
                write(line)
        summary = comparison_summary(self.comparison)
        for line in wrap_text(f"against baseline {self.comparison.a.id}: {summary}", width):
            write(line)
        for failure in self.policy.explain_failures_to_users(self.comparison):
            for line in wrap_text(f"error: {failure}", width):
                write(line)

    def note_failure(self, folder: RunFolder) -> None:
        """Write a note that the run fails its baseline, if it has no note.

        Lists of runs show this note.

        Raises:
            FailedRunError: The note cannot be written.
        """
        if self.policy.exit_code(self.comparison) == ExitCode.PASSED:
            return
        if read_note(folder) == NO_NOTE:
            summary = comparison_summary(self.comparison)
            write_note(folder, RunNote(f"fails baseline {self.comparison.a.id}: {summary}"))

    def add_to_report(self, report: Mapping[str, Any]) -> dict[str, Any]:
        """Return a report with the comparison and the resulting status."""
        document = {**report, "comparison": comparison_object(self.comparison)}
        run = document["run"]
        code = self.exit_code(ExitCode(run["exit_code"]))
        if code != run["exit_code"]:
            document["run"] = run | {"verdict": RunStatus.FAILED.value, "exit_code": int(code)}
            document["errors"] = [*document["errors"], *self.failure_reasons]
        return document

    def _explain_failing_cases(self) -> dict[str, str]:
        """Return the reason why each failing case fails, by case id."""
        name = self.comparison.a.id
        unjudged = {
            case.case: f"not judged against {name}: {case.reason}"
            for case in self.policy.list_failing_unjudged(self.comparison)
        }
        return unjudged | self._explain_differing_cases()

    def _explain_differing_cases(self) -> dict[str, str]:
        """Return the reason why judged and broken cases fail, by case id."""
        if not self.policy.outcomes:
            return {}
        rows = rows_with_outcome(self.comparison, *self.policy.outcomes)
        broken = self.comparison.list_judged(JudgementKind.BROKEN)
        return {
            **{case.case: str(case.reason) for case in broken},
            **{row.case: describe_difference(row, self.comparison.a.id) for row in rows},
        }


def _fail_case(case: CasePart, reason: str) -> CasePart:
    if case.status != CaseStatus.PASSED:
        return case
    return case.model_copy(update={"status": CaseStatus.FAILED, "reason": reason})


@dataclass(frozen=True, slots=True)
class BaselineGate:
    """A baseline to compare a run with, and the policy that decides on failure."""

    home: Path
    baseline: RecordedRun
    policy: GatePolicy

    def judge(self, run: RecordedRun) -> GateResult:
        """Compare a run with the baseline."""
        return GateResult(run, compare_with_past(self.home, self.baseline, run), self.policy)
