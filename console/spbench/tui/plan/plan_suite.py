"""Writing the files of a plan: the suite that runs it, and its cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path

from spbench.errors import SpbenchError
from spbench.planner.cluster.cluster_text import render_cluster
from spbench.planner.output.emission import emit_suite
from spbench.planner.request import PlanDetails
from spbench.record.runs.files import write_file
from spbench.suites.pipe_files import expand_suite_path, expand_user_path
from spbench.tui.advice import name_keys
from spbench.tui.dialogs import AskLine
from spbench.tui.page import Page
from spbench_core.number_text import format_quantity


async def write_plan_suite(page: Page, details: PlanDetails, question: str = "") -> Path | None:
    """Ask for a file and write the suite of a plan; None if it was not written.

    Args:
        page: The page, which shows dialogs and errors.
        details: The plan.
        question: The question for the file. Default: one that names the number of ranks.
    """
    folder = page.context.options.folder
    try:
        emitted = await asyncio.to_thread(
            emit_suite, details.plan, details.profile, details.cluster, folder / "plan.yaml"
        )
        ranks_text = format_quantity(emitted.rank_count, "rank")
        prefix = "suites/" if (folder / "suites").is_dir() else ""
        proposed = f"{prefix}{emitted.suite.name}.yaml"
        question = question or f"The plan runs on {ranks_text}. File of its suite:"
        path = await _ask_for_file(page, question, partial(expand_suite_path, folder), proposed)
        if path is None:
            return None
        await asyncio.to_thread(write_file, path, emitted.text)
        page.context.rewritten_suites.add(path)
    except SpbenchError as error:
        page.show_error(name_keys(str(error)))
        return None
    page.app.notify(ranks_text, title=f"{path} written", markup=False)
    return path


async def write_cluster_file(page: Page, details: PlanDetails | None) -> str | None:
    """Ask for a file and write the assumed cluster of a plan into it.

    Returns:
        The file as the cluster's field names it; None if it was not written.
    """
    folder = page.context.options.folder
    if details is None or not details.cluster.is_assumed:
        page.show_error("plan for a cluster with assumed values first, such as 2x4")
        return None
    proposed = f"cluster-{details.cluster.name.replace(',', '-')}.yaml"
    question = "File to write the assumed links and memory to:"
    try:
        path = await _ask_for_file(page, question, partial(expand_user_path, folder), proposed)
        if path is None:
            return None
        await asyncio.to_thread(write_file, path, render_cluster(details.cluster))
    except SpbenchError as error:
        page.show_error(name_keys(str(error)))
        return None
    name = _shorten(page, path)
    message = "edit it in your editor, then press Enter here to plan with its values"
    page.app.notify(message, title=f"{name} written", timeout=10, markup=False)
    return name


def _shorten(page: Page, path: Path) -> str:
    """Return a path relative to the folder of the console, if it is in there."""
    folder = page.context.options.folder
    return str(path.relative_to(folder) if path.is_relative_to(folder) else path)


async def _ask_for_file(
    page: Page, question: str, parse: Callable[[str], Path], proposed: str
) -> Path | None:
    """Ask for a file until it is new or may be replaced; None if the question is left."""
    while True:
        dialog = AskLine(question, parse, proposed, required="a file name")
        path: Path | None = await page.app.push_screen_wait(dialog)
        if path is None or await page.confirm_overwrite(path):
            return path
        proposed = _shorten(page, path)
