"""Ranks' CPUs in short, and ranks that share CPUs with others."""

from __future__ import annotations

from collections.abc import Iterable

from spbench.record.case_state import CaseRank
from spbench.record.run_parts import RankState
from spbench_core.quantities import format_quantity


def describe_crowding(ranks: Iterable[RankState]) -> str | None:
    """Return a sentence on ranks of a host that outnumber their CPUs; None where none do."""
    groups: dict[tuple[str, tuple[int, ...]], list[int]] = {}
    for rank in ranks:
        groups.setdefault((rank.host, rank.facts.cpus), []).append(rank.rank)
    for (host, cpus), members in groups.items():
        if len(members) > len(cpus):
            shown = ", ".join(map(str, members[:8]))
            cores = format_quantity(len(cpus), "core")
            return f"ranks {shown} on {host} share {cores} ({fold_numbers(cpus)})"
    return None


def format_location(part: CaseRank) -> list[str]:
    """Return host, local rank, CPUs, NUMA nodes, device and adapters of a rank as short texts."""
    local_rank = "" if part.facts.local_rank is None else str(part.facts.local_rank)
    cpus = fold_numbers(part.facts.cpus)
    nodes = fold_numbers(part.facts.nodes)
    return [part.host, local_rank, cpus, nodes, part.device or "", part.facts.fabric or ""]


def fold_numbers(numbers: tuple[int, ...]) -> str:
    """Return ``0-3,8`` for 0, 1, 2, 3 and 8."""
    runs: list[list[int]] = []
    for value in sorted(numbers):
        if runs and value == runs[-1][1] + 1:
            runs[-1][1] = value
        else:
            runs.append([value, value])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
