"""The keys of the Results page, and its help."""

from __future__ import annotations

from textual.binding import Binding, BindingType

HELP = """\
Recorded runs and what they measured. Tab goes from the runs to the view at the right, v to the
next view: the cases of the run under the cursor, two runs side by side, a metric over runs, a
metric over a swept parameter."""

KEYS: list[BindingType] = [
    Binding("o", "open", "Open", id="results.open", tooltip="Show the run on the Run page"),
    Binding("space", "mark", "Mark", id="results.mark", tooltip="Mark the run to compare with"),
    Binding("v", "view", "View", id="results.view", tooltip="Show the next view"),
    # Priority lets the keys that come right behind it reach the filter.
    Binding(
        *("slash", "filter", "Filter"),
        id="results.filter",
        tooltip="Filter the runs",
        priority=True,
    ),
    Binding("e", "export", "Export", id="results.export", tooltip="Write what is shown to a file"),
    *(
        Binding(key, action, title, show=False, id=f"results.{name}", tooltip=tooltip)
        for key, action, title, name, tooltip in (
            ("c", "compare", "Compare", "compare", "Compare the marked run with this one"),
            ("m", "metric", "Metric", "metric", "Plot the next metric"),
            ("p", "parameter", "Parameter", "parameter", "Plot over the next parameter"),
            ("n", "case(1)", "Next case", "next-case", "Show the next case"),
            ("N", "case(-1)", "Last case", "last-case", "Show the case before"),
            ("r", "replay", "Replay", "replay", "Play the recorded run again"),
            ("a", "attach", "Attach", "attach", "Watch a run that still goes on"),
            ("y", "copy", "Copy id", "copy", "Copy the run's id"),
        )
    ),
]
