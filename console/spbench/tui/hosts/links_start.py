"""The start of the suite that measures links, with the chosen hosts."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from spbench.errors import SpbenchError, UsageError
from spbench.suites.shipped import PREFIX
from spbench.tui.advice import name_keys
from spbench.tui.context import ConsoleContext
from spbench.tui.page import Page
from spbench.tui.start_queue import StartDecision
from spbench_core.number_text import format_quantity

if TYPE_CHECKING:
    from spbench.engine.plan import RunPlan

NAME = "links.yaml"
"""The suite, which may have a copy in the console's folder."""


@dataclass(frozen=True, slots=True)
class LinksStart:
    """A run that measures links.

    Attributes:
        suite: The suite of the folder, or else the one that comes with spbench.
        cases: The cases for which this machine is large enough.
        overrides: The settings for one rank on each of several hosts.
        text: The suite, its cases, hosts and duration.
    """

    suite: Path
    cases: tuple[str, ...]
    overrides: tuple[str, ...]
    text: str


async def start_links(page: Page) -> None:
    """Start the suite that measures links, after a question with its duration."""
    context = page.context
    try:
        start = await asyncio.to_thread(plan_links, context)
    except SpbenchError as error:
        page.show_error(f"not started: {name_keys(str(error))}")
        return
    question = f"Measure the links between ranks? This runs {start.text}."
    if not await page.confirm(question, "Measure", "Cancel", enter_is_yes=True):
        return
    admission = await context.start_queue.admit(NAME)
    if admission is not StartDecision.REJECTED:
        context.start_suite(
            start.suite,
            start.cases,
            overrides=start.overrides,
            show=admission is StartDecision.AT_ONCE,
        )


def plan_links(context: ConsoleContext) -> LinksStart:
    """Return the run that measures links; call it in a thread, since it reads files.

    Raises:
        SpbenchError: The suite, a host or the launcher is invalid, or no case fits this machine.
    """
    # Imported here, since the engine takes 0.1 s, for which the page would otherwise wait.
    from spbench.engine.capacity import find_excess_ranks
    from spbench.engine.estimate import estimate_plan

    own_suite = context.options.folder / "suites" / NAME
    suite = own_suite if own_suite.is_file() else Path(f"{PREFIX}{Path(NAME).stem}")
    overrides: tuple[str, ...] = ()
    plan = _plan(context, suite)
    hosts = plan.find_hosts(plan.jobs[0])
    hosts_text = context.launch_choice.hosts_title or "this machine"
    if hosts is not None and len(hosts.names) > 1:
        overrides = (f"np={len(hosts.names)}", "launch.ranks_per_host=1")
        plan = _plan(context, suite, overrides)
        hosts_text += f", with a rank on each of {format_quantity(len(hosts.names), 'host')}"
    excess = find_excess_ranks(plan)
    all_cases = [case.id for job in plan.jobs for case in job.cases]
    cases = tuple(case for case in all_cases if case not in excess)
    if not cases:
        raise UsageError(excess[all_cases[0]])
    if excess:
        plan = _plan(context, suite, overrides, cases)
    count = format_quantity(len(cases), "case")
    estimate = estimate_plan(plan, context.options.home, consider_load=False)
    text = f"{NAME} ({count}) on {hosts_text}, {estimate.short_text}"
    return LinksStart(suite, cases if excess else (), overrides, text)


def _plan(
    context: ConsoleContext,
    suite: Path,
    overrides: tuple[str, ...] = (),
    cases: tuple[str, ...] = (),
) -> RunPlan:
    from spbench.engine.plan import Request, merge_overrides, plan_run

    request = Request(
        suite,
        context.options.home,
        context.options.environ,
        overrides=merge_overrides(context.overrides, overrides),
        cases=cases,
        launch_choice=context.launch_choice,
    )
    return plan_run(request)
