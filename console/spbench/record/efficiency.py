"""Efficiency: a measured value compared with its reference from the same job."""

from __future__ import annotations

from collections.abc import Container

from spbench.record.number_formatting import DISTURBED, format_percent, format_value

ABOVE_REFERENCE = (
    "above 100 %: faster than its reference, which is measured in a separate loop and is no bound"
)
"""The explanation that a view gives once if an efficiency is above 100 %."""

MAX_EFFICIENCY = 9.995
"""An efficiency above this says only that something disturbed its reference."""


def compute_efficiency(
    value: float | None, reference: float | None, better: str = "lower"
) -> float | None:
    """Return reference / time, 1 for a time equal to its reference; None if one is unknown.

    The reference was measured in the same job, so a time can be shorter: above 1 the time was
    better than its reference.

    Args:
        value: What was measured, a time unless ``better`` says otherwise.
        reference: Its reference, in the same unit.
        better: ``higher`` for a rate, of which the efficiency is rate / reference.
    """
    if value is None or reference is None:
        return None
    whole, part = (reference, value) if better == "higher" else (value, reference)
    return part / whole if whole > 0 else None


def format_efficiency(efficiency: float | None, *, disturbed: bool = False) -> str:
    """Return ``41 %``; ``~41 %`` if times were disturbed, so that it is not the hardware's."""
    if efficiency is None:
        return ""
    text = format_percent(efficiency) if efficiency < MAX_EFFICIENCY else "> 999 %"
    return (DISTURBED if disturbed else "") + text


EFFICIENCIES = {"efficiency": ("time_ms",), "exchange_efficiency": ("exchange_ms", "time_ms")}
"""By efficiency, the times that it may divide the reference by: the first one with a reference."""
SPEEDUPS = {
    "speedup_vs_sequential": ("sequential_ms",),
    "speedup": ("sequential_ms", "unfused_ms"),
}
"""By speed-up, the times that it may compare ``time_ms`` with."""


def find_efficiency_time(metric: str, references: Container[str]) -> str | None:
    """Return the time that an efficiency divides the reference by; None for other metrics.

    Views leave an efficiency of ``time_ms`` out if they show that of the case.

    Args:
        metric: The key of the metric.
        references: The metrics of the case that have a reference.
    """
    return next((time for time in EFFICIENCIES.get(metric, ()) if time in references), None)


def is_ratio_of_times(metric: str) -> bool:
    """Return whether a metric follows from two times: over several repeats, from their medians."""
    return metric in EFFICIENCIES or metric in SPEEDUPS


def format_metric(value: float, unit: str, metric: str, *, disturbed: bool) -> str:
    """Return a metric's value with its unit; ``~46 %`` if disturbed times are not the hardware's.

    Args:
        value: The value in ``unit``.
        unit: The unit in the catalog.
        metric: The key of the metric, such as ``exchange_efficiency``.
        disturbed: Whether the times of the case were disturbed.
    """
    text = format_value(value, unit, metric)
    return f"{DISTURBED}{text}" if disturbed and is_relative(metric) else text


def is_relative(metric: str) -> bool:
    """Return whether a metric loses its meaning if the times of its case were disturbed."""
    return metric.endswith("efficiency") or metric.startswith("speedup")
