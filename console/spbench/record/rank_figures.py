"""A rank's times, place and rate in the case it runs, taken from the case's state as it comes."""

from __future__ import annotations

from spbench.record.case_state import CaseState
from spbench.record.ordered import Ordered
from spbench.record.places import short_place

_NO_TIMES = Ordered()


class RankFigures:
    """A rank's times over all repeats so far, its place and its rate.

    Attributes:
        case: The case; None before the rank's first.
        place: Where it stands in the layout, by name: ``{"tile": "0,1"}``.
        times: Its times in ms.
        p50: Their median; None where there are none.
    """

    __slots__ = ("_known", "_rate", "_taken", "case", "p50", "place", "rank", "times")

    def __init__(self, rank: int, case: CaseState | None) -> None:
        self.rank = rank
        self.case = case
        part = case.measured.ranks.get(rank) if case else None
        self.place = short_place(part.place) if part else {}
        self.times = Ordered() if case else _NO_TIMES
        self.p50: float | None = None
        self._known: dict[float, float] = {}
        self._taken: dict[int, int] = {}
        metrics = case.identity.metrics.values() if case else ()
        self._rate = next((info.name for info in metrics if info.unit == "GB/s"), None)

    def take_times(self) -> float | None:
        """Take in the times that have come since; return the new median, None where none came."""
        given = self.case.measured.samples.get("time_ms") if self.case else None
        if not given or self.rank not in given:
            return None
        before = len(self.times)
        for repeat, values in given[self.rank].items():
            taken = self._taken.get(repeat, 0)
            if len(values) > taken:
                self.times.add(values[taken:])
                self._taken[repeat] = len(values)
        if len(self.times) == before:
            return None
        self._known.clear()
        self.p50 = self.times.percentile(0.50)
        return self.p50

    def percentile(self, fraction: float) -> float | None:
        """Return a percentile of the times; None where there are none."""
        if fraction not in self._known and self.times:
            self._known[fraction] = self.times.percentile(fraction)
        return self._known.get(fraction)

    def gb_s(self, repeat: int) -> float | None:
        """Return the newest value, up to a repeat, of the case's first metric in GB/s."""
        if self.case is None or self._rate is None:
            return None
        repeats = self.case.measured.samples.get(self._rate, {}).get(self.rank)
        if repeats:
            newest = repeats[max(repeats)]
            return newest[-1] if newest else None
        values = self.case.measured.values.get(self._rate)
        while values and repeat >= 0:
            if (repeat, self.rank) in values:
                return values[repeat, self.rank]
            repeat -= 1
        return None

    def check(self) -> str:
        """Return ``passed``, ``failed`` or nothing yet: all its checks taken together."""
        passed = self.case.measured.checked.get(self.rank) if self.case else None
        return "" if passed is None else "passed" if passed else "failed"
