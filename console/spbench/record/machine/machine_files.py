"""Facts of the kernel about this machine: memory, NUMA nodes, governor and limits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

PROC = Path("/proc")
SYS = Path("/sys")
_UNLIMITED = 1 << 60
"""A limit of cgroups version 1 of at least this many bytes means that there is no limit."""


def read_memory_kib() -> int:
    """Return the memory of the machine in KiB; 0 if the kernel does not report it."""
    for line in read_lines(PROC / "meminfo"):
        if line.startswith("MemTotal"):
            return int(line.split()[1])
    return 0


def read_available_memory() -> int | None:
    """Return the bytes that new processes can allocate; None if unknown.

    It is the free and reclaimable memory, limited by the control group.
    """
    limit = read_cgroup_limits()["memory_bytes"]
    for line in read_lines(PROC / "meminfo"):
        if line.startswith("MemAvailable"):
            free = 1024 * int(line.split()[1])
            return free if limit is None else min(free, int(limit))
    return None if limit is None else int(limit)


def read_numa_nodes() -> dict[str, str]:
    """Return the CPUs of each NUMA node, such as ``0-3,8-11``."""
    paths = (SYS / "devices/system/node").glob("node[0-9]*/cpulist")
    by_node = {int(path.parent.name.removeprefix("node")): read_text(path) for path in paths}
    return {str(node): cpus or "" for node, cpus in sorted(by_node.items())}


def read_governor() -> str | None:
    """Return the frequency governor of the first CPU; None if the kernel has none."""
    return read_text(SYS / "devices/system/cpu/cpu0/cpufreq/scaling_governor")


def read_cgroup_limits() -> dict[str, Any]:
    """Return the limits of CPUs and memory in bytes by control groups, or None.

    Each is the lowest limit of the process's group and the groups above it.
    """
    group_by_controller = dict(_read_groups())
    return {
        "cpus": _find_minimum(_read_cpu_limits(group_by_controller)),
        "memory_bytes": _find_minimum(_read_memory_limits(group_by_controller)),
    }


def _read_groups() -> list[tuple[str, str]]:
    """Return the process's group by controller; ``""`` is that of version 2."""
    fields_by_line = [line.split(":", 2) for line in read_lines(PROC / "self/cgroup")]
    return [
        (name, path)
        for _, names, path in (row for row in fields_by_line if len(row) == 3)
        for name in names.split(",")
    ]


def _list_folders(controller: str, group: str | None) -> list[Path]:
    """Return the group's folder and those above it.

    In a container it may be only the root.
    """
    root = SYS / "fs/cgroup" / controller
    group_folder = root / (group or "").strip("/")
    return [
        group_folder,
        *(parent for parent in group_folder.parents if parent == root or root in parent.parents),
        root,
    ]


def _read_cpu_limits(group_by_controller: dict[str, str]) -> list[float]:
    limits = []
    for folder in _list_folders("", group_by_controller.get("")):
        quota, _, period = (read_text(folder / "cpu.max") or "max").partition(" ")
        if quota.isdigit() and period.isdigit():
            limits.append(int(quota) / int(period))
    for folder in _list_folders("cpu", group_by_controller.get("cpu")):
        quota = read_text(folder / "cpu.cfs_quota_us") or ""
        period = read_text(folder / "cpu.cfs_period_us") or ""
        if quota.isdigit() and period.isdigit():
            limits.append(int(quota) / int(period))
    return limits


def _read_memory_limits(group_by_controller: dict[str, str]) -> list[int]:
    files = [folder / "memory.max" for folder in _list_folders("", group_by_controller.get(""))]
    folders_of_version_1 = _list_folders("memory", group_by_controller.get("memory"))
    files += [folder / "memory.limit_in_bytes" for folder in folders_of_version_1]
    texts = [read_text(path) or "" for path in files]
    return [int(text) for text in texts if text.isdigit() and int(text) < _UNLIMITED]


def _find_minimum(values: list[Any]) -> Any:
    return min(values, default=None)


def read_lines(path: Path) -> list[str]:
    """Return the lines of a file of the kernel; empty if it cannot be read."""
    return (read_text(path) or "").splitlines()


def read_text(path: Path) -> str | None:
    """Return the text of a file of the kernel; None if it is empty or cannot be read."""
    try:
        return path.read_text(errors="replace").strip() or None
    except OSError:
        return None
