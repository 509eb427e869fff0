"""Runs that go on where they were cut short, and new runs of what failed in an earlier one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from spbench.engine.plan import Request, RunPlan, plan_suite, settings_of
from spbench.errors import NothingSelected, UsageError
from spbench.launch.choice import NOTHING_CHOSEN, LaunchChoice
from spbench.launch.jobs import group, only
from spbench.record.runs.files import read_file
from spbench.record.runs.folder import RunFolder, find_run
from spbench.record.state import RunState
from spbench.suites.case import Case, Suite
from spbench.suites.expression import parse_expression
from spbench.suites.loader import MAX_BYTES, load_suite_text
from spbench.suites.shipped import resolve_suite_path


def plan_resumed(request: Request, name: str) -> RunPlan:
    """Return the plan of what is missing of a recorded run, which goes on in its folder.

    Its suite and its cases are the recorded ones; hosts, launcher and retries too, unless others
    are chosen.

    Raises:
        UsageError: There is no such run, it still goes on, or it does not say what it was.
        NothingSelected: Nothing is missing.
    """
    folder = find_run(request.home, name)
    _refuse_running(folder)
    state = folder.replay()
    asked, suite = _recorded(folder, request)
    whole = plan_suite(asked, suite)
    if state.run is None:  # it was killed before its first event
        return replace(whole, resumed=folder)
    missing = set(missing_cases(state))
    if not missing and state.run.verdict is not None and folder.report.exists():
        verdicts = f"its {len(state.cases)} cases have their verdicts"
        if len(state.cases) == 1:
            verdicts = "its case has its verdict"
        raise NothingSelected(
            f"run {folder.id} went to its end: {verdicts}; "
            f"for those that failed there is --failed {folder.id}"
        )
    there = {case.id: case for job in whole.jobs for case in job.cases}
    if lost := sorted(missing - there.keys()):
        raise UsageError(
            f"run {folder.id} has the case {lost[0]}, which its suite no longer gives: it was "
            "made by another version of spbench; start it again"
        )
    # as many ranks as in the cases that are done, whatever slots the hosts have now
    again = (there[case.id] for case in suite.cases if case.id in missing)
    cases = (replace(case, np=state.cases[case.id].identity.np) for case in again)
    return replace(whole, jobs=group(cases, whole.hosts_of), resumed=folder)


def plan_failed(request: Request, name: str) -> RunPlan:
    """Return the plan of a new run of the cases that failed in a recorded one.

    The cases that their expectations refer to run with them, so that these can be judged.

    Raises:
        UsageError: There is no such run, it still goes on, or it does not say what it was.
        NothingSelected: None has failed.
    """
    folder = find_run(request.home, name)
    _refuse_running(folder)
    failed = [case.id for case in folder.replay().cases.values() if case.status.is_bad]
    if not failed:
        raise NothingSelected(f"no case of run {folder.id} failed")
    asked, suite = _recorded(folder, request)
    plan = plan_suite(asked, suite)
    again = _with_referred(failed, plan.suite.cases)
    jobs = only(plan.jobs, again)
    asked = replace(asked, cases=tuple(again), keyword=None)
    return replace(plan, request=asked, jobs=jobs)


def plan_recorded(request: Request, folder: RunFolder) -> RunPlan:
    """Return the plan of a recorded run, whether it has ended or not.

    Raises:
        SpbenchError: The run does not say what it was, or its files are damaged.
    """
    return plan_suite(*_recorded(folder, request))


def _with_referred(ids: Iterable[str], cases: Iterable[Case]) -> list[str]:
    """Return the ids, and those of the cases whose figures their expectations depend on."""
    by_id = {case.id: case for case in cases}
    found = dict.fromkeys(ids)
    waiting = list(found)
    while waiting:
        case = by_id.get(waiting.pop())
        expressions = [item.expression for item in case.expect if item.expression] if case else []
        figures = (figure for text in expressions for figure in parse_expression(text).metrics)
        new = [figure.case for figure in figures if figure.case not in found]
        found |= dict.fromkeys(new)
        waiting += new
    return list(found)


def _refuse_running(folder: RunFolder) -> None:
    if folder.alive() is not False:
        where = folder.elsewhere()
        place = f" on {where}, so far as can be seen" if where else ""
        raise UsageError(f"run {folder.id} is still running{place}; wait for its end, or cancel it")


def _recorded(folder: RunFolder, request: Request) -> tuple[Request, Suite]:
    """Return the request for the same as a run's, and the suite that it recorded."""
    run = folder.read_json("run.json")
    said = run.get("request")
    if not isinstance(said, Mapping):
        raise UsageError(
            f"run {folder.id} does not say what it was asked for: it was made by an earlier "
            "version of spbench; start it again"
        )
    try:
        text = read_file(folder.path / "suite.yaml", MAX_BYTES).decode()
        started_in = Path(run["cwd"])
        asked = replace(
            request,
            suite=resolve_suite_path(started_in, Path(run["file"])),
            overrides=tuple(said["overrides"]),
            keyword=said["keyword"],
            cases=tuple(said["cases"]),
            inject=_faults(said["inject"]),
            retries=request.retries or int(said.get("retries", 0)),
            fail_on_flaky=request.fail_on_flaky or bool(said.get("fail_on_flaky")),
            system=_read_system(run.get("system")),
            chosen=_chosen(request.chosen, said["chosen"], started_in),
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"run {folder.id}: its suite.yaml or run.json is damaged ({error}); start it again"
        ) from None
    return asked, load_suite_text(text, asked.suite, settings_of(asked))


def _read_system(recorded: Any) -> str | None:
    if recorded is not None and type(recorded) is not str:
        raise TypeError("system is not a text")
    return recorded


def _faults(recorded: list[str] | str | None) -> tuple[str, ...]:
    """Return the planted faults of a run; earlier versions recorded one, or null."""
    return (recorded,) if isinstance(recorded, str) else tuple(recorded or ())


def _chosen(now: LaunchChoice, then: Mapping[str, str], started_in: Path) -> LaunchChoice:
    """Return the hosts and the launcher that are chosen now, or else those of then."""
    allowed = now.oversubscribe
    if replace(now, oversubscribe=None) != NOTHING_CHOSEN:
        return now
    given: dict[str, Any] = {name: then[name] for name in then}
    if allowed or given.get("oversubscribe"):
        given["oversubscribe"] = True
    if hostfile := then.get("hostfile"):
        given["hostfile"] = started_in / hostfile
    return LaunchChoice(**given)


def refuse_overtaken(folder: RunFolder, plan: RunPlan, state: RunState) -> None:
    """Refuse to go on with a run that another console went on with after the plan was made.

    Raises:
        UsageError: It lacks other cases now.
    """
    planned = {case.id for job in plan.jobs for case in job.cases}
    if state.run is not None and planned != set(missing_cases(state)):
        raise UsageError(
            f"run {folder.id} was resumed by another spbench meanwhile; see spbench results show"
        )


def missing_cases(state: RunState) -> list[str]:
    """Return the ids of the cases that a run which was cut short has left over."""
    return [case.id for case in state.cases.values() if not case.status.has_result]
