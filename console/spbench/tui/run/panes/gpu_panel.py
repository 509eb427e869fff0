"""The GPUs of a run: utilization, memory, power, clocks and throttling."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from spbench.record.machine.gpu_loads import GpuKey, GpuLoads, GpuState
from spbench.record.number_formatting import fold_numbers, format_number, format_percent
from spbench.tui.widgets.glyphs import render_sparkline
from spbench.tui.widgets.table_columns import Column, TableCell
from spbench_core.events.gpu_readings import ThrottleReason

SPARKLINE_WIDTH = 12
"""Cells of a sparkline, one per second."""
ABSENT = "-"
"""The text of a value that the GPU does not report."""
LOST = "✗ lost"
THROTTLED = "▼"
"""The sign of a throttled GPU, in front of its reasons."""
_GIB = 1 << 30
_REASONS = tuple(ThrottleReason)
COLUMNS = (
    Column("host", "host", 9, flexible=True),
    Column("gpu", "GPU", 3, "right"),
    Column("ranks", "ranks", 7, drop_priority=4),
    Column("utilization", "utilization", SPARKLINE_WIDTH + 6, drop_priority=1),
    Column("memory", "memory", 15, "right", drop_priority=3),
    Column("power", "power", 11, "right", drop_priority=2),
    Column("clock", "SM clock", 14, "right", drop_priority=2),
    Column("temperature", "temp", 6, "right", drop_priority=5),
    Column("throttled", "throttled", 22),
)


class GpuRows:
    """One row per GPU with its newest readings; lost and throttled GPUs come first."""

    def __init__(self, gpus: GpuLoads) -> None:
        self._gpus = gpus

    def keys(self) -> Sequence[Hashable]:
        """Return host and number of each GPU."""
        return sorted(self._gpus.keys(), key=lambda key: _get_urgency(self._gpus.get(key)))

    def version(self, key: Hashable) -> Hashable:
        """Return a value that changes with each reading, and with the ranks of the GPU."""
        gpu = self._get(key)
        return gpu.figures.num_readings, tuple(self._gpus.ranks(gpu))

    def cells(self, key: Hashable) -> Sequence[TableCell | str]:
        """Return the cells of a GPU."""
        gpu = self._get(key)
        ranks = fold_numbers(tuple(self._gpus.ranks(gpu))) or ABSENT
        return [
            gpu.host,
            str(gpu.facts.index),
            _make_cell(ranks),
            _make_cell(_render_utilization(gpu)),
            _make_cell(_format_memory(gpu)),
            _make_cell(_format_power(gpu)),
            _make_cell(_format_clock(gpu)),
            _make_cell(_format_temperature(gpu)),
            _make_state_cell(gpu),
        ]

    def sort_value(self, key: Hashable, column: str) -> Any:
        """Return the sort key of a GPU; None if the value is unknown."""
        gpu = self._get(key)
        newest = gpu.newest
        match column:
            case "host":
                return gpu.host, gpu.facts.index
            case "gpu":
                return gpu.facts.index
            case "ranks":
                return next(iter(self._gpus.ranks(gpu)), None)
            case "utilization":
                return newest.utilization
            case "memory":
                return newest.memory_used_bytes
            case "power":
                return newest.power_w
            case "clock":
                return newest.sm_clock_mhz
            case "temperature":
                return newest.temperature_c
            case _:
                return _get_urgency(gpu)

    def search_text(self, key: Hashable) -> str:
        """Return host, number and state of a GPU."""
        gpu = self._get(key)
        return f"{gpu.host} gpu {gpu.facts.index} {_format_state(gpu)}".lower()

    def _get(self, key: Hashable) -> GpuState:
        gpu_key: GpuKey = key  # type: ignore[assignment]
        return self._gpus.get(gpu_key)


def describe_gpu(gpu: GpuState) -> str:
    """Return number and newest readings of a GPU in one line, without unknown values."""
    if gpu.newest.lost:
        return f"{gpu.facts.index}: {LOST}"
    utilization = gpu.newest.utilization
    parts = [
        "" if utilization is None else f"{format_percent(utilization)} busy",
        _format_memory(gpu),
        _format_power(gpu),
        _format_clock(gpu),
        _format_temperature(gpu),
    ]
    if gpu.newest.throttle_reasons is not None:
        parts.append(f"throttled: {', '.join(gpu.newest.throttle_reasons) or 'no'}")
    values = ", ".join(part for part in parts if part not in ("", ABSENT))
    return f"{gpu.facts.index}: {values or 'it reports no values'}"


def _get_urgency(gpu: GpuState) -> int:
    """Return a number that is lower the more serious the state of a GPU is."""
    if gpu.newest.lost:
        return 0
    reasons = gpu.newest.throttle_reasons
    return 1 + (_REASONS.index(reasons[0]) if reasons else len(_REASONS))


def _make_cell(text: str) -> TableCell:
    return TableCell(text, "muted" if text == ABSENT else "")


def _make_state_cell(gpu: GpuState) -> TableCell:
    text = _format_state(gpu)
    if gpu.newest.lost:
        return TableCell(text, "failed")
    if gpu.newest.throttle_reasons:
        return TableCell(text, "slow")
    return _make_cell(text)


def _format_state(gpu: GpuState) -> str:
    if gpu.newest.lost:
        return LOST
    reasons = gpu.newest.throttle_reasons
    if reasons is None:
        return ABSENT
    if not reasons:
        return "no"
    others = f" +{len(reasons) - 1}" if len(reasons) > 1 else ""
    return f"{THROTTLED} {reasons[0]}{others}"


def _render_utilization(gpu: GpuState) -> str:
    if gpu.newest.utilization is None:
        return ABSENT
    bars = render_sparkline(gpu.history, SPARKLINE_WIDTH, 1.0)
    return f"{bars} {format_percent(gpu.newest.utilization):>5}"


def _format_memory(gpu: GpuState) -> str:
    used = gpu.newest.memory_used_bytes
    total = gpu.facts.memory_total_bytes
    return _format_pair(
        None if used is None else used / _GIB, None if total is None else total / _GIB, "GiB"
    )


def _format_power(gpu: GpuState) -> str:
    return _format_pair(gpu.newest.power_w, gpu.facts.power_limit_w, "W")


def _format_clock(gpu: GpuState) -> str:
    return _format_pair(gpu.newest.sm_clock_mhz, gpu.facts.max_sm_clock_mhz, "MHz")


def _format_temperature(gpu: GpuState) -> str:
    celsius = gpu.newest.temperature_c
    return ABSENT if celsius is None else f"{celsius:.0f} °C"


def _format_pair(value: float | None, maximum: float | None, unit: str) -> str:
    """Return ``60.2/141 GiB``, without a maximum if that is unknown."""
    if value is None:
        return ABSENT
    maximum_text = "" if maximum is None else f"/{_format_short(maximum)}"
    return f"{_format_short(value)}{maximum_text} {unit}"


def _format_short(value: float) -> str:
    """Return a number with three significant digits, whole from 100 on."""
    return f"{value:.0f}" if value >= 99.95 else format_number(value)
