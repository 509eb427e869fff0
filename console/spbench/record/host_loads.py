"""The load of each host during a run, as one of its ranks says it with its heartbeat."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

HISTORY_LENGTH = 120
"""Readings of a host that are kept for drawing: two minutes of them."""
NAMES = ("cpu", "memory", "received", "sent", "gpu")


@dataclass(slots=True)
class LoadHistory:
    """One quantity of one host: its last readings, and over all of them mean and maximum."""

    last: deque[float] = field(default_factory=lambda: deque(maxlen=HISTORY_LENGTH))
    count: int = 0
    total: float = 0.0
    maximum: float = 0.0

    def add(self, value: float) -> None:
        """Take in a reading."""
        self.last.append(value)
        self.count += 1
        self.total += value
        self.maximum = max(self.maximum, value)

    @property
    def mean(self) -> float:
        """The mean of all readings."""
        return self.total / self.count if self.count else 0.0


class HostLoads:
    """The loads of all hosts of a run, by host and quantity; their size does not grow with time."""

    def __init__(self) -> None:
        self._hosts: dict[str, dict[str, LoadHistory]] = {}

    def add(self, host: str, load: Mapping[str, float]) -> None:
        """Take in a reading of a host."""
        of_host = self._hosts.setdefault(host, {})
        for name in NAMES:
            if name in load:
                of_host.setdefault(name, LoadHistory()).add(load[name])

    def hosts(self) -> list[str]:
        """Return the hosts, in the order in which they were heard of first."""
        return list(self._hosts)

    def get(self, host: str, name: str) -> LoadHistory | None:
        """Return a quantity of a host; None where nothing was said of it."""
        return self._hosts.get(host, {}).get(name)

    def items(self) -> Iterator[tuple[str, dict[str, LoadHistory]]]:
        """Yield each host with what is known of it."""
        yield from self._hosts.items()
