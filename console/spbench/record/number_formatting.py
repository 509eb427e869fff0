"""Formats of numbers, statuses and text, the same in every view.

A number for people has three significant digits and a unit in which it is 1 to 999. Files keep base
units and full precision, and do not use this module.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from spbench.record.planted_faults import FaultOutcome
from spbench_core.events.statuses import CaseStatus, RunStatus

GLYPHS: Mapping[str, str] = {
    CaseStatus.PASSED: "✓",
    CaseStatus.FAILED: "✗",
    CaseStatus.ERROR: "✗",
    CaseStatus.TIMEOUT: "✗",
    CaseStatus.CANCELLED: "-",
    CaseStatus.SKIPPED: "-",
}
"""The sign of each status, which is shown next to its name."""
STATUS_SYMBOLS: Mapping[str, str] = {
    **GLYPHS,
    CaseStatus.FLAKY: GLYPHS[CaseStatus.PASSED],
    CaseStatus.RUNNING: "…",
    CaseStatus.WAITING: "·",
    CaseStatus.UNFINISHED: "!",
    RunStatus.UNREADABLE: "!",
    FaultOutcome.FOUND: "!",
}
"""The signs of all statuses, also of those that a report lacks."""
NOISY = "≈"
"""The sign of times that other work has disturbed."""
SLOW = "▲"
"""The sign of a case with a slow rank, host or link."""
DISTURBED = "~"
"""The sign of an efficiency or speed-up that is not that of the hardware."""
YEAR_10000 = 253402300800.0
"""Seconds since the epoch at which calendars end. A wrong clock may be beyond it."""


@dataclass(frozen=True, slots=True)
class DisplayUnit:
    """A unit for several values, so that columns and axes are comparable.

    Attributes:
        unit: The displayed unit, such as ``us``; empty for plain numbers.
        factor: The displayed number is a value in its base unit times this factor.
    """

    unit: str
    factor: float = 1.0

    def convert(self, value: float) -> float:
        """Return a value in this unit; the largest float on overflow."""
        shown = value * self.factor
        if math.isfinite(shown) or not math.isfinite(value):
            return shown
        return math.copysign(sys.float_info.max, value)

    def format(self, value: float) -> str:
        """Return the number of a value in this unit, without the unit."""
        return format_number(self.convert(value))


_TIME_UNITS = (
    (1e-12, "ps"),
    (1e-9, "ns"),
    (1e-6, "us"),
    (1e-3, "ms"),
    (1.0, "s"),
    (60.0, "min"),
    (3600.0, "h"),
)
_DECIMAL_PREFIXES = ((1.0, ""), (1e3, "k"), (1e6, "M"), (1e9, "G"), (1e12, "T"), (1e15, "P"))
_BINARY_PREFIXES = ((1.0, ""), (2.0**10, "Ki"), (2.0**20, "Mi"), (2.0**30, "Gi"), (2.0**40, "Ti"))
_PLAIN_COUNT = 99999.5
"""Counts below this are shown in full."""
_EXACT_EXPONENT_FROM = 1e9
"""Bounds and errors from this on have an exponent."""
_LARGEST = 999.5e15
"""Numbers without a unit from this on are shown as ``>999 P``."""
_SMALLEST = 1e-12
"""Numbers without a unit below this are shown as less than this."""

_SECONDS_OF = {"ms": 1e-3, "us": 1e-6, "ns": 1e-9, "s": 1.0}
_RATE_UNITS = {"GB/s": (1e9, "B/s"), "GFLOP/s": (1e9, "FLOP/s"), "MB": (1e6, "B")}
_SHARE_METRICS = frozenset(
    [
        "accuracy",
        "agreement",
        "below_base",
        "bubble",
        "efficiency",
        "ideal_bubble",
        "mean_iou",
        "overlap",
        "top1",
        "top5",
    ]
)
_FACTOR_METRICS = frozenset(
    ["compression_ratio", "offered_load", "skew", "slowest_ratio", "speedup"]
)


def format_status(status: str, text: str = "") -> str:
    """Return a status with its sign in front; ``text`` is shown instead of its name.

    The user expects to find a planted fault, so that its sign is not that of a failure.
    """
    shown_status = text if text == FaultOutcome.FOUND else status
    return f"{STATUS_SYMBOLS.get(shown_status, '?')} {text or status}"


def format_number(value: float) -> str:
    """Return a value without a unit in three significant digits, no exponent."""
    if not math.isfinite(value):
        return "not a number" if math.isnan(value) else f"{value:+f}".lstrip("+")
    magnitude = abs(value)
    if magnitude == 0:
        return "0"
    if magnitude < _SMALLEST:
        return f"<{_SMALLEST:.12f}"
    if magnitude >= _LARGEST:
        return f"{'-' if value < 0 else ''}>999 P"
    if magnitude >= 1e9:
        divisor, prefix = _choose_prefix(magnitude, _DECIMAL_PREFIXES, 999.5)
        return f"{format_number(value / divisor)} {prefix}"
    if magnitude >= 999.5:
        return f"{value:,.0f}" if magnitude >= 99999.5 else f"{value:.0f}"
    decimals = max(0, 2 - math.floor(math.log10(float(f"{magnitude:.2e}"))))
    return f"{value:.{decimals}f}"


def format_exact(value: float, unit: str = "") -> str:
    """Return a bound or an error in four digits: ``51 ms``, ``3.679e9``, ``1e-7``.

    A prefix such as G would be a riddle without a unit, and an error may have any size.
    """
    text = f"{value:.4g}"
    if "e-" in text or ("e" in text and abs(value) >= _EXACT_EXPONENT_FROM):
        mantissa, exponent = text.split("e")
        text = f"{mantissa}e{int(exponent)}"
    elif "e" in text:
        text = format_number(value)
    return text if unit in ("", "1") else f"{text} {unit}"


def format_time(ms: float) -> str:
    """Return a time in ms as ``28.2 us``, ``1.91 ms`` or ``27.2 s``."""
    return format_value(ms, "ms")


def format_duration(seconds: float) -> str:
    """Return a duration as ``6.2 s``, ``45 s``, ``2 min 05 s`` or ``1 h 02 min``."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    total = round(seconds)
    if total < 60:
        return f"{total} s"
    minutes, seconds_left = divmod(total, 60)
    if minutes < 60:
        return f"{minutes} min {seconds_left:02} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min"


def format_whole_seconds(seconds: float) -> str:
    """Return a duration like `format_duration`, without decimals: ``6 s``."""
    return f"{seconds:.0f} s" if seconds < 9.5 else format_duration(seconds)


def format_size(count: float) -> str:
    """Return a size in bytes in powers of two: ``24 B``, ``6 KiB``, ``1.5 MiB``."""
    divisor, prefix = _choose_prefix(count, _BINARY_PREFIXES, 1023.5)
    if not prefix:
        return f"{count:.0f} B"
    number = format_number(count / divisor)
    number = number.rstrip("0").rstrip(".") if "." in number else number
    return f"{number} {prefix}B"


def format_rate(gb_s: float) -> str:
    """Return a bandwidth in GB/s as ``113 MB/s`` or ``12.5 GB/s``."""
    return format_value(gb_s, "GB/s")


def format_count(count: float) -> str:
    """Return a whole count in full up to 99999, above that like ``60.2 M``."""
    if abs(count) < _PLAIN_COUNT:
        return f"{count:.0f}"
    divisor, prefix = _choose_prefix(count, _DECIMAL_PREFIXES, 999.5)
    return f"{format_number(count / divisor)} {prefix}"


def format_percent(share: float) -> str:
    """Return a share as ``41 %``, with one more digit below 10 %: ``3.4 %``."""
    percent = 100 * share
    digits = 1 if 0 < abs(percent) < 9.95 else 0
    if not abs(percent) < _PLAIN_COUNT:  # `not` includes NaN and infinities
        return f"{format_number(percent)} %"
    if 0 < abs(percent) < 0.05:
        return "<0.1 %"
    return f"{percent:.{digits}f} %"


def format_factor(ratio: float) -> str:
    """Return a ratio of two like values: ``1.27x``."""
    return f"{format_number(ratio)}x"


def format_value(value: float, unit: str, name: str = "") -> str:
    """Return a metric's value with its unit, scaled to 1 to 999.

    Args:
        value: The value in ``unit``.
        unit: The metric's unit in the catalog; ``1`` or empty for plain numbers.
        name: The metric. It decides whether a plain number is a share, a factor or a count.
    """
    if unit in ("", "1"):
        return _format_plain(value, name)
    if not math.isfinite(value):
        return f"{format_number(value)} {unit}"
    if unit == "B":
        return format_size(value)
    if unit == "1/s":
        amount = format_count(value) if value >= _PLAIN_COUNT else format_number(value)
        return f"{amount} {'images' if name.startswith('images') else ''}/s"
    display_unit = choose_unit([value], unit)
    return f"{display_unit.format(value)} {display_unit.unit}"


def choose_unit(values: Iterable[float], unit: str) -> DisplayUnit:
    """Return the unit in which the largest of these values in ``unit`` is 1 to 999."""
    largest = max((abs(value) for value in values if math.isfinite(value)), default=0.0)
    if unit in _SECONDS_OF:
        seconds = _SECONDS_OF[unit]
        time_unit = _choose_time_unit(largest * seconds)
        return DisplayUnit(time_unit.unit, seconds * time_unit.factor)
    if unit in _RATE_UNITS:
        base_factor, shown_unit = _RATE_UNITS[unit]
        divisor, prefix = _choose_prefix(largest * base_factor, _DECIMAL_PREFIXES, 999.5)
        return DisplayUnit(prefix + shown_unit, base_factor / divisor)
    if unit == "B":
        divisor, prefix = _choose_prefix(largest, _BINARY_PREFIXES, 1023.5)
        return DisplayUnit(f"{prefix}B", 1 / divisor)
    if unit == "ns/B":
        time_unit = _choose_time_unit(largest * 1e-9)
        return DisplayUnit(f"{time_unit.unit}/B", 1e-9 * time_unit.factor)
    return DisplayUnit("" if unit == "1" else unit)


def _choose_time_unit(seconds: float) -> DisplayUnit:
    """Return the unit in which a time in seconds is 1 to 999."""
    if seconds == 0:
        return DisplayUnit("ms", 1e3)
    for length, unit in _TIME_UNITS:
        if seconds < 999.5 * length:
            return DisplayUnit(unit, 1 / length)
    length, unit = _TIME_UNITS[-1]
    return DisplayUnit(unit, 1 / length)


def _choose_prefix(
    value: float, prefixes: tuple[tuple[float, str], ...], limit: float
) -> tuple[float, str]:
    for divisor, prefix in prefixes:
        if abs(value) < limit * divisor:
            return divisor, prefix
    return prefixes[-1]


def _format_plain(value: float, name: str) -> str:
    if name in _SHARE_METRICS or name.endswith(("_share", "efficiency")):
        return format_percent(value)
    if name in _FACTOR_METRICS or name.startswith("speedup_") or name.endswith("_imbalance"):
        return format_factor(value)
    if math.isfinite(value) and value == int(value):
        return format_count(value)
    return format_number(value)


def fold_numbers(numbers: tuple[int, ...]) -> str:
    """Return ``0-3,8`` for 0, 1, 2, 3 and 8."""
    spans: list[list[int]] = []
    for number in sorted(numbers):
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)


def replace_controls(text: str) -> str:
    """Return the text with ``?`` for characters that control a terminal."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def replace_line_controls(text: str) -> str:
    """Return lines of text with ``?`` for controls and spaces for tabs.

    The output of ranks may contain anything.
    """
    return "\n".join(replace_controls(line.expandtabs()) for line in text.splitlines())
