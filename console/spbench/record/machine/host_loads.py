"""The loads of a run's hosts over time, from the heartbeats of ranks."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

HISTORY_LENGTH = 120
"""The number of readings of a host that are kept for drawing, which is two minutes."""
QUANTITIES = ("cpu", "memory", "received", "sent", "gpu")


@dataclass(slots=True)
class LoadHistory:
    """One quantity of a host: its last readings, and mean and maximum of all readings."""

    last: deque[float] = field(default_factory=lambda: deque(maxlen=HISTORY_LENGTH))
    count: int = 0
    total: float = 0.0
    maximum: float = 0.0

    def add(self, value: float) -> None:
        """Add a reading."""
        self.last.append(value)
        self.count += 1
        self.total += value
        self.maximum = max(self.maximum, value)

    @property
    def mean(self) -> float:
        """The mean of all readings."""
        return self.total / self.count if self.count else 0.0


class HostLoads:
    """The loads of a run's hosts, by host and quantity.

    Their size does not grow with time.
    """

    def __init__(self) -> None:
        self._hosts: dict[str, dict[str, LoadHistory]] = {}

    def add(self, host: str, load: Mapping[str, float]) -> None:
        """Add a reading of a host, which one of its ranks sends with its heartbeat."""
        histories = self._hosts.setdefault(host, {})
        for name in QUANTITIES:
            if name in load:
                histories.setdefault(name, LoadHistory()).add(load[name])

    def hosts(self) -> list[str]:
        """Return the hosts in the order of their first reading."""
        return list(self._hosts)

    def get(self, host: str, name: str) -> LoadHistory | None:
        """Return a quantity of a host; None without readings."""
        return self._hosts.get(host, {}).get(name)

    def items(self) -> Iterator[tuple[str, dict[str, LoadHistory]]]:
        """Yield each host with its quantities."""
        yield from self._hosts.items()
