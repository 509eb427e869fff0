"""What there is to choose from for a field: profiles, or clusters and measured runs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from spbench.errors import SpbenchError
from spbench.planner.cluster.machines import PRESETS
from spbench.planner.near_files import near_files
from spbench.report.links import last_link_matrix
from spbench.tui.plan.form import CLUSTER, PROFILE
from spbench.tui.suites.chooser import Choice, Chooser

if TYPE_CHECKING:
    from spbench.tui.plan.page import PlanPage


async def choose(page: PlanPage, field: str) -> None:
    """Ask for a profile or a cluster, and put it into its field."""
    opening = page.console_app.opening
    if field == CLUSTER:
        choices = await asyncio.to_thread(_clusters, opening.folder, opening.home)
    else:
        choices = await asyncio.to_thread(_profiles, opening.folder)
    if not choices:
        page.complain("there is no profile near; measure one: spbench profile resnet --out FILE")
        return
    title = "Cluster to plan for" if field == CLUSTER else "Profile to plan"
    chosen = await page.app.push_screen_wait(Chooser(title, choices))
    if chosen is not None:
        page.form.put(field if field == CLUSTER else PROFILE, chosen)


def _profiles(folder: Path) -> list[Choice]:
    near = near_files(folder)
    return [
        *(Choice(name, "a profile of spbench") for name in near.profiles),
        *(Choice(name, "torchgraph text; say its batch size") for name in near.torchgraphs),
    ]


def _clusters(folder: Path, home: Path) -> list[Choice]:
    choices = [Choice(name, "a cluster file") for name in near_files(folder).clusters]
    try:
        measured = last_link_matrix(home)
    except SpbenchError:
        measured = None
    if measured is not None:
        choices.append(Choice(measured[0].id, "the links that this run has measured"))
    for name, preset in PRESETS.items():
        counts = f"{preset.device_count} devices in {len(preset.machines)} machines"
        choices.append(Choice(name, f"{counts}, as the DAPPLE paper has them"))
    return choices
