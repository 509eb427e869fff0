"""Differences between hosts that should be alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from spbench.launch.finding import Finding, FindingStatus
from spbench.launch.hosts.names import fold
from spbench.launch.survey.facts import HostFacts

_MEMORY_SLACK = 0.05


@dataclass(frozen=True, slots=True)
class _Compared:
    """A fact, its value of one host, and how a sentence says a value: first in full, then short."""

    subject: str
    value: Callable[[HostFacts], Any]
    full: str
    short: str = "{}"


def _build(facts: HostFacts) -> str | None:
    if facts.torch_cuda is None or facts.torch is None:
        return None
    return f"built for CUDA {facts.torch_cuda}" if facts.torch_cuda else "without CUDA"


_COMPARED = (
    _Compared("cores", lambda facts: facts.cores, "{} cores"),
    _Compared("memory", lambda facts: facts.memory_gib, "{:.0f} GiB of memory", "{:.0f}"),
    _Compared("devices", lambda facts: facts.gpus.models or "no GPU", "{}"),
    _Compared("driver", lambda facts: facts.gpus.driver, "NVIDIA's driver {}", "{}"),
    _Compared("adapters", lambda facts: facts.links or "no adapter", "{}"),
    _Compared("MPI library", lambda facts: facts.mpi, "{}"),
    _Compared("torch", lambda facts: facts.torch, "torch {}"),
    _Compared("torch's build", _build, "a torch {}", "one {}"),
    _Compared("Python", lambda facts: facts.python, "Python {}", "{}"),
    _Compared("governor", lambda facts: facts.governor, "the governor {}", "{}"),
    _Compared("/dev/shm", lambda facts: facts.gpus.shared_gib, "{:g} GiB of /dev/shm", "{:g}"),
    _Compared("limits", lambda facts: facts.memlock, "{} of memory to lock", "{}"),
    _Compared("limits", lambda facts: facts.nofile, "{} open files at most", "{}"),
    _Compared("folder", lambda facts: facts.filesystem, "the folder on {}", "on {}"),
)


def differences(hosts: Iterable[HostFacts]) -> list[Finding]:
    """Return a note for each group of hosts that differs from what most hosts have.

    Cores, memory and /dev/shm (by more than 5 %), devices, driver, adapters, MPI library, torch and
    its CUDA, Python, governor, limits and the working folder's file system are compared. What a
    host has not told, and what it lacks, is no difference. Where no value is that of most hosts,
    one note tells all of them.
    """
    answered = [facts for facts in hosts if facts.cores is not None]
    return [finding for item in _COMPARED for finding in _told(item, answered)]


def _told(item: _Compared, hosts: Sequence[HostFacts]) -> Iterator[Finding]:
    groups = _groups(item, hosts)
    if len(groups) < 2:
        return
    (usual, most), *others = groups
    if 2 * len(most) <= sum(len(names) for _, names in groups):
        each = "; ".join(f"{fold(names)} {item.full.format(value)}" for value, names in groups)
        yield Finding(FindingStatus.NOTE, item.subject, f"hosts differ: {each}")
        return
    rest = "the others" if len(others) == 1 else "most"
    for value, names in others:
        has = "has" if len(names) == 1 else "have"
        told = item.full.format(value)
        short = item.short.format(usual)
        yield Finding(
            FindingStatus.NOTE, item.subject, f"{fold(names)} {has} {told}, {rest} {short}"
        )


def _groups(item: _Compared, hosts: Sequence[HostFacts]) -> list[tuple[Any, list[str]]]:
    """Return each value and the hosts that have it, the most frequent first."""
    groups: list[tuple[Any, list[str]]] = []
    for facts in hosts:
        value = item.value(facts)
        if value is None:
            continue
        for known, names in groups:
            if _alike(known, value):
                names.append(facts.host)
                break
        else:
            groups.append((value, [facts.host]))
    return sorted(groups, key=lambda group: -len(group[1]))


def _alike(one: Any, other: Any) -> bool:
    # firmware reserves a little memory, never the same on each host
    if isinstance(one, float):
        return bool(abs(one - other) <= _MEMORY_SLACK * max(one, other))
    return bool(one == other)
