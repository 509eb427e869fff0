"""The newest run of a plan among the recorded runs, compared with the plan."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from spbench.errors import SpbenchError
from spbench.planner.output.verification import Verification, compare_with_run
from spbench.planner.plans import Plan
from spbench.record.runs.follow import EventTail
from spbench.record.runs.history import RunSummary, list_summaries
from spbench.record.state import RunState
from spbench.suites.case import Case, Suite
from spbench_core.events.statuses import RunStatus

_MAX_RUNS = 50
"""The most runs of a suite's name that are compared with a plan, the newest first."""
_MEASUREMENT_PARAMS = frozenset({"warmup", "iterations", "seed", "validate", "baseline"})
"""Parameters that change how a plan is measured, but not the plan."""


@dataclass(frozen=True, slots=True)
class MeasuredPlan:
    """The times of a run of a plan.

    Attributes:
        run: The id of the run.
        started: The start of the run, in seconds since the epoch; None if unknown.
        verification: The comparison with the plan.
    """

    run: str
    started: float | None
    verification: Verification


def measure_plan(plan: Plan, run_id: str, state: RunState) -> MeasuredPlan:
    """Return the times of a plan in the state of its run, which has one case.

    Raises:
        PlannerError: The case did not measure a step.
    """
    [case] = state.cases.values()
    started = state.run.started if state.run is not None else None
    return MeasuredPlan(run_id, started, compare_with_run(plan, case))


def find_measured_plan(home: Path, plan: Plan, suite: Suite) -> MeasuredPlan | None:
    """Return the newest run that measured a plan; None without any.

    The run may be from another session, or from the command line. Its record has the name of the
    suite, and the benchmark and the parameters of its only case. It reads files: call it in a
    thread.

    Args:
        home: The folder of the runs.
        plan: The plan.
        suite: The suite of the plan, as `emit_suite` returns it.
    """
    [case] = suite.cases
    candidates = (
        run for run in reversed(list_summaries(home)) if _may_have_measured(run, suite.name)
    )
    for run in islice(candidates, _MAX_RUNS):
        try:
            if _has_run(run, case):
                return measure_plan(plan, run.id, run.folder.replay())
        except SpbenchError:
            continue  # without a result, or unreadable
    return None


def _may_have_measured(run: RunSummary, suite: str) -> bool:
    return run.suite == suite and run.status is RunStatus.PASSED and not run.faults


def _has_run(run: RunSummary, case: Case) -> bool:
    """Return whether a run has only this case, by the first event of its log.

    Raises:
        UsageError: The log cannot be read.
    """
    first_event: Mapping[str, Any] = next(iter(EventTail(run.folder.events).read()), {})
    recorded_cases: Sequence[Mapping[str, Any]] = first_event.get("cases") or ()
    if len(recorded_cases) != 1:
        return False
    [recorded] = recorded_cases
    if recorded["benchmark"] != case.benchmark or recorded.get("inject"):
        return False
    return _select_params(recorded["params"]) == _select_params(case.params)


def _select_params(params: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the parameters that make a plan, as JSON returns them."""
    selected = {name: params[name] for name in params if name not in _MEASUREMENT_PARAMS}
    parsed: Mapping[str, Any] = json.loads(json.dumps(selected))
    return parsed
