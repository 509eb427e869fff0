"""The run of a plan: whether it can start here, and its measured times afterwards."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from spbench.errors import SpbenchError
from spbench.planner.output.emission import emit_suite
from spbench.planner.output.measured_plan import MeasuredPlan, find_measured_plan, measure_plan
from spbench.planner.plans import Plan
from spbench.planner.request import PlanDetails
from spbench.tui.advice import name_keys
from spbench.tui.context import ConsoleContext
from spbench_core.number_text import format_quantity

if TYPE_CHECKING:
    from spbench.engine.plan import RunPlan
    from spbench.tui.feed import Feed

_REMEDY = "Plan for this-machine, choose hosts with H, or write the suite with F4"


@dataclass(frozen=True, slots=True)
class StartForecast:
    """The run that F5 starts, or the reason why it cannot.

    Attributes:
        text: The number of ranks, their hosts, and the duration.
        obstacle: Why the plan cannot be started with the chosen hosts; empty if it can.
    """

    text: str
    obstacle: str = ""

    def describe(self, *, is_measured: bool) -> str:
        """Return the forecast as one line for the page.

        Args:
            is_measured: Whether a run of the plan is shown.
        """
        if self.obstacle:
            return f"✗ F5 cannot start it: {self.obstacle}"
        return f"F5 runs it {'again ' if is_measured else ''}{self.text}."


def forecast_start(details: PlanDetails, context: ConsoleContext) -> StartForecast:
    """Return the effect of F5 on a plan; call it in a thread, since it reads files."""
    # Imported here, since the engine takes 0.1 s, for which the page would otherwise wait.
    from spbench.engine.estimate import estimate_plan
    from spbench.engine.plan import Request, plan_suite

    options = context.options
    if context.readonly:
        return StartForecast("", "a read-only console starts nothing")
    path = options.folder / "plan.yaml"
    try:
        emitted = emit_suite(details.plan, details.profile, details.cluster, path)
        request = Request(
            suite=path,
            home=options.home,
            environ=options.environ,
            overrides=context.overrides,
            launch_choice=context.launch_choice,
        )
        run_plan = plan_suite(request, emitted.suite)
        obstacle = _find_obstacle(run_plan)
        estimate = estimate_plan(run_plan, options.home, consider_load=False)
    except SpbenchError as error:
        return StartForecast("", name_keys(str(error)).replace(f"{options.folder}/", ""))
    hosts = context.launch_choice.hosts_title or "this machine"
    ranks = format_quantity(emitted.rank_count, "rank")
    text = f"with {ranks} on {hosts}"
    duration = f"in {estimate.short_text}" if estimate.seconds else "for an unknown time"
    return StartForecast(f"{text}, {duration}", obstacle)


def _find_obstacle(run_plan: RunPlan) -> str:
    """Return why the chosen hosts are too small for a run; empty if they are not."""
    from spbench.engine.capacity import find_rejection
    from spbench.launch.devices import find_shortage

    jobs = [(job, run_plan.find_hosts(job)) for job in run_plan.jobs]
    shortage = find_shortage(jobs, run_plan.request.environ)
    reason = find_rejection(run_plan) if shortage is None else shortage[0]
    return f"{reason}. {_REMEDY}" if reason else ""


def find_measured(details: PlanDetails, context: ConsoleContext) -> MeasuredPlan | None:
    """Return the newest recorded run of a plan; call it in a thread."""
    folder = context.options.folder
    try:
        emitted = emit_suite(details.plan, details.profile, details.cluster, folder / "plan.yaml")
    except SpbenchError:  # no benchmark runs the plan
        return None
    return find_measured_plan(context.options.home, details.plan, emitted.suite)


class AwaitedRun:
    """A started run of a plan's suite, until it has ended.

    Args:
        path: The suite.
        context: The state that the pages share.

    Attributes:
        path: The suite.
        is_starting: Whether the run was requested, but has no folder so far.
    """

    def __init__(self, path: Path, context: ConsoleContext) -> None:
        self.path = path
        self.is_starting = False
        self._context = context
        context.planned_suite = path  # the Run page names the Plan page after the run
        self._feed_at_start: Feed | None = context.feed

    def find_outcome(self, plan: Plan) -> MeasuredPlan | str | None:
        """Return the measured times, an error message, or None while the run is running."""
        feed = self._context.feed
        if self.is_starting and self._context.starting_since is None:
            self.is_starting = False
            if feed is self._feed_at_start:
                return f"✗ {self.path.name} was not started"
        if feed is None or not feed.ended or feed is self._feed_at_start:
            return None
        run = feed.state.run
        if run is None or str(self.path) not in run.argv:
            return None
        num_cases = len(feed.state.cases)
        if num_cases != 1:  # the user has changed the suite
            cases_text = format_quantity(num_cases, "case")
            return f"✗ {self.path.name} ran {cases_text}, not the plan alone"
        try:
            return measure_plan(plan, feed.folder.id, feed.state)
        except SpbenchError as error:
            return f"✗ {error}"
