"""Offsets of the clocks of a job's hosts to the console's clock, from events.

Ranks stamp their events by the clock of their host. No messages are sent to compare clocks. Ranks
send events before and after a collective, and no rank leaves it before the last one has entered. So
each collective bounds the difference of two clocks from both sides, like a ping-pong. The narrowest
bounds of all collectives count. Without a common collective, the order in which the console wrote
its own and the ranks' events bounds the difference far more loosely.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from math import inf

from spbench.record.number_formatting import format_time


@dataclass(frozen=True, slots=True)
class ClockOffset:
    """The time by which a host's clock is ahead of the console's, in seconds.

    Attributes:
        seconds: The middle of the bounds.
        error: The largest deviation from it; None without bounds.
        method: The source of the bounds.
    """

    seconds: float
    error: float | None
    method: str

    @property
    def description(self) -> str:
        """The offset as text."""
        error_text = (
            "error not known" if self.error is None else f"± {format_time(1e3 * self.error)}"
        )
        ahead_text = (
            f"{format_time(1e3 * self.seconds)} ahead" if self.seconds else "as the console's"
        )
        return f"clock {ahead_text}, {error_text} ({self.method})"


@dataclass(slots=True)
class _Bounds:
    """The bounds of an offset, or of a host's time at a collective."""

    low: float = -inf
    high: float = inf

    def raise_low(self, bound_s: float) -> None:
        self.low = max(self.low, bound_s)

    def reduce_high(self, bound_s: float) -> None:
        self.high = min(self.high, bound_s)

    @property
    def is_finite(self) -> bool:
        return -inf < self.low <= self.high < inf

    def to_offset(self, method: str, likely_s: float | None = None) -> ClockOffset:
        """Return the middle of the bounds, or `likely_s` if it is within them."""
        offset_s = (self.low + self.high) / 2
        if likely_s is not None and self.low <= likely_s <= self.high:
            offset_s = likely_s
        return ClockOffset(offset_s, max(self.high - offset_s, offset_s - self.low), method)


Collective = Hashable
"""The identity of a collective operation, equal on all its ranks."""


@dataclass(slots=True)
class JobClocks:
    """Bounds on the clocks of a job's hosts, from its events.

    Attributes:
        console: The console's host.
        started: When the job was launched, by the console's clock.
    """

    console: str | None
    started: float
    # The last rank enters at one moment, so its times on two hosts bound their difference.
    _entry_by_collective_and_host: dict[Collective, dict[str, _Bounds]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    # Since the console's last event: earlier stamps have already raised a bound.
    _newest_stamp_by_host: dict[str, float] = field(default_factory=dict)
    # From the order of events: far looser, for hosts without a common collective.
    _order_bounds_by_host: dict[str, _Bounds] = field(default_factory=lambda: defaultdict(_Bounds))

    def note_rank_event(self, host: str, time: float) -> None:
        """Note an event of a rank, stamped by its host's clock."""
        self._order_bounds_by_host[host].reduce_high(time - self.started)
        self._newest_stamp_by_host[host] = max(time, self._newest_stamp_by_host.get(host, -inf))

    def note_console_event(self, time: float) -> None:
        """Note an event of the console; all earlier events of ranks happened before it."""
        for host, newest in self._newest_stamp_by_host.items():
            self._order_bounds_by_host[host].raise_low(newest - time)
        self._newest_stamp_by_host.clear()

    def note_collective(
        self, collective: Collective, host: str, before: float, after: float
    ) -> None:
        """Note that a rank entered a collective after `before`, and left before `after`."""
        bounds = self._entry_by_collective_and_host[collective].setdefault(host, _Bounds())
        bounds.raise_low(before)
        bounds.reduce_high(after)

    def estimate_offsets(self, *, in_order: bool = True) -> Mapping[str, ClockOffset]:
        """Return the offset of each host with events.

        Args:
            in_order: Whether the events are in the order of their arrival at the console. Those of
                a batch job are sorted by their stamps, so that their order has no information.
        """
        hosts = list(self._order_bounds_by_host)
        if not hosts:
            return {}
        reference = self.console if self.console in self._order_bounds_by_host else hosts[0]
        reference_offset = self._estimate_by_order(reference, in_order=in_order)
        return {
            host: self._estimate_offset(host, reference, reference_offset, in_order=in_order)
            for host in hosts
        }

    def _estimate_offset(
        self, host: str, reference: str, reference_offset: ClockOffset, *, in_order: bool
    ) -> ClockOffset:
        """Return the offset of a host, by collectives with the reference host if possible."""
        if host == reference:
            return reference_offset
        bounds = self._bound_difference(host, reference)
        if not bounds.is_finite:
            return self._estimate_by_order(host, in_order=in_order)
        to_reference = bounds.to_offset(
            f"to {reference}, by {len(self._entry_by_collective_and_host)} collectives"
        )
        seconds = reference_offset.seconds + to_reference.seconds
        return ClockOffset(seconds, to_reference.error, to_reference.method)

    def _bound_difference(self, host: str, reference: str) -> _Bounds:
        bounds = _Bounds()
        for bounds_by_host in self._common_collectives(host, reference):
            bounds.raise_low(bounds_by_host[host].low - bounds_by_host[reference].high)
            bounds.reduce_high(bounds_by_host[host].high - bounds_by_host[reference].low)
        return bounds

    def _common_collectives(self, host: str, other: str) -> Iterator[Mapping[str, _Bounds]]:
        return (
            bounds_by_host
            for bounds_by_host in self._entry_by_collective_and_host.values()
            if host in bounds_by_host and other in bounds_by_host
        )

    def _estimate_by_order(self, host: str, *, in_order: bool) -> ClockOffset:
        if host == self.console:
            return ClockOffset(0.0, 0.0, "the same machine")
        bounds = self._order_bounds_by_host[host]
        if not in_order or not bounds.is_finite:
            return ClockOffset(0.0, None, "taken as equal")
        return bounds.to_offset("by the order of events", likely_s=0.0)
