"""What the kernel says of this machine: its memory, NUMA nodes, governor and limits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

PROC = Path("/proc")
SYS = Path("/sys")
_UNLIMITED = 1 << 60
"""Bytes from which on version 1 of cgroups means that there is no limit."""


def read_memory_kib() -> int:
    """Return the memory of the machine, 0 where the kernel does not say."""
    for line in read_lines(PROC / "meminfo"):
        if line.startswith("MemTotal"):
            return int(line.split()[1])
    return 0


def read_available_memory() -> int | None:
    """Return the bytes that new processes can have, None where the kernel does not say.

    They are what is free or can be freed, and at most the limit of the control group.
    """
    limit = read_cgroup_limits()["memory_bytes"]
    for line in read_lines(PROC / "meminfo"):
        if line.startswith("MemAvailable"):
            free = 1024 * int(line.split()[1])
            return free if limit is None else min(free, int(limit))
    return None if limit is None else int(limit)


def read_numa_nodes() -> dict[str, str]:
    """Return the CPUs of each NUMA node, as ``0-3,8-11``."""
    found = (SYS / "devices/system/node").glob("node[0-9]*/cpulist")
    by_node = {int(path.parent.name.removeprefix("node")): read_text(path) for path in found}
    return {str(node): cpus or "" for node, cpus in sorted(by_node.items())}


def read_governor() -> str | None:
    """Return the first CPU's governor of clock rates; None where the kernel has none."""
    return read_text(SYS / "devices/system/cpu/cpu0/cpufreq/scaling_governor")


def read_cgroup_limits() -> dict[str, Any]:
    """Return the limits of this process's control groups: CPUs and memory in bytes; None: none.

    Each is the tightest of the group's own and of those above it.
    """
    paths = dict(_groups())
    return {"cpus": _least(_cpus(paths)), "memory_bytes": _least(_memory(paths))}


def _groups() -> list[tuple[str, str]]:
    """The process's group by controller; ``""`` is that of version 2."""
    rows = [line.split(":", 2) for line in read_lines(PROC / "self/cgroup")]
    return [
        (name, path)
        for _, names, path in (row for row in rows if len(row) == 3)
        for name in names.split(",")
    ]


def _folders(controller: str, group: str | None) -> list[Path]:
    """The group's folder and those above it; in a container its own may be the root alone."""
    root = SYS / "fs/cgroup" / controller
    own = root / (group or "").strip("/")
    return [own, *(above for above in own.parents if above == root or root in above.parents), root]


def _cpus(paths: dict[str, str]) -> list[float]:
    found = []
    for folder in _folders("", paths.get("")):
        quota, _, period = (read_text(folder / "cpu.max") or "max").partition(" ")
        if quota.isdigit() and period.isdigit():
            found.append(int(quota) / int(period))
    for folder in _folders("cpu", paths.get("cpu")):
        quota = read_text(folder / "cpu.cfs_quota_us") or ""
        period = read_text(folder / "cpu.cfs_period_us") or ""
        if quota.isdigit() and period.isdigit():
            found.append(int(quota) / int(period))
    return found


def _memory(paths: dict[str, str]) -> list[int]:
    files = [folder / "memory.max" for folder in _folders("", paths.get(""))]
    old = _folders("memory", paths.get("memory"))
    files += [folder / "memory.limit_in_bytes" for folder in old]
    texts = [read_text(path) or "" for path in files]
    return [int(text) for text in texts if text.isdigit() and int(text) < _UNLIMITED]


def _least(values: list[Any]) -> Any:
    return min(values, default=None)


def read_lines(path: Path) -> list[str]:
    """Return the lines of a file of the kernel's; none where it cannot be read."""
    return (read_text(path) or "").splitlines()


def read_text(path: Path) -> str | None:
    """Return what is in a file of the kernel's, None where it is empty or cannot be read."""
    try:
        return path.read_text(errors="replace").strip() or None
    except OSError:
        return None
