"""The fields of the Plan page: profile, cluster, batch and mode."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from textual import events, on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.reactive import reactive
from textual.suggester import Suggester
from textual.widgets import Button, Input, Label, Static

from spbench.errors import SpbenchError
from spbench.planner.cluster.lookup import NAMES, find_cluster
from spbench.planner.nearby_files import NearbyFiles, complete_path
from spbench.planner.output.plan_inputs import describe_machines
from spbench.planner.plans import Mode
from spbench.planner.request import PlanRequest, parse_plan_request
from spbench.tui.widgets.keys import make_binding

PROFILE = "profile"
CLUSTER = "cluster"
_PROFILE_HINT = "times of layers: F2 lists"
_CLUSTER_HINT = "2x8 (machines x devices), a file or a run: F2 lists"
_BATCH_HINT = "as in profile"
NO_CLUSTER = "no cluster yet; F2 lists clusters"
"""Next to a text that does not name a cluster."""
_FIRST_BATCH = "8"
"""With two devices, each gets a batch that a profile with the default values has measured."""
_TEXT_BY_MODE: dict[Mode, str] = {"best": "best", "hpgo": "hpgo (formula)"}
HINT_BY_FIELD = {
    PROFILE: "the measured times of a model's layers; F2 lists, Ctrl+N measures",
    "measured-at": "samples of a batch of the profile, if its file lacks it",
    CLUSTER: "the machines and devices to plan for; F2 lists",
    "batch": "samples of a step, on all devices together",
    "micro": "samples that go through the stages at once; empty: the best",
    "mode": "best: simulates plans, takes the fastest; hpgo: estimates by a formula",
}
"""A short description of each field, by its id."""


class ModeSwitch(Static, can_focus=True):
    """A switch between the two modes of planning."""

    HELP: ClassVar[str] = """\
best simulates the steps of plans that fit into the devices' memory, and takes the shortest. hpgo
makes the plan of a published planner (HPGO, of the DAPPLE paper), which estimates steps by a
formula: it tries fewer plans, and its estimate may be too short. Space, ← and → change the mode."""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "space,left,right",
            "turn",
            "Other mode",
            show=False,
            id="plan.other-mode",
            tooltip="Switch to the other mode",
        )
    ]
    ALLOW_SELECT: ClassVar[bool] = False
    DEFAULT_CSS = """
    ModeSwitch { width: auto; height: 1; }
    ModeSwitch:focus { background: $primary 25%; }
    """
    mode: reactive[Mode] = reactive[Mode]("best")

    def render(self) -> Content:
        """Return both modes, each with a sign for its state."""
        shown = (
            Content.styled(f"● {text}", "bold") if mode == self.mode else Content(f"○ {text}")
            for mode, text in _TEXT_BY_MODE.items()
        )
        return Content("  ").join(shown)

    def on_click(self) -> None:
        """Select the other mode."""
        self.action_turn()

    def action_turn(self) -> None:
        """Select the other mode."""
        self.mode = "hpgo" if self.mode == "best" else "best"


class NameOrPath(Suggester):
    """A suggester of the first name with the typed prefix, or else of a path.

    Args:
        folder: The folder of relative paths.

    Attributes:
        names: The names.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(use_cache=False, case_sensitive=True)
        self._folder = folder
        self.names: Sequence[str] = ()

    async def get_suggestion(self, value: str) -> str | None:
        """Return the completed text; None if no name or path matches."""
        for name in self.names:
            if name.startswith(value):
                return name
        return await asyncio.to_thread(complete_path, self._folder, value)


class ClusterInput(Input):
    """The field of the cluster; F2 lists clusters in it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        make_binding("plan.clusters", "f2", "screen.choose", "Clusters", "List clusters", show=True)
    ]


class PlanForm(Vertical):
    """The fields for profile, cluster, batch and mode of a plan.

    Args:
        folder: The folder of relative paths.
        home: The folder of the runs.
    """

    HELP: ClassVar[str] = """\
The profile is a file of the times of a model's layers, with the batch size of their measurement. If
it is torchgraph text, the format of PipeDream, enter the batch size next to it. The cluster is
this-machine, machines times devices (2x8 is two machines of 8 devices), a preset (dapple-a is
cluster A of the DAPPLE paper), a YAML file, or a run of link.pingpong (its id, or last). The batch
is the number of samples of a step. A micro-batch is the part of it that goes through the stages at
once. If its field is empty, the planner chooses the size. The size of the cluster is shown next to
its field. → takes a suggestion, F2 lists profiles
and clusters, Enter plans, and Escape leaves the fields."""
    BINDINGS: ClassVar[list[BindingType]] = [
        make_binding(
            "plan.leave-fields",
            "escape",
            "screen.stop",
            "Leave field",
            "Leave the fields, so that keys work again",
            show=True,
        )
    ]
    DEFAULT_CSS = """
    PlanForm { height: 5; }
    PlanForm Horizontal { height: 1; }
    PlanForm Label { width: auto; color: $text-primary; padding-right: 1; }
    PlanForm .first { width: 9; }
    PlanForm Input { width: 1fr; margin-right: 2; }
    PlanForm .number { width: 7; }
    PlanForm #measured-at { width: 16; }
    PlanForm #cluster, PlanForm #measured-at { margin-right: 0; }
    PlanForm #cluster { max-width: 54; }
    PlanForm #cluster-size { width: auto; padding: 0 1; color: $text-muted; }
    PlanForm Button { margin-left: 1; min-width: 8; }
    """

    def __init__(self, folder: Path, home: Path) -> None:
        super().__init__(id="form", classes="pane")
        self.border_title = "What to plan"
        self.border_subtitle = HINT_BY_FIELD["mode"]
        self._folder = folder
        self._home = home
        self._profiles = NameOrPath(folder)
        self._clusters = NameOrPath(folder)
        self._torchgraphs: tuple[str, ...] = ()

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
            yield ClusterInput(
                placeholder=_CLUSTER_HINT, suggester=self._clusters, id=CLUSTER, compact=True
            )
            yield Static("", id="cluster-size", markup=False)
        with Horizontal():
            yield Label("Batch", classes="first")
            yield Input(_FIRST_BATCH, id="batch", classes="number", compact=True)
            yield Label("Micro-batch")
            yield Input(placeholder="best", id="micro", classes="number", compact=True)
            yield Label("Mode")
            yield ModeSwitch(id="mode")
            yield Button("Plan", id="plan", variant="primary", compact=True, action="screen.plan")

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        """Describe the focused field."""
        self.border_subtitle = HINT_BY_FIELD.get(event.widget.id or "", "")

    def on_descendant_blur(self) -> None:
        """Describe the modes, since a key changes them from everywhere."""
        self.border_subtitle = HINT_BY_FIELD["mode"]

    @on(Input.Changed, f"#{CLUSTER}")
    def _describe_cluster(self, event: Input.Changed) -> None:
        self._show_cluster_size(event.value)

    @work(exclusive=True, group="cluster-size")
    async def _show_cluster_size(self, text: str) -> None:
        size = ""
        if text.strip():
            size = await asyncio.to_thread(_describe_cluster, text, self._home, self._folder)
        self.query_one("#cluster-size", Static).update(size)

    def offer(self, files: NearbyFiles) -> None:
        """Offer these files as completions, and fill empty fields with the newest ones."""
        self._torchgraphs = files.torchgraphs
        self._profiles.names = (*files.profiles, *files.torchgraphs)
        self._clusters.names = (*files.clusters, *NAMES)
        for id, names in ((PROFILE, files.profiles), (CLUSTER, self._clusters.names)):
            box = self.query_one(f"#{id}", Input)
            if not box.value and names and not box.has_focus:
                box.value = names[0]

    def set_text(self, id: str, text: str) -> None:
        """Set the text of a field."""
        box = self.query_one(f"#{id}", Input)
        box.value = text
        box.cursor_position = len(text)

    def fill(self, fields: Mapping[str, str]) -> None:
        """Set all fields by their ids, and the mode."""
        for box in self.query(Input):
            box.value = fields.get(box.id or "", "")
        self.query_one(ModeSwitch).mode = "hpgo" if fields.get("mode") == "hpgo" else "best"

    def start_typing(self, id: str) -> None:
        """Empty a field and focus it, so that its hint is shown."""
        self.set_text(id, "")
        self.query_one(f"#{id}", Input).focus()

    def focus_field_after(self, id: str) -> None:
        """Focus the field to fill in after the profile or the cluster."""
        next_id = "batch" if id == CLUSTER else CLUSTER
        if id == PROFILE and self._get_text(PROFILE) in self._torchgraphs:
            next_id = "measured-at"
        self.query_one(f"#{next_id}", Input).focus()

    def focus_button(self) -> None:
        """Focus the button that plans."""
        self.query_one("#plan", Button).focus()

    def show_profile_batch(self, batch_size: int) -> None:
        """Show the batch size of the planned profile as the hint of its field."""
        self.query_one("#measured-at", Input).placeholder = f"{batch_size}, in profile"

    def request(self) -> PlanRequest:
        """Return the request of the fields.

        Raises:
            UsageError: A field is empty or not a number, or its home directory is unknown.
        """
        return parse_plan_request(
            profile=self._get_text(PROFILE),
            cluster=self._get_text(CLUSTER),
            global_batch_size=self._get_text("batch"),
            profile_batch_size=self._get_text("measured-at"),
            micro_batch_size=self._get_text("micro"),
            mode=self.mode,
            home=self._home,
            folder=self._folder,
        )

    @property
    def has_profile(self) -> bool:
        """Whether the field of the profile has a text."""
        return bool(self._get_text(PROFILE).strip())

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts of all fields, and the mode."""
        return (*(box.value.strip() for box in self.query(Input)), self.mode)

    @property
    def fields(self) -> dict[str, str]:
        """The texts of all fields by their ids, and the mode."""
        return {box.id or "": box.value for box in self.query(Input)} | {"mode": self.mode}

    @property
    def mode(self) -> Mode:
        """The selected mode."""
        return self.query_one(ModeSwitch).mode

    def _get_text(self, id: str) -> str:
        return self.query_one(f"#{id}", Input).value


def _describe_cluster(text: str, home: Path, folder: Path) -> str:
    """Return the machines and devices of a text, with a sign of equality."""
    try:
        return f"= {describe_machines(find_cluster(text, home, folder))}"
    except SpbenchError:
        return NO_CLUSTER
