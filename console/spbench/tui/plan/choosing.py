"""The choices for a field: profiles, or clusters and measured runs."""

from __future__ import annotations

from pathlib import Path

from spbench.errors import SpbenchError
from spbench.planner.cluster.machines import PRESETS
from spbench.planner.nearby_files import find_nearby_files
from spbench.report.links import find_last_link_matrix
from spbench.tui.chooser import Choice
from spbench_core.number_text import format_quantity


def list_profiles(folder: Path) -> list[Choice]:
    """Return the profiles near a folder."""
    near = find_nearby_files(folder)
    return [
        *(Choice(name, "a profile of spbench") for name in near.profiles),
        *(Choice(name, "torchgraph text; say its batch size") for name in near.torchgraphs),
    ]


def list_clusters(folder: Path, home: Path) -> list[Choice]:
    """Return the cluster files near a folder, the last run that measured links, and the presets."""
    choices = [Choice(name, "a cluster file") for name in find_nearby_files(folder).clusters]
    try:
        measured = find_last_link_matrix(home)
    except SpbenchError:
        measured = None
    if measured is not None:
        choices.append(Choice(measured[0].id, "the links that this run has measured"))
    for name, preset in PRESETS.items():
        counts = " in ".join(
            (
                format_quantity(preset.device_count, "device"),
                format_quantity(len(preset.machines), "machine"),
            )
        )
        choices.append(Choice(name, f"{counts}, as the DAPPLE paper has them"))
    return choices
