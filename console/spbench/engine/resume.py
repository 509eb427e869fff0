"""Plans that continue an earlier run, or repeat its failed cases."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from spbench.engine.plan import Request, RunPlan, build_settings, merge_overrides, plan_suite
from spbench.errors import NothingSelected, UsageError
from spbench.launch.choice import DEFAULT_CHOICE, LaunchChoice
from spbench.launch.jobs import group_cases, select_cases
from spbench.record.runs.files import read_file
from spbench.record.runs.folder import RunFolder, find_run
from spbench.record.state import RunState
from spbench.suites.case import Case, Suite
from spbench.suites.expressions.expression import parse_expression
from spbench.suites.loader import MAX_BYTES, load_suite_text
from spbench.suites.shipped import resolve_suite_path


def plan_resumed(request: Request, name: str) -> RunPlan:
    """Return the plan of the missing cases of a recorded run.

    The run continues in its folder.

    Suite and cases are the recorded ones. So are hosts, launcher and retries, unless the request
    chooses others.

    Raises:
        UsageError: The run is unknown, still running, or does not record its request.
        NothingSelected: No case is missing.
    """
    folder = find_run(request.home, name)
    _reject_running(folder)
    state = folder.replay()
    recorded, suite = _read_recorded(folder, request)
    plan = plan_suite(recorded, suite)
    if state.run is None:  # it was killed before its first event
        return replace(plan, resumed=folder)

    missing = set(find_missing_cases(state))
    if not missing and state.run.status is not None and folder.report.exists():
        verdicts = f"its {len(state.cases)} cases have their verdicts"
        if len(state.cases) == 1:
            verdicts = "its case has its verdict"
        raise NothingSelected(
            f"run {folder.id} went to its end: {verdicts}; "
            f"for those that failed there is --failed {folder.id}"
        )
    case_by_id = {case.id: case for job in plan.jobs for case in job.cases}
    if unknown := sorted(missing - case_by_id.keys()):
        raise UsageError(
            f"run {folder.id} has the case {unknown[0]}, which its suite no longer gives: it was "
            "made by another version of spbench; start it again"
        )
    # as many ranks as in the cases that are done, even if the slots of hosts have changed
    cases = (
        replace(case_by_id[case.id], np=state.cases[case.id].identity.np)
        for case in suite.cases
        if case.id in missing
    )
    return replace(plan, jobs=group_cases(cases, plan.hosts_finder), resumed=folder)


def plan_failed(
    request: Request, name: str, *, with_faults: bool = True, with_cancelled: bool = True
) -> RunPlan:
    """Return the plan of a new run of the failed and cancelled cases of a run.

    Cases to which their expectations refer run with them, so that these can be judged.
    ``with_faults`` plants the faults of that run again. Without ``with_cancelled``, only the failed
    cases run.

    Raises:
        UsageError: The run is unknown, still running, or does not record its request.
        NothingSelected: No case has failed or was cancelled.
    """
    folder = find_run(request.home, name)
    _reject_running(folder)
    cases = folder.replay().cases.values()
    failed = [
        case.id
        for case in cases
        if case.status.is_worth_another_run and (with_cancelled or case.status.is_bad)
    ]
    if not failed:
        raise NothingSelected(f"no case of run {folder.id} failed")
    recorded, suite = _read_recorded(folder, request)
    recorded = recorded if with_faults else replace(recorded, inject=())
    plan = plan_suite(recorded, suite)
    ids = _add_referred(failed, plan.suite.cases)
    recorded = replace(recorded, cases=tuple(ids), keyword=None)
    return replace(plan, request=recorded, jobs=select_cases(plan.jobs, ids))


def plan_recorded(request: Request, folder: RunFolder) -> RunPlan:
    """Return the plan of a recorded run, whether it has ended or not.

    Raises:
        SpbenchError: The run does not record its request, or its files are damaged.
    """
    return plan_suite(*_read_recorded(folder, request))


def _add_referred(ids: Iterable[str], cases: Iterable[Case]) -> list[str]:
    """Add the ids of all cases on which the expectations of the given ones depend."""
    case_by_id = {case.id: case for case in cases}
    all_ids = dict.fromkeys(ids)
    pending = list(all_ids)
    while pending:
        case = case_by_id.get(pending.pop())
        expressions = [item.expression for item in case.expect if item.expression] if case else []
        case_metrics = (metric for text in expressions for metric in parse_expression(text).metrics)
        new_ids = [metric.case for metric in case_metrics if metric.case not in all_ids]
        all_ids |= dict.fromkeys(new_ids)
        pending += new_ids
    return list(all_ids)


def _reject_running(folder: RunFolder) -> None:
    if folder.is_alive() is not False:
        host = folder.find_other_host()
        location = f" on {host}, so far as can be seen" if host else ""
        raise UsageError(
            f"run {folder.id} is still running{location}; wait for its end, or cancel it"
        )


def _read_recorded(folder: RunFolder, request: Request) -> tuple[Request, Suite]:
    """Return the request of a recorded run, with this one's options, and its suite."""
    run = folder.read_json("run.json")
    recorded = run.get("request")
    if not isinstance(recorded, Mapping):
        raise UsageError(
            f"run {folder.id} does not say what it was asked for: it was made by an earlier "
            "version of spbench; start it again"
        )
    try:
        text = read_file(folder.path / "suite.yaml", MAX_BYTES).decode()
        start_folder = Path(run["cwd"])
        request = replace(
            request,
            suite=resolve_suite_path(start_folder, Path(run["file"])),
            overrides=merge_overrides(recorded["overrides"], request.overrides),
            keyword=recorded["keyword"],
            cases=tuple(recorded["cases"]),
            inject=_read_faults(recorded["inject"]),
            retries=request.retries or int(recorded.get("retries", 0)),
            fail_on_flaky=request.fail_on_flaky or bool(recorded.get("fail_on_flaky")),
            system=_read_system(run.get("system")),
            launch_choice=_merge_choices(request.launch_choice, recorded["chosen"], start_folder),
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"run {folder.id}: its suite.yaml or run.json is damaged ({error}); start it again"
        ) from None
    return request, load_suite_text(text, request.suite, build_settings(request))


def _read_system(recorded: Any) -> str | None:
    if recorded is not None and type(recorded) is not str:
        raise TypeError("system is not a text")
    return recorded


def _read_faults(recorded: list[str] | str | None) -> tuple[str, ...]:
    """Return the planted faults of a run.

    Earlier versions recorded one fault, or null.
    """
    return (recorded,) if isinstance(recorded, str) else tuple(recorded or ())


def _merge_choices(
    choice: LaunchChoice, recorded: Mapping[str, str], start_folder: Path
) -> LaunchChoice:
    """Return the new choice of hosts and launcher, or else the recorded one."""
    if replace(choice, oversubscribe=None) != DEFAULT_CHOICE:
        return choice
    options: dict[str, Any] = dict(recorded)
    if choice.oversubscribe or options.get("oversubscribe"):
        options["oversubscribe"] = True
    if hostfile := recorded.get("hostfile"):
        options["hostfile"] = start_folder / hostfile
    return LaunchChoice(**options)


def reject_overtaken(folder: RunFolder, plan: RunPlan, state: RunState) -> None:
    """Reject a run that another console has continued since the plan was made.

    Raises:
        UsageError: Its missing cases differ from the cases of the plan.
    """
    planned = {case.id for job in plan.jobs for case in job.cases}
    if state.run is not None and planned != set(find_missing_cases(state)):
        raise UsageError(
            f"run {folder.id} was resumed by another spbench meanwhile; see spbench results show"
        )


def find_missing_cases(state: RunState) -> list[str]:
    """Return the ids of the cases without a result in a run that was cut short."""
    return [case.id for case in state.cases.values() if not case.status.has_result]
