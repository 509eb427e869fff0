"""Names of runs by their start times, which differ from each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from spbench.tui.cells import format_exact_moment, format_moment

_ID_TAIL = 4
"""The random characters at the end of a run's id."""


def name_starts(starts: Mapping[str, float | None], now: float) -> dict[str, str]:
    """Return names of runs by their ids: ``11-21 14:36``, with more for equal minutes.

    All runs of a day have their seconds if two of them start in the same minute. Those of the same
    second have the end of the id instead.

    Args:
        starts: The start times by id, in seconds since the epoch.
        now: The current time, in seconds since the epoch.
    """
    minutes = {run: format_moment(start, now) for run, start in starts.items()}
    name_counts = Counter(minutes.values())
    days = {name.split()[0] for name, count in name_counts.items() if count > 1}
    names = {
        run: format_exact_moment(starts[run], now) if name.split()[0] in days else name
        for run, name in minutes.items()
    }
    return _lengthen_equal(names, lambda run: f"{minutes[run]} {run[-_ID_TAIL:]}")


def _lengthen_equal(names: Mapping[str, str], make_longer: Callable[[str], str]) -> dict[str, str]:
    """Return the names, with longer ones instead of those that are not unique."""
    count_by_name = Counter(names.values())
    return {
        run: make_longer(run) if count_by_name[name] > 1 else name for run, name in names.items()
    }
