"""The key bindings of the Results page, and the actions that need a failed run."""

from __future__ import annotations

from textual.binding import BindingType

from spbench.record.runs.history import RunSummary
from spbench.tui.widgets.keys import make_binding
from spbench_core.events.statuses import CaseStatus, RunStatus

HOME_ACTIONS = frozenset({"note", "pin", "delete", "failed", "rest", "repeat"})
"""Actions that need a run of the home, which the demo run is not."""
MODIFYING_ACTIONS = HOME_ACTIONS | {"export", "prune"}
"""Actions that a read-only console lacks."""
DEMO_STAYS = "the demo run comes with spbench: it does not change, and cannot be started again"
FAILURE_ACTIONS = frozenset({"failed", "rest"})
"""Actions that run failed cases again, or only cancelled ones."""
FOOTER = (
    *(
        "results.unqueue",
        "results.compare",
        "results.failed",
        "results.rest",
        "results.view",
        "results.repeat",
        "results.baseline",
        "results.attach",
        "results.mark",
    ),
    *("results.filter", "results.export", "results.replay", "results.all", "results.metric"),
    *("results.parameter", "results.pin", "results.note"),
    *("results.delete", "results.prune", "results.copy"),
)
"""The actions in the key bar, the most important first."""
RESULTS_BINDINGS: list[BindingType] = [
    make_binding("results.open", "o", "open", "Open", "Show the run on the Run page"),
    make_binding(
        "results.mark", "space", "mark", "Mark", "Mark a run, or two, to compare them", show=True
    ),
    make_binding("results.view", "v", "view", "View", "Show the next view", show=True),
    make_binding("results.filter", "slash", "filter", "Filter", "Filter the runs", show=True),
    make_binding(
        "results.export", "e", "export", "Export", "Write what is shown to a file", show=True
    ),
    make_binding(
        "results.compare",
        "c",
        "compare",
        "Compare",
        "Compare the marked runs, or this one with another",
    ),
    make_binding(
        "results.all", "A", "all_metrics", "All metrics", "Compare all metrics, or the times"
    ),
    make_binding(
        "results.repeat",
        "R",
        "repeat",
        "Run again",
        "Run again, as before or with enough launches to compare",
    ),
    make_binding("results.baseline", "b", "baseline", "Vs baseline", "Compare with a baseline"),
    make_binding("results.pin", "B", "pin", "Set baseline", "Set the run as a baseline"),
    make_binding("results.note", "t", "note", "Note", "Write a note of the run, with #tags"),
    make_binding("results.delete", "d,delete", "delete", "Delete", "Delete the run"),
    make_binding("results.prune", "P", "prune", "Prune", "Delete all but the newest runs"),
    make_binding("results.metric", "m", "metric", "Metric", "Plot the next metric"),
    make_binding(
        "results.parameter", "X", "parameter", "Parameter", "Plot over the next parameter"
    ),
    make_binding("results.next-case", "n", "case(1)", "Next case", "Show the next case"),
    make_binding("results.last-case", "N", "case(-1)", "Previous case", "Show the case before"),
    make_binding("results.replay", "p", "replay", "Replay", "Play the recorded run again"),
    make_binding("results.failed", "F", "failed", "Run failed", "Run again what failed in the run"),
    make_binding("results.rest", "F", "rest", "Run rest", "Run what was cancelled in the run"),
    make_binding(
        "results.unqueue", "x", "remove_start", "Drop start", "Remove the start that waits"
    ),
    make_binding("results.attach", "W", "attach", "Watch", "Watch a run that is still running"),
    make_binding("results.copy", "y", "copy", "Copy id", "Copy the run's id"),
]


def is_allowed(action: str, run: RunSummary) -> bool:
    """Return whether a run allows an action."""
    if action in FAILURE_ACTIONS:
        counts = run.counts or {}
        has_failed = not counts or any(status.is_bad and status in counts for status in CaseStatus)
        is_offered = has_failed != (action == "rest")
        return is_offered and run.status not in (RunStatus.RUNNING, RunStatus.PASSED)
    return action != "replay" or run.status != RunStatus.RUNNING
