"""Fault injection by ``--inject``: the run must detect the faults."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from spbench.errors import UsageError, did_you_mean
from spbench.suites.case import Case, describe_stage
from spbench_core.catalog.fault_effects import describe_fault
from spbench_core.catalog.planted_fault import (
    COMMON_FAULTS,
    FACTOR_FAULT,
    PlantedFault,
    parse_fault,
)

_MAX_CHECKS_NAMED = 2
_DETECTION_BY_FAULT = {
    "hang": "The time limit ends the case.",
    "kill": "The case ends with an error that names the rank.",
    "stop": "The case ends with an error that names the silent rank.",
    "raise": "The case ends with the exception.",
    "exit": "The case ends with an error that names the rank.",
}
"""The way in which each of the common faults is detected; `FACTOR_FAULT` depends on the case."""
_SKEW = "skew"
_DEFAULT_RANK = "the last rank"
"""The rank of a fault in the catalog's texts."""


def list_faults(case: Case) -> tuple[str, ...]:
    """Return the faults that affect a case: its benchmark's, then common ones."""
    return (*case.entry.list_faults(dict(case.params)), *COMMON_FAULTS)


def list_effective_faults(case: Case) -> tuple[str, ...]:
    """Return the faults of `list_faults` that can change something in a case."""
    return (*case.entry.list_effective_faults(dict(case.params)), *COMMON_FAULTS)


def describe_effect(case: Case, fault: PlantedFault) -> str:
    """Return the effect of a fault in a case."""
    name = fault.name
    if fault.factor is not None:
        time = f"{fault.factor:g} times as long"
        effect = f"each iteration of {_DEFAULT_RANK} takes {time}, by busy waiting"
    elif name in COMMON_FAULTS:
        effect = COMMON_FAULTS[name]
    else:
        effect = describe_fault(name) or f"a fault of {case.entry.plugin or case.benchmark}"
    return _name_rank(effect, fault)


def describe_finder(case: Case, fault: PlantedFault) -> str:
    """Return how a fault in a case is found; empty if that is unknown."""
    if fault.name == FACTOR_FAULT:
        return _describe_slowness_finders(case, fault)
    if fault.name in COMMON_FAULTS:
        return _DETECTION_BY_FAULT[fault.name]
    checks = case.entry.list_checks(dict(case.params))
    if len(checks) > _MAX_CHECKS_NAMED:
        return f"At least one of the {len(checks)} checks fails."
    if len(checks) == 1:
        return f"The check {checks[0]} fails."
    return f"A check of {' or '.join(checks)} fails." if checks else ""


def _name_rank(text: str, fault: PlantedFault) -> str:
    return text if fault.rank is None else text.replace(_DEFAULT_RANK, f"rank {fault.rank}")


def explain_undetectable(case: Case, fault: PlantedFault) -> str | None:
    """Return why nothing in a case can detect a fault; None if something can."""
    if fault.name != FACTOR_FAULT or _compares_ranks(case, fault) or _list_expected_metrics(case):
        return None
    reason = f"{case.benchmark} does not measure how long ranks wait for each other"
    if get_rank_count(case) == 1:
        reason = "the case has no other rank to compare with"
    elif _is_unique_rank(case, fault):
        name = _DEFAULT_RANK if fault.rank is None else f"rank {fault.rank}"
        reason = f"no other rank does the work of {name}, where the fault is planted"
    elif case.entry.measures == "link":
        reason = "the case has no other link to compare with"
    return f"not detectable: {reason}. An expectation on a time would detect it; F3 adds one."


def is_found_by_rank_times(case: Case, fault: PlantedFault) -> bool:
    """Whether only the comparison of the ranks' times can find a fault in a case.

    The ranks of links are compared in another way, which needs no minimum of time.
    """
    is_slow = fault.name == FACTOR_FAULT and case.entry.measures != "link"
    return is_slow and _compares_ranks(case, fault) and not _list_expected_metrics(case)


def _describe_slowness_finders(case: Case, fault: PlantedFault) -> str:
    """Return a message on how a slow rank is detected: by its time, by expectations."""
    finders = []
    if _compares_ranks(case, fault):
        finders.append("The run names it if other ranks do the same work.")
    metrics = _list_expected_metrics(case)
    if metrics:
        finders.append(f"The expectations of the case are checked: {', '.join(metrics)}.")
    return " ".join(finders)


def _compares_ranks(case: Case, fault: PlantedFault) -> bool:
    """Whether a slow rank of a case differs from the ranks that wait for it."""
    entry = case.entry
    measures_waits = any(metric.waits for metric in entry.list_metrics(dict(case.params)))
    needed_ranks = 3 if entry.measures == "link" else 2  # two ranks have only one link
    rank_count = get_rank_count(case)
    is_comparable = entry.measures != "job" or measures_waits
    has_enough_ranks = rank_count is None or rank_count >= needed_ranks
    return is_comparable and has_enough_ranks and not _is_unique_rank(case, fault)


def _is_unique_rank(case: Case, fault: PlantedFault) -> bool:
    """Whether no other rank has the stage of the rank of a fault."""
    rank_count = get_rank_count(case)
    if rank_count is None or fault.find_rank(rank_count) >= rank_count:
        return False
    params = dict(case.params)
    stages = [describe_stage(case.entry.place(params, rank)) for rank in range(rank_count)]
    return stages.count(stages[fault.find_rank(rank_count)]) == 1


def get_rank_count(case: Case) -> int | None:
    """Return the number of ranks; None if it depends on the hosts."""
    return case.np if case.np is not None else case.ranks.exact


def _list_expected_metrics(case: Case) -> list[str]:
    """Return the metrics with an expectation; skew has no value on one rank."""
    metrics = dict.fromkeys(expectation.metric for expectation in case.expect)
    if get_rank_count(case) == 1:
        return [metric for metric in metrics if metric.partition(".")[0] != _SKEW]
    return list(metrics)


def inject_faults(cases: Sequence[Case], texts: Iterable[str]) -> tuple[Case, ...]:
    """Return the cases with several faults planted, one in each case at most.

    Raises:
        UsageError: As `inject_fault` does, or a case would have two faults.
    """
    faulty_cases = tuple(cases)
    for text in texts:
        faulty_cases = inject_fault(faulty_cases, text)
    return faulty_cases


def inject_fault(cases: Sequence[Case], text: str) -> tuple[Case, ...]:
    """Return the cases with a fault in each that supports it, or only in CASE.

    Args:
        cases: The selected cases.
        text: ``FAULT`` or ``FAULT@CASE``, where CASE is a case's id or name. FAULT may have a rank,
            and ``slow`` a factor.

    Raises:
        UsageError: No selected case has the name CASE, no case supports the fault, or a case has
            a fault already.
    """
    fault, separator, target = text.partition("@")
    try:
        name = parse_fault(fault).name
    except ValueError as error:
        raise UsageError(f"--inject {text}: {error}") from None
    target_cases = [case for case in cases if not separator or target in (case.id, case.name)]
    if not target_cases and separator:
        known_names = dict.fromkeys(name for case in cases for name in (case.id, case.name))
        hint = did_you_mean(target, known_names)
        raise UsageError(f"--inject {text}: no selected case is called {target!r}{hint}")
    affected_ids = {case.id for case in target_cases if name in list_faults(case)}
    if not affected_ids:
        raise UsageError(_describe_unknown(text, name, target_cases))
    for case in cases:
        if case.id in affected_ids and case.inject is not None:
            raise UsageError(
                f"--inject {text}: case {case.id} has the fault {case.inject} already, and takes "
                "one; name other cases with FAULT@CASE, or start a second run"
            )
    return tuple(replace(case, inject=fault) if case.id in affected_ids else case for case in cases)


def check_fault_rank(case: Case, np: int) -> None:
    """Check that a launch of a case on ``np`` ranks has the rank of its fault.

    Raises:
        UsageError: It does not.
    """
    reason = parse_fault(case.inject).explain_missing_rank(np) if case.inject else None
    if reason is not None:
        raise UsageError(f"--inject {case.inject}: case {case.id} has {reason}")


def _describe_unknown(text: str, fault: str, cases: Iterable[Case]) -> str:
    faults = list(dict.fromkeys(name for case in cases for name in list_faults(case)))
    hint = did_you_mean(fault, faults)
    return f"--inject {text}: no selected case knows {fault!r}; they know {', '.join(faults)}{hint}"
