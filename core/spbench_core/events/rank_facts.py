"""Facts about a rank that are constant in a launch: host, cores, versions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class RankFacts:
    """Facts about a rank in its ``ready`` event. A new fact is a field here.

    Attributes:
        host: The name of its host.
        pid: Its process id.
        local_rank: Its number among the ranks of its host.
        device: The device of its host, such as ``cpu``.
        cpus: The CPUs that it may run on.
        nodes: The NUMA nodes of these CPUs.
        cores: The physical cores of these CPUs.
        numa: The NUMA node of all these CPUs; None if there are several.
        host_cpus: All CPUs of its host.
        processor: The name of its host's processor.
        threads: Threads that it computes with.
        fabric: The network adapters of its host, or ``tcp``.
        versions: Versions of its software by name; None if a package is not installed.
    """

    host: str
    pid: int | None = None
    local_rank: int | None = None
    device: str | None = None
    cpus: tuple[int, ...] = ()
    nodes: tuple[int, ...] = ()
    cores: int | None = None
    numa: int | None = None
    host_cpus: int | None = None
    processor: str | None = None
    threads: int | None = None
    fabric: str | None = None
    versions: Mapping[str, str | None] = field(default_factory=dict)

    @classmethod
    def from_event(cls, event: Mapping[str, Any], host: str) -> Self:
        """Return the facts in a ``ready`` event; ``host`` is the default host."""
        facts = {name: event[name] for name in _NAMES & event.keys()}
        lists = {name: tuple(facts.get(name, ())) for name in ("cpus", "nodes")}
        return cls(**{"host": host} | facts | lists)

    def to_fields(self) -> dict[str, Any]:
        """Return the facts as fields of a ``ready`` event."""
        return asdict(self)


_NAMES = frozenset(item.name for item in fields(RankFacts))
