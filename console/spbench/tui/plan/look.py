"""What the Plan page looks like, its help and its keys."""

from __future__ import annotations

from textual.binding import Binding, BindingType

HELP = """\
How to cut a model over a cluster. Above stand a profile, a cluster and the batch; enter plans, in a
process of its own that escape stops. Below stand the stages, the other ways to train the same
beside the plan, the memory of each stage, and one step of it, which + and - draw longer or shorter.
F4 writes a suite that runs the plan and opens it, F5 writes it and runs it: then what was measured
stands beside what was predicted."""


def _key(keys: str, action: str, name: str, id: str, tooltip: str, show: bool = False) -> Binding:
    return Binding(keys, action, name, show=show, id=f"plan.{id}", tooltip=tooltip)


KEYS: list[BindingType] = [
    _key("f2,o", "choose", "Choose", "choose", "Choose a profile or a cluster", show=True),
    _key("f3,enter", "plan", "Plan", "plan", "Plan what the fields say", show=True),
    _key("f4,e", "emit", "Emit", "emit", "Write a suite that runs the plan", show=True),
    _key("f5", "verify", "Verify", "verify", "Run the plan, to compare it", show=True),
    _key("m", "mode", "Mode", "mode", "Plan as best can be, or as DAPPLE's planner does"),
    _key("plus,equals_sign", "zoom(2)", "Longer", "longer", "Draw the step longer"),
    _key("minus", "zoom(-2)", "Shorter", "shorter", "Draw the step shorter"),
    _key("escape", "stop", "Stop", "stop", "Stop planning, or leave the fields"),
]
CHANGES = frozenset({"emit", "verify"})

SIZES: list[tuple[int, str]] | None = [(0, "-narrow"), (150, "-wide")]
"""From how many columns on the memory stands beside the stages."""
CSS = """
PlanPage #sheet { height: 1fr; scrollbar-size-vertical: 1; }
PlanPage #sheet:focus { background: $surface; }
PlanPage #said { height: auto; padding: 1 2; }
PlanPage #said.wrong { color: $text-error; }
PlanPage #upper { height: auto; layout: vertical; }
PlanPage.-wide #upper { layout: horizontal; }
PlanPage .column { height: auto; width: 1fr; }
PlanPage.-wide #left { width: 3fr; }
PlanPage.-wide #right { width: 2fr; }
PlanPage #sheet .pane {
    height: auto; background: $surface; border-subtitle-color: $text-muted;
}
PlanPage .words { height: auto; }
PlanPage #headline { height: auto; margin-bottom: 1; }
PlanPage StackedBars { height: auto; }
PlanPage .away { display: none; }
"""
