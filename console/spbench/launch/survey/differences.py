"""Differences between hosts that should be equal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from spbench.launch.finding import Finding, FindingStatus
from spbench.launch.hosts.names import fold
from spbench.launch.survey.facts import HostFacts

_MEMORY_SLACK = 0.05


@dataclass(frozen=True, slots=True)
class _Comparison:
    """A compared fact, and the texts of its value: ``full`` at first, then ``short``."""

    subject: str
    value: Callable[[HostFacts], Any]
    full: str
    short: str = "{}"


def _describe_torch_build(facts: HostFacts) -> str | None:
    if facts.torch_cuda is None or facts.torch is None:
        return None
    return f"built for CUDA {facts.torch_cuda}" if facts.torch_cuda else "without CUDA"


_COMPARISONS = (
    _Comparison("cores", lambda facts: facts.cores, "{} cores"),
    _Comparison("memory", lambda facts: facts.memory_gib, "{:.0f} GiB of memory", "{:.0f}"),
    _Comparison("devices", lambda facts: facts.gpus.models or "no GPU", "{}"),
    _Comparison("driver", lambda facts: facts.gpus.driver, "NVIDIA's driver {}", "{}"),
    _Comparison("adapters", lambda facts: facts.links or "no adapter", "{}"),
    _Comparison("MPI library", lambda facts: facts.mpi, "{}"),
    _Comparison("torch", lambda facts: facts.torch, "torch {}"),
    _Comparison("torch's build", _describe_torch_build, "a torch {}", "one {}"),
    _Comparison("Python", lambda facts: facts.python, "Python {}", "{}"),
    _Comparison("governor", lambda facts: facts.governor, "the governor {}", "{}"),
    _Comparison("/dev/shm", lambda facts: facts.gpus.shared_gib, "{:g} GiB of /dev/shm", "{:g}"),
    _Comparison("limits", lambda facts: facts.memlock, "{} of memory to lock", "{}"),
    _Comparison("limits", lambda facts: facts.nofile, "{} open files at most", "{}"),
    _Comparison("folder", lambda facts: facts.filesystem, "the folder on {}", "on {}"),
)


def find_differences(hosts: Iterable[HostFacts]) -> list[Finding]:
    """Return a note for each group of hosts that differs from most hosts.

    Compared are cores, memory and /dev/shm (by more than 5 %), devices, driver, adapters, MPI
    library, torch and its CUDA, Python, governor, limits and the working folder's file system.
    Facts that a host lacks or has not reported are ignored. If no value is that of most hosts, one
    note lists all values.
    """
    answered = [facts for facts in hosts if facts.cores is not None]
    return [
        finding for comparison in _COMPARISONS for finding in _compare_hosts(comparison, answered)
    ]


def _compare_hosts(comparison: _Comparison, hosts: Sequence[HostFacts]) -> Iterator[Finding]:
    hosts_by_value = _group_by_value(comparison, hosts)
    if len(hosts_by_value) < 2:
        return
    subject = comparison.subject
    (common_value, common_hosts), *other_groups = hosts_by_value
    if 2 * len(common_hosts) <= sum(len(names) for _, names in hosts_by_value):
        texts = "; ".join(
            f"{fold(names)} {comparison.full.format(value)}" for value, names in hosts_by_value
        )
        yield Finding(FindingStatus.NOTE, subject, f"hosts differ: {texts}")
        return
    common_text = comparison.short.format(common_value)
    reference = f"{'the others' if len(other_groups) == 1 else 'most'} {common_text}"
    for value, names in other_groups:
        verb = "has" if len(names) == 1 else "have"
        text = f"{fold(names)} {verb} {comparison.full.format(value)}, {reference}"
        yield Finding(FindingStatus.NOTE, subject, text)


def _group_by_value(
    comparison: _Comparison, hosts: Sequence[HostFacts]
) -> list[tuple[Any, list[str]]]:
    """Return each value and its hosts, the most frequent value first."""
    hosts_by_value: list[tuple[Any, list[str]]] = []
    for facts in hosts:
        value = comparison.value(facts)
        if value is None:
            continue
        for other, names in hosts_by_value:
            if _is_equal(other, value):
                names.append(facts.host)
                break
        else:
            hosts_by_value.append((value, [facts.host]))
    return sorted(hosts_by_value, key=lambda group: -len(group[1]))


def _is_equal(value: Any, other: Any) -> bool:
    # the firmware of each host reserves a different, small amount of memory
    if isinstance(value, float):
        return bool(abs(value - other) <= _MEMORY_SLACK * max(value, other))
    return bool(value == other)
