"""Facts about a run or a case as a table with the labels at the left."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from rich.table import Table
from rich.text import Text

from spbench.record.number_formatting import format_duration, replace_line_controls
from spbench.record.runs.history import RunSummary
from spbench.report.previous_times import explain_other_conditions, list_earlier_runs
from spbench.report.run_details import Fact
from spbench.report.times import format_day_and_time
from spbench.tui.advice import name_keys

_COMMAND_FACTS = ("command", "launch")
"""Labels of the facts that are commands, which keep their options."""


def build_fact_table(facts: Iterable[Fact]) -> Table:
    """Return facts as a table that wraps texts at words."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(ratio=1)
    for fact in facts:
        text = fact.text if fact.label in _COMMAND_FACTS else name_keys(fact.text)
        table.add_row(Text(fact.label), Text(replace_line_controls(text)))
    return table


def list_previous_run(
    runs: Sequence[RunSummary], run: RunSummary, describe_status: Callable[[RunSummary], str]
) -> list[Fact]:
    """Return a fact about the last clean run before a run, or else the last."""
    earlier = list_earlier_runs(runs, run)
    clean = [other for other in earlier if not explain_other_conditions(other, run)]
    facts = []
    for previous in (clean or earlier)[:1]:
        remark = explain_other_conditions(previous, run)
        took = "" if previous.duration_s is None else f" in {format_duration(previous.duration_s)}"
        started = format_day_and_time(previous.started)
        note = f" ({remark})" if remark else ""
        facts.append(Fact("previous", f"{started} {describe_status(previous)}{took}{note}"))
    return facts


def format_exact_times(run: RunSummary, marks: Sequence[str] = ()) -> str:
    """Return the id, the exact times, the marks and the note of a run."""
    duration = "" if run.duration_s is None else f"{run.duration_s:.3f} s"
    times = ", ".join(filter(None, (format_day_and_time(run.started), duration, *marks)))
    lines = [run.id, times, str(run.note)]
    return "\n".join(filter(None, lines))
