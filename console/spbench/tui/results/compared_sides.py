"""The sides of a comparison: the choice of run a, the heading, and launches."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from textual.content import Content

from spbench.record.runs.folder import RunFolder
from spbench.record.runs.history import RunSummary
from spbench.report.comparison.model import HEADLINE, RunComparison
from spbench.report.comparison.notes import comparison_warnings
from spbench.report.comparison.pairs import launch_medians
from spbench.report.comparison.unjudged import LackingLaunches
from spbench.report.model import CasePart
from spbench.report.previous_times import explain_other_conditions
from spbench.stats.difference import compute_min_launches
from spbench.tui.cells import make_status_span
from spbench_core.events.statuses import RunStatus
from spbench_core.number_text import format_quantity

_CONDITION_TEXTS = {
    RunStatus.CANCELLED: "was cancelled",
    RunStatus.UNFINISHED: "did not end",
    RunStatus.ERROR: "ended in an error",
    RunStatus.TIMEOUT: "ended at a time limit",
}


@dataclass(frozen=True, slots=True)
class SideA:
    """The run or baseline that is compared with the run under the cursor.

    Attributes:
        run: The run; None for a baseline.
        baseline: The name of the baseline; None for a run.
        remark: Why it is not the newest earlier run of the suite that ended without faults.
        origin: The run that run b repeats, as text; empty unless R started it.
    """

    run: RunSummary | None = None
    baseline: str | None = None
    remark: str = ""
    origin: str = ""


def choose_side(previous: RunSummary | None, run: RunSummary, baseline: str | None) -> SideA | None:
    """Return the side to compare a run with if no run is marked; None without any.

    Args:
        previous: The best earlier run of the suite, if any.
        run: The run under the cursor.
        baseline: A baseline that the run can be compared with, if any.
    """
    if previous is not None and not explain_other_conditions(previous, run):
        return SideA(previous)
    if baseline is not None:
        remark = f"no clean earlier run of {run.suite}: a is the baseline {baseline}"
        return SideA(baseline=baseline, remark=remark)
    if previous is None:
        return None
    remark = f"no clean earlier run of {run.suite}: a {_describe_conditions(previous)}"
    return SideA(previous, remark=remark)


def _describe_conditions(run: RunSummary) -> str:
    """Return in which way a run is not comparable with the others of its suite."""
    if run.faults:
        return f"has the planted fault {', '.join(run.faults)}"
    return _CONDITION_TEXTS.get(run.status, "ran on another machine")


def build_heading(comparison: RunComparison, remark: str = "", origin: str = "") -> list[Content]:
    """Return warnings on conditions, the lines of both runs, and the origin of b.

    Args:
        comparison: The comparison.
        remark: Why run a is compared, instead of the warning on its conditions.
        origin: The run that run b repeats, as text; empty unless R started it.
    """
    warnings = comparison_warnings(comparison)
    if remark:
        warnings = [
            remark,
            *(text for text in warnings if not text.startswith(("run a ", "both runs "))),
        ]
    lines = [Content.styled(f"warning: {warning}", "$text-warning") for warning in warnings]
    lines += [_format_run("a", comparison.a), _format_run("b", comparison.b)]
    return [*lines, Content(f"b: {origin}")] if origin else lines


def _format_run(name: str, run: RunSummary) -> Content:
    host = f" on {run.host}" if run.host else ""
    if run.status == RunStatus.BASELINE:
        return Content(f"{name}  {run.id}  baseline of {run.baseline_of}{host}")
    return Content.assemble(
        f"{name}  {run.id}  ", make_status_span(run.status, run.status_text), host
    )


@dataclass(frozen=True, slots=True)
class Repetition:
    """A run to start again, with enough launches for a comparison.

    Attributes:
        launches: The launches of each case; None for as many as in the run.
        other: The id of the other side; None without a comparison.
        side: The side of the comparison, a or b; empty without one.
    """

    folder: RunFolder
    launches: int | None
    other: str | None = None
    side: str = ""


def find_needed_launches(cases: Iterable[CasePart]) -> int | None:
    """Return the launches that a comparison needs; None if the cases have them."""
    counts = [len(launch_medians(case, HEADLINE)) for case in cases if HEADLINE in case.metrics]
    needed = compute_min_launches(max(1, len(counts)))
    return needed if counts and min(counts) < needed else None


def plan_repetitions(
    comparison: RunComparison, lacking: LackingLaunches | None
) -> list[Repetition]:
    """Return the runs to start again, a before b; only b if both have enough launches.

    There are no such runs while one of both is running.
    """
    a = comparison.a
    b = comparison.b
    if RunStatus.RUNNING in (a.status, b.status):
        return []
    if lacking is None:
        return [Repetition(b.folder, None, other=a.id, side="b")]
    repetitions = []
    if lacking.in_a and a.status != RunStatus.BASELINE:
        repetitions.append(Repetition(a.folder, lacking.needed, other=b.id, side="a"))
    if lacking.in_b:
        repetitions.append(Repetition(b.folder, lacking.needed, other=a.id, side="b"))
    has_faults = bool(a.faults or b.faults)  # with a question about the faults of each run
    return repetitions[-1:] if has_faults else repetitions


def advise_repetition(comparison: RunComparison, lacking: LackingLaunches) -> str:
    """Return which side is short of launches, and the keys that add them."""
    num_cases = format_quantity(len(comparison.cases), "case")
    launches = f"{lacking.needed} launches of each case, for {num_cases}"
    if RunStatus.RUNNING in (comparison.a.status, comparison.b.status):
        return f"One is still running: when it has ended, R can run it again with {launches}."
    is_baseline = comparison.a.status == RunStatus.BASELINE
    if lacking.in_a and lacking.in_b:
        if len(plan_repetitions(comparison, lacking)) > 1:
            return f"Both sides are short: R runs both again with {launches}."
        next_step = (
            "then B makes a baseline of it" if is_baseline else "after that, it runs a again"
        )
        return f"Both sides are short: R runs b again with {launches}; {next_step}."
    if lacking.in_b:
        return f"Only b is short: R runs it again with {launches}."
    if is_baseline:
        return "Only the baseline is short: B makes one of b, which later runs compare with."
    return f"Only a is short: R runs it again with {launches}; the new run becomes b."
