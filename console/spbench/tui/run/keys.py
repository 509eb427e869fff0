"""The keys of the Run page, and its help."""

from __future__ import annotations

from textual.binding import Binding, BindingType

HELP = """\
The run that is watched: its cases, and the ranks of the case that runs.
Choose a case to see the ranks that it has left, f follows the running one again.
Choose a rank for its charts and logs, Escape goes back to all ranks. Tab and a click change panes.
~ marks the time of a case that still runs: it is the typical rank's so far."""

NO_RUN = """\
No run is watched.

1  compose a suite and run it
3  look at a recorded run, or play it again

A run that is started in a shell is found too: `spbench run SUITE` there, then open the console.
`spbench tui --demo` plays a recorded run and needs no MPI."""

STARTING = "… starting the run"


def _key(keys: str, action: str, name: str, id: str, tooltip: str, show: bool = False) -> Binding:
    # Priority lets the keys that come right behind / reach the filter.
    first = action == "filter"
    return Binding(keys, action, name, show, id=f"run.{id}", tooltip=tooltip, priority=first)


KEYS: list[BindingType] = [
    _key("space", "pause", "Pause", "pause", "Hold table and charts; counters go on", True),
    _key("slash", "filter", "Filter", "filter", "Show the ranks that match words", True),
    _key("v", "panel", "Panel", "panel", "The next panel below the ranks", True),
    _key("x", "cancel", "Cancel", "cancel", "Cancel the run; asks first", True),
    _key("r", "again", "Again", "again", "Start the same run again; asks first", True),
    _key("f", "follow", "Follow", "follow", "Show the running case, from now on"),
    _key("o", "slowest", "Slowest", "slowest", "Slowest ranks first, or by number again"),
    _key("m", "metric", "Metric", "metric", "The next metric in the charts"),
    _key("l", "logs", "Logs", "logs", "What the chosen rank has said, or all"),
    _key("n", "next_failed", "Next failed", "next-failed", "The next rank that failed"),
    _key("y", "copy", "Copy", "copy", "Copy the chosen rank's row, or the words"),
    _key("z", "zoom", "Zoom", "zoom", "Let the focused pane fill the page, or not"),
    _key("p", "play", "Play", "play", "Stop a replay, or go on"),
    _key("plus,equals_sign", "speed(True)", "Faster", "faster", "Play a replay faster"),
    _key("minus", "speed(False)", "Slower", "slower", "Play a replay slower"),
    _key("escape", "back", "All ranks", "back", "Leave filter, then the chosen rank"),
]
REPLAY = frozenset({"play", "speed"})
NEED_RUN = REPLAY | {
    *("pause", "filter", "panel", "cancel", "again", "follow", "slowest"),
    *("metric", "logs", "next_failed", "copy", "back"),
}
"""The actions that there is nothing to do for without a run."""
