"""The key bindings of the Run page, and the actions that need a run or a replay."""

from __future__ import annotations

from textual.binding import BindingType

from spbench.tui.widgets.keys import make_binding

RUN_HELP = """\
The run that is watched: its cases, and the ranks of the case that runs.
Choose a case to see the ranks that it has left, f follows the running one again.
Choose a rank for its charts and logs, Escape goes back to all ranks. Tab and a click change panes.
time: the slowest rank in each iteration, then the median over iterations.
reference: simpler operations with the same work, in the same job. efficiency: reference / time.
checks: those that passed of those made, each on each rank.
…: of the iterations so far. ▲: a rank or link is slow, see the findings.
~ disturbed: ranks shared cores or other work had them (≈).
iters: iterations that a rank has done. last, recent: its newest times. bandwidth: its own.
The bars in "recent" have one scale for all ranks; the frame has its ends, if it is wide enough.
no waits: the median without waits for slower ranks: the rank's work, and the shortest wait of any
rank. skew: that over the same of the typical rank with the same work.
With more than 8 ranks, a strip above them has a piece for each, green to red by its skew."""
"""The help on the page, for F1."""
REPLAY_ACTIONS = frozenset({"play", "speed"})
"""Actions that need a replay."""
RUN_ACTIONS = REPLAY_ACTIONS | {
    *("pause", "filter", "panel", "cancel", "failed", "rest", "compare", "follow", "slowest"),
    *("metric", "logs", "next_problem", "copy", "back"),
}
"""Actions that need a run."""
FAILURE_ACTIONS = frozenset({"failed", "rest"})
"""Actions that run failed cases again, or only cancelled ones."""
FOOTER = (
    *(
        "run.cancel",
        "run.watch",
        "run.failed",
        "run.rest",
        "run.compare",
        "run.panel",
        "run.again",
        "run.back",
        "run.stop",
        "run.play",
        "run.next-problem",
    ),
    *("run.slowest", "run.by-rank", "run.logs", "run.filter", "run.pause"),
    "run.metric",
    *("run.follow", "run.faster", "run.slower", "run.zoom", "run.copy"),
)
"""The keys in the footer, the most important first."""
RUN_BINDINGS: list[BindingType] = [
    make_binding(
        "run.pause",
        "space",
        "pause",
        "Hold",
        "Hold table and charts; counters go on",
        show=True,
    ),
    make_binding(
        "run.filter", "slash", "filter", "Filter", "Show the ranks that match words", show=True
    ),
    make_binding("run.panel", "v", "panel", "Panel", "The next panel below the ranks", show=True),
    make_binding("run.cancel", "x", "cancel", "Cancel", "Cancel the run; asks first", show=True),
    make_binding(
        "run.again",
        "f5",
        "again",
        "Run again",
        "Start the same run again; asks if there is a choice",
        show=True,
    ),
    make_binding("run.compare", "c", "compare", "Compare", "Compare the run on the Results page"),
    make_binding("run.watch", "enter", "watch", "Watch", "Watch the run that is running"),
    make_binding("run.failed", "F", "failed", "Run failed", "Run again what failed in this run"),
    make_binding("run.rest", "F", "rest", "Run rest", "Run what was cancelled in this run"),
    make_binding("run.follow", "f", "follow", "Follow", "Show the running case, from now on"),
    make_binding("run.slowest", "o", "slowest(True)", "Slowest", "Slowest ranks first"),
    make_binding("run.by-rank", "o", "slowest(False)", "By rank", "Ranks by number again"),
    make_binding("run.metric", "m", "metric", "Metric", "The next metric in the charts"),
    make_binding("run.logs", "l", "logs", "Logs", "What the chosen rank has said, or all"),
    make_binding(
        "run.next-problem",
        "n",
        "next_problem",
        "Next problem",
        "The next failed or slow rank, of any case",
    ),
    make_binding("run.copy", "y", "copy", "Copy", "Copy the chosen rank's row, or the words"),
    make_binding("run.zoom", "z", "zoom", "Zoom", "Let the focused pane fill the page, or not"),
    make_binding("run.stop", "p", "play(False)", "Pause", "Pause the replay"),
    make_binding("run.play", "p", "play(True)", "Play", "Continue the replay"),
    make_binding("run.faster", "plus,equals_sign", "speed(True)", "Faster", "Play a replay faster"),
    make_binding("run.slower", "minus", "speed(False)", "Slower", "Play a replay slower"),
    make_binding(
        "run.back",
        "escape",
        "back",
        "All ranks",
        "Leave the filter, then chosen rank and order",
        show=True,
    ),
]
