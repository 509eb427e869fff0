"""Enumerations in sentences: a few names in full, of many the first and how many more there are."""

from __future__ import annotations

from collections.abc import Sequence

MOST_NAMED = 3
"""Names that are all written; of more the first two are, so that at least two are counted."""


def enumerate_names(names: Sequence[str], what: str = "") -> str:
    """Return ``a``, ``a and b``, ``a, b and c``, or ``a, b and 2 more hosts``.

    Args:
        names: The names, none of them twice.
        what: What they name, in the plural; empty if that is clear.
    """
    if len(names) > MOST_NAMED:
        rest = f"{len(names) - (MOST_NAMED - 1)} more {what}".rstrip()
        return f"{', '.join(names[: MOST_NAMED - 1])} and {rest}"
    if len(names) > 1:
        return f"{', '.join(names[:-1])} and {names[-1]}"
    return "".join(names)


def name_cases(ids: Sequence[str]) -> str:
    """Return ``in a``, or ``in 4 cases: a, b and 2 more``."""
    if len(ids) == 1:
        return f"in {ids[0]}"
    return f"in {len(ids)} cases: {enumerate_names(ids)}"


def count_cases(ids: Sequence[str], total: int) -> str:
    """Return ``in a``, ``in 9 of 12 cases`` or ``in all 12 cases``."""
    if len(ids) == 1:
        return f"in {ids[0]}"
    if len(ids) == total:
        return "in both cases" if total == 2 else f"in all {total} cases"
    return f"in {len(ids)} of {total} cases"
