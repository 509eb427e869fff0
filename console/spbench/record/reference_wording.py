"""References of expectations in words: the value, the allowed deviations, and the deviation."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from spbench.record.number_formatting import format_factor, format_percent, format_value


def describe_limit(item: Mapping[str, Any]) -> str:
    """Return the limit of an expectation, as ``368 us (reference 350 us +5 %)``.

    Args:
        item: An expectation with a ``reference``, as the events have it.
    """
    reference = item["reference"]
    share = reference["upper"] if item["op"] == "max" else reference["lower"]
    value = format_reference(item["metric"], reference)
    limit = _format(item["metric"], reference, item["limit"])
    return f"{limit} (reference {value} {_format_share(share)})"


def describe_miss(item: Mapping[str, Any]) -> str:
    """Return how far a result is from its reference, and what is allowed.

    ``time_ms.p50 is 410 us, 17 % above its reference 350 us (allowed: -10 % to +5 %)``

    Args:
        item: A failed expectation with a ``reference`` and a ``value``, as the events have it.
    """
    reference = item["reference"]
    value = _format(item["metric"], reference, item["value"])
    return (
        f"{item['metric']} is {value}, {_format_deviation(item['value'] / reference['value'])} "
        f"its reference {format_reference(item['metric'], reference)} "
        f"({describe_allowed(reference)})"
    )


def format_reference(metric: str, reference: Mapping[str, Any]) -> str:
    """Return the value of a reference with its unit."""
    return _format(metric, reference, reference["value"])


def describe_allowed(reference: Mapping[str, Any]) -> str:
    """Return the allowed deviations, as ``allowed: -10 % to +5 %``."""
    lower = reference["lower"]
    upper = reference["upper"]
    if lower is None:
        return f"allowed: up to {_format_share(upper)}"
    if upper is None:
        return f"allowed: down to {_format_share(lower)}"
    return f"allowed: {_format_share(lower)} to {_format_share(upper)}"


def _format(metric: str, reference: Mapping[str, Any], value: float) -> str:
    return format_value(value, reference["unit"], metric.partition(".")[0])


def _format_deviation(ratio: float) -> str:
    if ratio >= 10:  # "900 % above" is harder to read than "10.0x"
        return format_factor(ratio)
    return f"{format_percent(abs(ratio - 1))} {'above' if ratio > 1 else 'below'}"


def _format_share(share: float | None) -> str:
    """Return a tolerance with all digits that the suite has: ``+7.5 %``."""
    if not share:
        return "0 %"
    percent = (Decimal(repr(share)) * 100).normalize()
    return f"{percent:+f} %"
