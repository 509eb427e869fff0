"""The fields of the Plan page: profile, cluster, batch and mode."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.widgets import Button, Input, Label

from spbench.planner.cluster.machines import PRESETS
from spbench.planner.nearby_files import NearbyFiles
from spbench.planner.plans import Mode
from spbench.planner.request import PlanRequest, parse_plan_request
from spbench.tui.plan.completion import NameOrPath
from spbench.tui.plan.mode_switch import ModeSwitch

PROFILE = "profile"
CLUSTER = "cluster"
_PROFILE_HINT = "spbench profile or torchgraph file"
_CLUSTER_HINT = "2x8 (machines x devices), a YAML file, or a run of link.pingpong"
_BATCH_HINT = "from file"
_FIRST_BATCH = "32"


class PlanForm(Vertical):
    """The profile, the cluster, the batch and the mode of a plan.

    Args:
        folder: Where relative paths begin.
        home: The folder of the runs.
    """

    HELP: ClassVar[str] = """\
What to plan. The profile is a file; one of torchgraph text does not say at what batch size it was
measured, so that goes beside it. The cluster is machines times devices (2x8 is two machines of 8
devices), a preset (dapple-a), a YAML file, or a run of link.pingpong (its id, or last). Without a
micro-batch size the plan chooses its own. → takes a suggestion, F2 shows what there is to choose
from, enter plans, escape leaves the fields."""
    DEFAULT_CSS = """
    PlanForm { height: 5; background: $surface; }
    PlanForm Horizontal { height: 1; }
    PlanForm Label { width: auto; color: $text-primary; padding-right: 1; }
    PlanForm .first { width: 9; }
    PlanForm Input, PlanForm Input:focus { height: 1; border: none; padding: 0; }
    PlanForm Input { width: 1fr; background: $panel; margin-right: 2; }
    PlanForm Input:focus { background: $primary 25%; }
    PlanForm .number { width: 7; }
    PlanForm #measured-at { width: 10; }
    PlanForm Button { margin-left: 2; min-width: 8; }
    """

    def __init__(self, folder: Path, home: Path) -> None:
        super().__init__(id="form", classes="pane")
        self.border_title = "What to plan"
        self._folder = folder
        self._home = home
        self._profiles = NameOrPath(folder)
        self._clusters = NameOrPath(folder)

    def compose(self) -> ComposeResult:
        with Horizontal():
            yield Label("Profile", classes="first")
            yield Input(
                placeholder=_PROFILE_HINT, suggester=self._profiles, id=PROFILE, compact=True
            )
            yield Label("measured at batch")
            yield Input(placeholder=_BATCH_HINT, id="measured-at", compact=True)
        with Horizontal():
            yield Label("Cluster", classes="first")
            yield Input(
                placeholder=_CLUSTER_HINT, suggester=self._clusters, id=CLUSTER, compact=True
            )
        with Horizontal():
            yield Label("Batch", classes="first")
            yield Input(_FIRST_BATCH, id="batch", classes="number", compact=True)
            yield Label("Micro-batch")
            yield Input(placeholder="chosen", id="micro", classes="number", compact=True)
            yield Label("Mode")
            yield ModeSwitch()
            yield Button("Plan", id="plan", variant="primary", compact=True)

    def offer(self, near: NearbyFiles) -> None:
        """Complete these names, and begin with the newest ones where nothing is typed."""
        self._profiles.known = (*near.profiles, *near.torchgraphs)
        self._clusters.known = (*near.clusters, *PRESETS)
        for id, names in ((PROFILE, near.profiles), (CLUSTER, self._clusters.known)):
            box = self.query_one(f"#{id}", Input)
            if not box.value and names and not box.has_focus:
                box.value = names[0]

    def set_text(self, id: str, text: str) -> None:
        """Put a text into a field."""
        box = self.query_one(f"#{id}", Input)
        box.value = text
        box.cursor_position = len(text)

    def request(self) -> PlanRequest:
        """Return what the fields ask for.

        Raises:
            PlannerError: A field is empty, or no number.
        """
        return parse_plan_request(
            profile=self._text(PROFILE),
            cluster=self._text(CLUSTER),
            global_batch_size=self._text("batch"),
            profile_batch_size=self._text("measured-at"),
            micro_batch_size=self._text("micro"),
            mode=self.mode,
            home=self._home,
            folder=self._folder,
        )

    @property
    def mode(self) -> Mode:
        """The chosen mode."""
        return self.query_one(ModeSwitch).mode

    def _text(self, id: str) -> str:
        return self.query_one(f"#{id}", Input).value
