"""Enumerations in messages: some names, and the number of others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from spbench_core.events.statuses import CaseStatus

MAX_NAMED = 3
"""The largest number of names that are all listed.

Otherwise two are listed, so that at least two remain to be counted.
"""


def enumerate_names(names: Sequence[str], label: str = "") -> str:
    """Return ``a``, ``a and b``, ``a, b and c``, or ``a, b and 2 more hosts``.

    Args:
        names: The names, without duplicates.
        label: The plural of the named things; empty if it is clear.
    """
    if len(names) > MAX_NAMED:
        remainder = f"{len(names) - (MAX_NAMED - 1)} more {label}".rstrip()
        return f"{', '.join(names[: MAX_NAMED - 1])} and {remainder}"
    if len(names) > 1:
        return f"{', '.join(names[:-1])} and {names[-1]}"
    return "".join(names)


def name_cases(ids: Sequence[str]) -> str:
    """Return ``in a``, or ``in 4 cases: a, b and 2 more``."""
    if len(ids) == 1:
        return f"in {ids[0]}"
    return f"in {len(ids)} cases: {enumerate_names(ids)}"


def ask_to_run_again(statuses: Mapping[str, CaseStatus]) -> str:
    """Return ``Run the failed case a again?`` or ``Run 2 failed cases again: a, b?``."""
    failed = [id_ for id_, status in statuses.items() if status.is_bad]
    cancelled = [id_ for id_, status in statuses.items() if status is CaseStatus.CANCELLED]
    counts = {"failed": len(failed), "cancelled": len(cancelled)}
    count_text = " and ".join(f"{count} {word}" for word, count in counts.items() if count)
    ids = [*failed, *cancelled]
    if len(ids) == 1:
        return f"Run the {'failed' if failed else 'cancelled'} case {ids[0]} again?"
    return f"Run {count_text} cases again: {enumerate_names(ids)}?"


def format_case_count(ids: Sequence[str], total: int) -> str:
    """Return ``in a``, ``in 9 of 12 cases`` or ``in all 12 cases``."""
    if len(ids) == 1:
        return f"in {ids[0]}"
    if len(ids) == total:
        return "in both cases" if total == 2 else f"in all {total} cases"
    return f"in {len(ids)} of {total} cases"
