"""Disturbances of a rank in a case, from counters of the kernel.

They are other users of its cores, and slowdowns. Reading them costs a few small files before and
after a case, outside of any timed region.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path

PROC = Path("/proc")
SYS = Path("/sys")
_NANO = 1e-9
_MICRO = 1e-6
_STEAL = 8
"""The column of a CPU's line in /proc/stat: the hypervisor gave this time to other guests."""
_TICK = 1.0 / os.sysconf("SC_CLK_TCK")
_DIGITS = 3
MIN_SECONDS = 0.1
"""The least seconds of waiting that are reported: in short cases the console's work costs less."""


@dataclass(frozen=True, slots=True)
class Counters:
    """Counters of the kernel so far, in seconds; 0 if the kernel does not count it.

    Attributes:
        now: The time itself.
        waited: The main thread could run but had no core, because other processes had them.
        stolen: The hypervisor ran other guests, summed over the rank's CPUs.
        throttled: The quota of a control group was used up.
        hot: The number of times that one of the rank's CPUs was slowed down because of its heat.
    """

    now: float
    waited: float
    stolen: float
    throttled: float
    hot: float


def read_counters(proc: Path = PROC, sys: Path = SYS) -> Counters:
    """Return this rank's counters as they are now."""
    cpus = os.sched_getaffinity(0)
    counts = (
        _read_waited(proc),
        _read_stolen(proc, cpus),
        _read_throttled(sys, proc),
        _read_hot(sys, cpus),
    )
    return Counters(time.monotonic(), *counts)


def find_disturbances(before: Counters, after: Counters, cpus: int) -> dict[str, float]:
    """Return the disturbances of a rank between two readings, by name.

    It is empty if there was none. ``waited``, ``stolen`` and ``throttled`` are shares of the time,
    if they take `MIN_SECONDS` or more. ``hot`` is a number of times.
    """
    seconds = after.now - before.now
    if seconds <= 0:
        return {}
    change_by_name = {
        field.name: getattr(after, field.name) - getattr(before, field.name)
        for field in fields(Counters)
    }
    lost_seconds = {name: change_by_name[name] for name in ("waited", "stolen", "throttled")}
    share_by_name = {
        name: lost_seconds[name] / seconds
        for name in lost_seconds
        if lost_seconds[name] >= MIN_SECONDS
    }
    if "stolen" in share_by_name:
        # The counter is a sum over CPUs.
        share_by_name["stolen"] /= max(1, cpus)
    share_by_name["hot"] = change_by_name["hot"]
    rounded = {name: round(value, _DIGITS) for name, value in share_by_name.items()}
    return {name: value for name, value in rounded.items() if value > 0}


def measure_slowdown(cpus: Iterable[int], sys: Path = SYS) -> float:
    """Return the share by which the slowest CPU is below its base clock rate.

    It is at least 0. The base rate is the one that a CPU keeps under any load that its cooling is
    designed for.
    """
    shares = [0.0]
    for cpu in cpus:
        folder = sys / f"devices/system/cpu/cpu{cpu}/cpufreq"
        base_khz = _read_number(folder / "base_frequency")
        current_khz = _read_number(folder / "scaling_cur_freq")
        if base_khz > 0 and current_khz > 0:
            shares.append(1.0 - current_khz / base_khz)
    return round(max(shares), _DIGITS)


def _read_waited(proc: Path) -> float:
    columns = _read_text(proc / "self/schedstat").split()
    return int(columns[1]) * _NANO if len(columns) > 1 else 0.0


def _read_stolen(proc: Path, cpus: Iterable[int]) -> float:
    names = {f"cpu{cpu}" for cpu in cpus}
    lines = (line.split() for line in _read_text(proc / "stat").splitlines())
    return _TICK * sum(
        int(columns[_STEAL]) for columns in lines if len(columns) > _STEAL and columns[0] in names
    )


def _read_throttled(sys: Path, proc: Path) -> float:
    """Return the seconds for which a quota stopped this control group.

    The group is of version 2 or 1.
    """
    lines = _read_text(proc / "self/cgroup").splitlines()
    group_by_controllers = dict(line.split(":", 2)[1:] for line in lines if line.count(":") > 1)
    cgroup_root = sys / "fs/cgroup"
    path_v2 = (group_by_controllers.get("") or "/").strip("/")
    path_v1 = next(
        (group for names, group in group_by_controllers.items() if "cpu" in names.split(",")), "/"
    )
    counters = (
        (cgroup_root / path_v2 / "cpu.stat", "throttled_usec", _MICRO),
        (cgroup_root / "cpu" / path_v1.strip("/") / "cpu.stat", "throttled_time", _NANO),
    )
    for path, name, seconds_per_unit in counters:
        for line in _read_text(path).splitlines():
            if line.startswith(f"{name} "):
                return int(line.split()[1]) * seconds_per_unit
    return 0.0


def _read_hot(sys: Path, cpus: Iterable[int]) -> float:
    folder = sys / "devices/system/cpu"
    return sum(
        _read_number(folder / f"cpu{cpu}/thermal_throttle/core_throttle_count") for cpu in cpus
    )


def _read_number(path: Path) -> float:
    text = _read_text(path).strip()
    return float(text) if text.isdigit() else 0.0


def _read_text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
