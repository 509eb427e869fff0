"""The profiles and clusters that the Plan page offers in lists."""

from __future__ import annotations

import asyncio
import re
from functools import partial
from pathlib import Path

from spbench.errors import SpbenchError
from spbench.launch.placement import count_cores
from spbench.planner.cluster.machines import PRESETS
from spbench.planner.cluster.this_machine import THIS_MACHINE
from spbench.planner.nearby_files import find_nearby_files
from spbench.planner.output.plan_inputs import describe_group, describe_machines
from spbench.planner.profile_process import MODELS, ProfileRequest
from spbench.report.links import find_last_link_matrix
from spbench.suites.pipe_files import expand_user_path
from spbench.tui.chooser import Choice, Chooser
from spbench.tui.page import Page
from spbench.tui.plan.form import CLUSTER
from spbench_core.number_text import format_quantity

OWN = "your own"
"""The choice of a cluster that the user types."""
_MEASURE = "measure "
_SIZE = re.compile(r"\d+x\d+(,\d+x\d+)*")
_FILE_SUFFIXES = (".yaml", ".yml", ".json", ".txt")
"""Endings of names that are files to read."""
_SMALL_CLUSTERS = ((1, 2), (1, 4), (2, 4), (4, 8))
"""Machines and devices of each, of the clusters that need no file."""


def list_profiles(folder: Path) -> list[Choice]:
    """Return the profiles in and near a folder, and the models that can be measured."""
    files = find_nearby_files(folder)
    return [
        *(Choice(name, "measured times of a model's layers") for name in files.profiles),
        *(
            Choice(name, "torchgraph text; enter its batch size next to it")
            for name in files.torchgraphs
        ),
        *(Choice(f"{_MEASURE}{name}", model.summary) for name, model in MODELS.items()),
    ]


async def ask_for_profile(page: Page, kind: str | None) -> ProfileRequest | None:
    """Ask for the profile to measure; None if a question is left.

    Args:
        page: The page, which shows dialogs and errors.
        kind: The kind of network, a name of `MODELS`; None asks for it.
    """
    # Imported here, since the form is needed only if a profile is measured.
    from spbench.tui.plan.profile_form import ProfileForm

    if page.context.readonly:
        page.show_error("a read-only console starts nothing")
        return None
    if kind is None:
        choices = [Choice(name, model.summary) for name, model in MODELS.items()]
        kind = await page.app.push_screen_wait(Chooser("Network to measure", choices))
    if kind is None:
        return None
    request = await page.app.push_screen_wait(ProfileForm(kind, page.context))
    if request is None:
        return None
    path = expand_user_path(page.context.options.folder, request.output)
    return request if await page.confirm_overwrite(path) else None


async def choose_entry(page: Page, field: str) -> str | None:
    """Let the user choose a profile or a cluster; None if the list is left."""
    options = page.context.options
    list_choices = partial(list_clusters, options.folder, options.home)
    if field != CLUSTER:
        list_choices = partial(list_profiles, options.folder)
    choices = await asyncio.to_thread(list_choices)

    def make_typed_choice(text: str) -> Choice | None:
        """Return the typed size of a cluster, or a file."""
        is_entry = _SIZE.fullmatch(text) if field == CLUSTER else None
        is_listed = any(text in choice.name for choice in choices)
        if is_listed or not (is_entry or text.endswith(_FILE_SUFFIXES)):
            return None
        return Choice(text, "as typed")

    question = f"{field.capitalize()} to plan for"
    return await page.app.push_screen_wait(
        Chooser(question, choices, make_typed_choice=make_typed_choice)
    )


def get_model_to_measure(choice: str) -> str | None:
    """Return the model if a choice of `list_profiles` measures one."""
    return choice.removeprefix(_MEASURE) if choice.startswith(_MEASURE) else None


def list_clusters(folder: Path, home: Path) -> list[Choice]:
    """Return clusters: this machine, files, links, sizes, presets, and a typed one."""
    cores_text = format_quantity(count_cores(), "core")
    choices = [Choice(THIS_MACHINE, f"{cores_text} of this machine as devices; F5 can run it")]
    choices += (Choice(name, "a cluster file") for name in find_nearby_files(folder).clusters)
    try:
        measured = find_last_link_matrix(home)
    except SpbenchError:
        measured = None
    if measured is not None:
        choices.append(Choice(measured[0].id, "hosts and links as this run measured them"))
    choices += (
        Choice(f"{machines}x{devices}", describe_group(machines, devices))
        for machines, devices in _SMALL_CLUSTERS
    )
    choices.append(Choice(OWN, "type machines times devices, such as 2x8 or 1x4,1x2, or a file"))
    for name, preset in PRESETS.items():
        size = describe_machines(preset)
        choices.append(Choice(name, f"{size}, from the DAPPLE paper"))
    return choices
