"""The keys of the Hosts page."""

from __future__ import annotations

from textual.binding import BindingType

from spbench.tui.widgets.keys import make_binding

FOOTER = (
    *("hosts.stop", "hosts.use", "hosts.examine", "hosts.links", "hosts.panel"),
    *("hosts.examine-one", "hosts.measure", "hosts.swap", "hosts.filter"),
    *("hosts.earlier-links", "hosts.later-links"),
    *("launch.launcher", "launch.hosts"),
)
"""The keys in the footer, the most important first."""
HOSTS_BINDINGS: list[BindingType] = [
    make_binding("hosts.use", "u", "use", "Run on", "Use these hosts in runs from here", show=True),
    make_binding("hosts.examine", "r", "examine", "Examine", "Ask each of these hosts", show=True),
    make_binding(
        "hosts.links",
        "f5",
        "start_links",
        "Links",
        "Measure the links between ranks on the hosts that runs use",
        show=True,
    ),
    make_binding("hosts.filter", "slash", "filter", "Filter", "Filter the hosts", show=True),
    make_binding(
        "hosts.measure",
        "m",
        "measure",
        "Next links",
        "The next measurement",
        show=True,
    ),
    make_binding("hosts.panel", "v", "panel", "Panel", "Details, or charts of the load", show=True),
    make_binding("hosts.swap", "h", "swap", "By host", "Links of ranks, or of hosts"),
    make_binding(
        "hosts.earlier-links",
        "left_square_bracket",
        "earlier_links",
        "Earlier links",
        "The links of an earlier run",
    ),
    make_binding(
        "hosts.later-links",
        "right_square_bracket",
        "later_links",
        "Later links",
        "The links of a later run",
    ),
    make_binding(
        "hosts.examine-one", "R", "examine_one", "Examine one", "Ask the host under the cursor"
    ),
    make_binding("hosts.stop", "escape", "stop", "Stop", "Stop asking hosts"),
]
