"""Stragglers: ranks and hosts that lag behind while a case runs, and for how long."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from spbench.record.findings import NOTABLE_RANK
from spbench.record.rank_rows import RankRows
from spbench.record.state import RunState
from spbench.record.statistics import typical

LEAST_SAMPLES, LEAST_SECONDS = 5, 2.0
"""A rank is not named before it has given so many times and has lagged so long."""
MINUTES_FROM = 120.0
"""Seconds from which on a time is told in minutes."""


@dataclass(frozen=True, slots=True)
class Straggler:
    """A rank, or a host with all its ranks (``rank`` is None), that lags behind.

    ``ratio`` is its median time over the typical rank's; it has been notable for ``seconds``.
    """

    rank: int | None
    host: str
    ratio: float
    seconds: float

    @property
    def sentence(self) -> str:
        """The straggler in a sentence: ``rank 7 on node03 is 1.8x the median for 40 s``."""
        who = f"host {self.host}" if self.rank is None else f"rank {self.rank} on {self.host}"
        long = self.seconds >= MINUTES_FROM
        time = f"{self.seconds / 60:.0f} min" if long else f"{self.seconds:.0f} s"
        return f"{who} is {self.ratio:.1f}x the median for {time}"


class Stragglers:
    """Knows since when each rank of the running case has been NOTABLE_RANK times the typical one.

    Times are those at which a rank's samples came, by its own clock: hosts' clocks may differ, and
    a rank whose samples have ended lags no longer. A benchmark of links is left out: how long a
    rank takes there depends on who its partner is.
    """

    def __init__(self, rows: RankRows, state: RunState) -> None:
        self._rows = rows
        self._state = state
        self._since: dict[int, float] = {}
        self._of: tuple[str, int | None] | None = None

    def update(self) -> None:
        """Find the ranks that lag now; call it about once a second, or more often."""
        case = self._rows.case
        of = (case.id, case.verdict.job) if case is not None else None
        before = self._since if of == self._of else {}
        self._of, self._since = of, {}
        middle = self._rows.typical()
        if not middle or case is None or case.identity.measures == "link":
            return
        ranks = self._state.ranks
        for rank, median in self._rows.medians().items():
            if median / middle >= NOTABLE_RANK:
                self._since[rank] = before.get(rank, ranks[rank].timed)

    def found(self, least: float = LEAST_SECONDS) -> list[Straggler]:
        """Return the ranks and hosts that have lagged for ``least`` seconds, the worst first.

        A host of which every rank does, of two or more, stands for its ranks.
        """
        self.update()
        lasting = {
            rank: seconds for rank in self._since if (seconds := self._lasted(rank)) >= least
        }
        if not lasting:
            return []
        slow, all_of = self._by_host(lasting), self._by_host(self._state.ranks)
        found = []
        for host, ranks in slow.items():
            if len(ranks) > 1 and len(ranks) == len(all_of[host]):
                ratio = typical(map(self._ratio, ranks))
                found.append(Straggler(None, host, ratio, min(lasting[rank] for rank in ranks)))
            else:
                found += [Straggler(rank, host, self._ratio(rank), lasting[rank]) for rank in ranks]
        return sorted(found, key=lambda straggler: -straggler.ratio)

    def sentences(self) -> list[str]:
        """Return a sentence for each that lags, the worst first."""
        return [straggler.sentence for straggler in self.found()]

    def _lasted(self, rank: int) -> float:
        if self._rows.iterations(rank) < LEAST_SAMPLES:
            return -1.0
        return self._state.ranks[rank].timed - self._since[rank]

    def _ratio(self, rank: int) -> float:
        return self._rows.medians()[rank] / (self._rows.typical() or 1.0)

    def _by_host(self, ranks: Iterable[int]) -> dict[str, list[int]]:
        by_host = defaultdict(list)
        for rank in ranks:
            by_host[self._state.ranks[rank].host].append(rank)
        return by_host
