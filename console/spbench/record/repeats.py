"""Repeats that go on until a case's median is known well enough, or their time is used."""

from __future__ import annotations

from spbench.record.case_state import CaseState, RepeatsEnd
from spbench.record.number_formatting import format_percent
from spbench.stats.summary import median, median_interval
from spbench_core.quantities import format_quantity


def relative_width(case: CaseState) -> float | None:
    """Return the 95 % interval of a case's time over its median; None of fewer than six launches.

    A launch is one value, since its iterations depend on each other.
    """
    launches = case.launch_medians("time_ms")
    between = median_interval(launches)
    middle = median(launches) if launches else 0.0
    return (between[1] - between[0]) / middle if between and middle > 0 else None


def describe_repeats(case: CaseState) -> str | None:
    """Return how the repeats of a case with ``until`` ended, in a sentence; None of others."""
    asked = case.identity.until
    end = case.measured.repeats_end
    if asked is None or end is None:
        return None
    times = f"it ran {format_quantity(end.repeats, 'time')}"
    if end.reason == "check":
        return f"{times}, and no more since a check failed"
    used = {"max_time": f", for its max_time of {asked['max_time']:g} s", "repeats": ", the most"}
    return f"{times}{used.get(end.reason, '')}: {_interval(end, asked['interval'])}"


def _interval(end: RepeatsEnd, asked: float) -> str:
    if end.width is None:
        return "too few for a 95 % interval of its median, which takes six"
    still = "still " * (end.width > asked)
    wide = format_percent(end.width)
    goal = format_percent(asked)
    return f"the 95 % interval of its median is {still}{wide} wide, and {goal} was asked for"
