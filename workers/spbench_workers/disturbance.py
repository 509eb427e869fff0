"""Disturbances of a rank in a case: what else had its cores, or slowed them, as the kernel counts.

Nothing here costs more than a few small files read before and after a case, none of it timed.
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
"""The word of a CPU's line in /proc/stat that counts what the hypervisor gave to others."""
_TICK = 1.0 / os.sysconf("SC_CLK_TCK")
_DIGITS = 3
MIN_SECONDS = 0.1
"""Seconds of waiting from which on it is told: the console's own work costs a short case less."""


@dataclass(frozen=True, slots=True)
class Counters:
    """What the kernel has counted so far, in seconds; what it does not count is 0.

    Attributes:
        now: The time itself.
        waited: The main thread could run and had no core: other processes had them.
        stolen: The hypervisor ran other guests, on all of the rank's CPUs together.
        throttled: A control group's quota was used up.
        hot: The times, as a number, that one of the rank's CPUs was slowed down for its heat.
    """

    now: float
    waited: float
    stolen: float
    throttled: float
    hot: float


def read_counters(proc: Path = PROC, sys: Path = SYS) -> Counters:
    """Return this rank's counters as they are now."""
    cpus = os.sched_getaffinity(0)
    taken = (_waited(proc), _stolen(proc, cpus), _throttled(sys, proc), _hot(sys, cpus))
    return Counters(time.monotonic(), *taken)


def find_disturbances(before: Counters, after: Counters, cpus: int) -> dict[str, float]:
    """Return what disturbed a rank between two readings, by name.

    Nothing where nothing did.

    ``waited``, ``stolen`` and ``throttled`` are shares of the time, told from `LEAST` seconds on;
    ``hot`` is a number of times.
    """
    seconds = after.now - before.now
    if seconds <= 0:
        return {}
    change = {
        field.name: getattr(after, field.name) - getattr(before, field.name)
        for field in fields(Counters)
    }
    lost = {name: change[name] for name in ("waited", "stolen", "throttled")}
    shares = {name: lost[name] / seconds for name in lost if lost[name] >= MIN_SECONDS}
    if "stolen" in shares:  # of all its CPUs together
        shares["stolen"] /= max(1, cpus)
    shares["hot"] = change["hot"]
    rounded = {name: round(value, _DIGITS) for name, value in shares.items()}
    return {name: value for name, value in rounded.items() if value > 0}


def measure_slowdown(cpus: Iterable[int], sys: Path = SYS) -> float:
    """Return by which share the slowest of these CPUs runs below its base clock rate; 0: none.

    The base rate is what a CPU keeps under any load that its cooling is made for.
    """
    shares = [0.0]
    for cpu in cpus:
        folder = sys / f"devices/system/cpu/cpu{cpu}/cpufreq"
        base = _number(folder / "base_frequency")
        now = _number(folder / "scaling_cur_freq")
        if base > 0 and now > 0:
            shares.append(1.0 - now / base)
    return round(max(shares), _DIGITS)


def _waited(proc: Path) -> float:
    words = _text(proc / "self/schedstat").split()
    return int(words[1]) * _NANO if len(words) > 1 else 0.0


def _stolen(proc: Path, cpus: Iterable[int]) -> float:
    names = {f"cpu{cpu}" for cpu in cpus}
    lines = (line.split() for line in _text(proc / "stat").splitlines())
    return _TICK * sum(
        int(words[_STEAL]) for words in lines if len(words) > _STEAL and words[0] in names
    )


def _throttled(sys: Path, proc: Path) -> float:
    """The seconds that a quota stopped this control group, by version 2 or 1 of cgroups."""
    lines = _text(proc / "self/cgroup").splitlines()
    groups = dict(line.split(":", 2)[1:] for line in lines if line.count(":") > 1)
    root = sys / "fs/cgroup"
    own = (groups.get("") or "/").strip("/")
    old = next((path for names, path in groups.items() if "cpu" in names.split(",")), "/")
    places = (
        (root / own / "cpu.stat", "throttled_usec", _MICRO),
        (root / "cpu" / old.strip("/") / "cpu.stat", "throttled_time", _NANO),
    )
    for place, name, unit in places:
        for line in _text(place).splitlines():
            if line.startswith(f"{name} "):
                return int(line.split()[1]) * unit
    return 0.0


def _hot(sys: Path, cpus: Iterable[int]) -> float:
    folder = sys / "devices/system/cpu"
    return sum(_number(folder / f"cpu{cpu}/thermal_throttle/core_throttle_count") for cpu in cpus)


def _number(path: Path) -> float:
    text = _text(path).strip()
    return float(text) if text.isdigit() else 0.0


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
