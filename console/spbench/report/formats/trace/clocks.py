"""The clocks of a job's hosts against the console's, from what its events say.

Ranks stamp their events by their own host's clock. No message is sent for the sake of clocks: ranks
that meet at a collective tell of it before and after, and none leaves before the last has come. So
each such meeting bounds the difference of two clocks from both sides, as a ping-pong does, and the
narrowest bounds of all meetings count. Where ranks never met, the order in which the console wrote
its own events and theirs bounds the difference far more loosely.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from math import inf

from spbench.record.number_formatting import format_time


@dataclass(frozen=True, slots=True)
class ClockOffset:
    """How much a host's clock is ahead of the console's, in seconds.

    Attributes:
        seconds: The middle of what is possible.
        error: At most so much more or less; None where nothing bounds it.
        how: What it is known from.
    """

    seconds: float
    error: float | None
    method: str

    @property
    def description(self) -> str:
        """The offset in words."""
        error = "error not known" if self.error is None else f"± {format_time(1e3 * self.error)}"
        ahead = f"{format_time(1e3 * self.seconds)} ahead" if self.seconds else "as the console's"
        return f"clock {ahead}, {error} ({self.method})"


@dataclass(slots=True)
class _Bounds:
    """What an offset lies between."""

    low: float = -inf
    high: float = inf

    def at_least(self, value: float) -> None:
        self.low = max(self.low, value)

    def at_most(self, value: float) -> None:
        self.high = min(self.high, value)

    @property
    def known(self) -> bool:
        return -inf < self.low <= self.high < inf

    def offset(self, how: str, likely: float | None = None) -> ClockOffset:
        """Return the middle, or the likely value where that is possible."""
        middle = (self.low + self.high) / 2
        if likely is not None and self.low <= likely <= self.high:
            middle = likely
        return ClockOffset(middle, max(self.high - middle, middle - self.low), how)


Meeting = Hashable


@dataclass(slots=True)
class JobClocks:
    """What the events of one job tell of its hosts' clocks.

    Attributes:
        console: The console's host.
        started: When the job was launched, by the console's clock.
    """

    console: str | None
    started: float
    _meetings: dict[Meeting, dict[str, _Bounds]] = field(default_factory=lambda: defaultdict(dict))
    _newest: dict[str, float] = field(default_factory=dict)
    _loose: dict[str, _Bounds] = field(default_factory=lambda: defaultdict(_Bounds))

    def note_rank_event(self, host: str, time: float) -> None:
        """Take in that the console has an event that was stamped so."""
        self._loose[host].at_most(time - self.started)
        self._newest[host] = max(time, self._newest.get(host, -inf))

    def note_console_event(self, time: float) -> None:
        """Take in that the console says something: all that it has was stamped before."""
        for host, newest in self._newest.items():
            self._loose[host].at_least(newest - time)
        self._newest.clear()

    def note_meeting(self, meeting: Meeting, host: str, before: float, after: float) -> None:
        """Take in that a rank came to a meeting after ``before``, and left it before ``after``."""
        met = self._meetings[meeting].setdefault(host, _Bounds())
        met.at_least(before)
        met.at_most(after)

    def estimate_offsets(self, *, in_order: bool = True) -> Mapping[str, ClockOffset]:
        """Return the offset of each host that was heard.

        Args:
            in_order: Whether the events stand as the console got them; those of a batch job were
                sorted by their own times, which tells nothing of their clocks.
        """
        hosts = list(self._loose)
        if not hosts:
            return {}
        reference = self.console if self.console in self._loose else hosts[0]
        base = self._alone(reference, in_order=in_order)
        return {host: self._against(host, reference, base, in_order=in_order) for host in hosts}

    def _against(
        self, host: str, reference: str, base: ClockOffset, *, in_order: bool
    ) -> ClockOffset:
        if host == reference:
            return base
        bounds = self._between(host, reference)
        if not bounds.known:
            return self._alone(host, in_order=in_order)
        found = bounds.offset(f"to {reference}, by {len(self._meetings)} collectives")
        return ClockOffset(base.seconds + found.seconds, found.error, found.method)

    def _between(self, host: str, reference: str) -> _Bounds:
        bounds = _Bounds()
        for hosts in self._both(host, reference):
            bounds.at_least(hosts[host].low - hosts[reference].high)
            bounds.at_most(hosts[host].high - hosts[reference].low)
        return bounds

    def _both(self, host: str, other: str) -> Iterator[Mapping[str, _Bounds]]:
        return (met for met in self._meetings.values() if host in met and other in met)

    def _alone(self, host: str, *, in_order: bool) -> ClockOffset:
        if host == self.console:
            return ClockOffset(0.0, 0.0, "the same machine")
        bounds = self._loose[host]
        if not in_order or not bounds.known:
            return ClockOffset(0.0, None, "taken as equal")
        return bounds.offset("by the order of events", likely=0.0)
