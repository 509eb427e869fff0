"""Descriptions of the limits, references and repeats of a case."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from spbench.record.case_parts import RepeatsEnd
from spbench.record.case_state import CaseState
from spbench.record.number_formatting import format_factor, format_percent, format_value
from spbench_core.number_text import format_quantity


def describe_time_reference(case: CaseState | None) -> str:
    """Return the origin of the reference time of a case; empty without one.

    The time of a case of links is that of one pair, which may be far slower than others.
    """
    if case is None:
        return ""
    reference = case.measured.median_references.get("time_ms")
    if reference is None or not reference["measured_by"]:
        return ""
    slowest = "; its time: the slowest link" if case.identity.measures == "link" else ""
    return f"reference of {case.id}: {reference['measured_by']}{slowest}"


def describe_limit(item: Mapping[str, Any]) -> str:
    """Return the limit of an expectation, such as ``368 us (reference 350 us +5 %)``.

    Args:
        item: An expectation with a ``reference``, from an event.
    """
    reference = item["reference"]
    share = reference["upper"] if item["op"] == "max" else reference["lower"]
    reference_text = format_reference(item["metric"], reference)
    limit_text = _format_in_unit(item["metric"], reference, item["limit"])
    return f"{limit_text} (reference {reference_text} {_format_share(share)})"


def describe_miss(item: Mapping[str, Any]) -> str:
    """Return how far a result is from its reference, and the allowed deviation.

    ``time_ms.p50 is 410 us, 17 % above its reference 350 us (allowed: -10 % to +5 %)``

    Args:
        item: A failed expectation with a ``reference`` and a ``value``, from an event.
    """
    reference = item["reference"]
    value_text = _format_in_unit(item["metric"], reference, item["value"])
    deviation = _format_deviation(item["value"] / reference["value"])
    return (
        f"{item['metric']} is {value_text}, {deviation} "
        f"its reference {format_reference(item['metric'], reference)} "
        f"({describe_allowed(reference)})"
    )


def format_reference(metric: str, reference: Mapping[str, Any]) -> str:
    """Return the value of a reference with its unit."""
    return _format_in_unit(metric, reference, reference["value"])


def describe_allowed(reference: Mapping[str, Any]) -> str:
    """Return the allowed deviations, such as ``allowed: -10 % to +5 %``."""
    lower = reference["lower"]
    upper = reference["upper"]
    if lower is None:
        return f"allowed: up to {_format_share(upper)}"
    if upper is None:
        return f"allowed: down to {_format_share(lower)}"
    return f"allowed: {_format_share(lower)} to {_format_share(upper)}"


def _format_in_unit(metric: str, reference: Mapping[str, Any], value: float) -> str:
    return format_value(value, reference["unit"], metric.partition(".")[0])


def _format_deviation(ratio: float) -> str:
    if ratio >= 10:  # "900 % above" is harder to read than "10.0x"
        return format_factor(ratio)
    return f"{format_percent(abs(ratio - 1))} {'above' if ratio > 1 else 'below'}"


def _format_share(share: float | None) -> str:
    """Return a tolerance with all digits from the suite: ``+7.5 %``."""
    if not share:
        return "0 %"
    percent = (Decimal(repr(share)) * 100).normalize()
    return f"{percent:+f} %"


def describe_repeats(case: CaseState) -> str | None:
    """Return how the repeats of a case with ``until`` ended; None for other cases."""
    until = case.identity.until
    end = case.measured.repeats_end
    if until is None or end is None:
        return None
    run_count = f"it ran {format_quantity(end.repeats, 'time')}"
    if end.reason == "check":
        return f"{run_count}, and no more since a check failed"
    limits = {
        "max_time": f", for its max_time of {until['max_time']:g} s",
        "repeats": ", the most",
    }
    return f"{run_count}{limits.get(end.reason, '')}: {_describe_width(end, until['interval'])}"


def _describe_width(end: RepeatsEnd, goal: float) -> str:
    if end.width is None:
        return "too few for a 95 % interval of its median, which takes six"
    still = "still " if end.width > goal else ""
    width_text = format_percent(end.width)
    goal_text = format_percent(goal)
    return (
        f"the 95 % interval of its median is {still}{width_text} wide, "
        f"and {goal_text} was asked for"
    )
