"""Writing the suite that runs a plan."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

from spbench.errors import SpbenchError
from spbench.planner.output.emission import emit_suite
from spbench.planner.request import PlanDetails
from spbench.record.runs.files import write_file
from spbench.suites.pipe_files import expand_suite_path
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
        question = question or f"File of the suite that runs the plan on {ranks_text}:"
        parse = partial(expand_suite_path, folder)
        dialog = AskLine(question, parse, proposed, required="a file name")
        path: Path | None = await page.app.push_screen_wait(dialog)
        if path is None or not await page.confirm_overwrite(path):
            return None
        await asyncio.to_thread(write_file, path, emitted.text)
    except SpbenchError as error:
        page.show_error(str(error))
        return None
    page.app.notify(f"{path}: {ranks_text}", title="written", markup=False)
    return path
