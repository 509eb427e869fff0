"""Find the stragglers of the running case: ranks and hosts that lag now, and for how long."""

from __future__ import annotations

from spbench.record.comparison import NOTABLE_RANK
from spbench.record.messages.stragglers import Lag, describe_lags, find_lags
from spbench.record.rank_rows import RankRows
from spbench.record.state import RunState
from spbench.record.stragglers import MIN_BLOCKS, Straggler, join_hosts

MIN_SAMPLES = MIN_BLOCKS
MIN_SECONDS = 2.0
"""The samples and the seconds of lagging from which on a rank is named. With fewer samples the case
could not name it once it is judged, and so would contradict what was shown while it ran."""


class LiveStragglers:
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
        self._of = of
        self._since = {}
        if case is None or case.identity.measures == "link":
            return
        ranks = self._state.ranks
        for rank, ratio in self._rows.skews().items():
            if ratio >= NOTABLE_RANK:
                self._since[rank] = before.get(rank, ranks[rank].has_timed)

    def find(self, least: float = MIN_SECONDS) -> list[Straggler]:
        """Return the ranks and hosts that have lagged for ``least`` seconds, the worst first.

        If all ranks of a host lag, and there are at least two, the host replaces them.
        """
        self.update()
        skews = self._rows.skews()
        cause = self._rows.separates
        lasting = [
            Straggler(rank, self._state.ranks[rank].host, skews[rank], seconds, since, cause)
            for rank, since in self._since.items()
            if (seconds := self._lasted(rank)) >= least
        ]
        return join_hosts(lasting, {rank: of.host for rank, of in self._state.ranks.items()})

    def find_lags(self, least: float = MIN_SECONDS) -> list[Lag]:
        """Return the same with the case and the ranks that wait for them."""
        stragglers = self.find(least)
        case = self._rows.case
        return find_lags(case, stragglers, self._rows.times()) if case is not None else []

    def messages(self, least: float = MIN_SECONDS) -> list[str]:
        """Return a sentence for each straggler, the worst first, as the case's finding will be."""
        return describe_lags(self.find_lags(least))

    def _lasted(self, rank: int) -> float:
        if self._rows.iterations(rank) < MIN_SAMPLES:
            return -1.0
        return self._state.ranks[rank].has_timed - self._since[rank]
