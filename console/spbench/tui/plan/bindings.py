"""The keys of the Plan page."""

from __future__ import annotations

from textual.binding import BindingType

from spbench.tui.widgets.keys import make_binding

PLAN_BINDINGS: list[BindingType] = [
    make_binding(
        "plan.choose", "f2", "choose", "Profiles", "List profiles, or clusters in their field"
    ),
    make_binding(
        "plan.measure",
        "ctrl+n",
        "measure",
        "New profile",
        "Measure the layers of a network as a new profile",
        show=True,
    ),
    make_binding("plan.plan", "enter", "plan", "Plan", "Plan for the fields above", show=True),
    make_binding(
        "plan.emit",
        "f4,e",
        "emit",
        "Write suite",
        "Write a suite that runs the plan",
        show=True,
    ),
    make_binding(
        "plan.verify",
        "f5",
        "verify",
        "Run & compare",
        "Run the plan, and compare predicted with measured",
        show=True,
    ),
    make_binding(
        "plan.cluster", "c", "focus('#cluster')", "Cluster", "Go to the field of the cluster"
    ),
    make_binding(
        "plan.write-cluster",
        "ctrl+s",
        "write_cluster",
        "Write cluster",
        "Write the assumed links and memory into a file to edit",
    ),
    make_binding(
        "plan.mode", "m", "mode", "Mode", "The fastest simulated plan, or that of a formula"
    ),
    make_binding(
        "plan.longer", "plus,equals_sign", "lengthen", "Longer step", "Draw the step longer"
    ),
    make_binding("plan.shorter", "minus", "shorten", "Shorter step", "Draw the step shorter"),
    make_binding("plan.stop", "escape", "stop", "Stop", "Stop planning, or leave the fields"),
]
