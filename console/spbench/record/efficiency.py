"""Efficiency: a measured value compared with its reference from the same job."""

from __future__ import annotations

from collections.abc import Container

from spbench.record.number_formatting import DISTURBED, format_percent, format_value

ABOVE_REFERENCE = "above 100 %: faster than the reference, which is timed separately"
"""The explanation of efficiencies above 100 %, which a view shows once."""

SLOW_REFERENCE = "above 200 %: the reference is too slow to compare with"
"""The explanation of efficiencies above `MAX_EFFICIENCY`."""

MAX_EFFICIENCY = 2.0
"""An efficiency above this shows only that the reference is too slow."""


def compute_efficiency(
    value: float | None, reference: float | None, better: str = "lower"
) -> float | None:
    """Return reference / time, or rate / reference for a rate; None if one is unknown.

    It is 1 for a time equal to its reference. The reference was measured in the same job, so a time
    can be shorter, and the efficiency is then above 1.

    Args:
        value: The measured value, a time unless ``better`` is ``higher``.
        reference: Its reference, in the same unit.
        better: ``higher`` for a rate.
    """
    if value is None or reference is None:
        return None
    denominator, numerator = (reference, value) if better == "higher" else (value, reference)
    return numerator / denominator if denominator > 0 else None


def format_efficiency(efficiency: float | None, *, disturbed: bool = False) -> str:
    """Return ``41 %``, or ``~41 %`` if times were disturbed, at most ``> 200 %``."""
    if efficiency is None:
        return ""
    text = format_percent(efficiency) if efficiency <= MAX_EFFICIENCY else "> 200 %"
    return (DISTURBED if disturbed else "") + text


def explain_efficiency(efficiency: float | None) -> str:
    """Return the explanation of an efficiency above 100 %; empty for others."""
    if efficiency is None or efficiency <= 1:
        return ""
    return SLOW_REFERENCE if efficiency > MAX_EFFICIENCY else ABOVE_REFERENCE


EFFICIENCIES = {"efficiency": ("time_ms",), "exchange_efficiency": ("exchange_ms", "time_ms")}
"""The times by which an efficiency may divide a reference: the first one that has a reference."""
SPEEDUPS = {
    "speedup_vs_sequential": ("sequential_ms",),
    "speedup": ("sequential_ms", "unfused_ms"),
}
"""The times with which a speed-up may compare ``time_ms``."""


def find_efficiency_time(metric: str, references: Container[str]) -> str | None:
    """Return the time by which an efficiency divides a reference, or None.

    Args:
        metric: The key of the metric.
        references: The metrics of the case that have a reference.
    """
    return next((time for time in EFFICIENCIES.get(metric, ()) if time in references), None)


def is_ratio_of_times(metric: str) -> bool:
    """Whether a metric is a ratio of two times.

    Over several repeats it is the ratio of their medians.
    """
    return metric in EFFICIENCIES or metric in SPEEDUPS


def format_metric(value: float, unit: str, metric: str, *, disturbed: bool) -> str:
    """Return a metric's value with its unit, ``~46 %`` if times were disturbed.

    Args:
        value: The value in ``unit``.
        unit: The unit in the catalog.
        metric: The key of the metric, such as ``exchange_efficiency``.
        disturbed: Whether the times of the case were disturbed.
    """
    text = format_value(value, unit, metric)
    return f"{DISTURBED}{text}" if disturbed and is_relative(metric) else text


def is_relative(metric: str) -> bool:
    """Whether a metric loses its meaning if the times of its case were disturbed."""
    return metric.endswith("efficiency") or metric.startswith("speedup")
