"""The stragglers of the running case, and how long they have lagged."""

from __future__ import annotations

from spbench.record.comparison import NOTABLE_RANK
from spbench.record.messages.stragglers import Lag, describe_lags, find_lags
from spbench.record.rank_rows import RankRows
from spbench.record.state import RunState
from spbench.record.stragglers import MIN_BLOCKS, Straggler, merge_stragglers_by_host

MIN_SAMPLES = MIN_BLOCKS
MIN_SECONDS = 2.0
"""The fewest samples and seconds of lagging with which a rank is reported.

With fewer samples, the judgement of the case could not report it, and would contradict the report
while it ran.
"""


class LiveStragglers:
    """Ranks of the running case that lag, each with the start of its lag.

    A rank lags if it takes `NOTABLE_RANK` times the typical time. Times are those of a rank's
    samples, by its own clock, because clocks of hosts may differ. A rank without further samples no
    longer lags. Benchmarks of links are left out, because the time of a rank depends on its
    partner.
    """

    def __init__(self, rows: RankRows, state: RunState) -> None:
        self._rows = rows
        self._state = state
        self._since: dict[int, float] = {}
        self._launch: tuple[str, int | None] | None = None

    def update(self) -> None:
        """Find the ranks that lag now. Call it at least once per second."""
        case = self._rows.case
        launch = (case.id, case.execution.job) if case is not None else None
        since_before = self._since if launch == self._launch else {}
        self._launch = launch
        self._since = {}
        if case is None or case.identity.measures == "link":
            return
        ranks = self._state.ranks
        for rank, ratio in self._rows.skews().items():
            last_timed = ranks[rank].last_timed  # 0 until the rank times something in this launch
            if ratio >= NOTABLE_RANK and last_timed:
                self._since[rank] = since_before.get(rank, last_timed)

    def find(self, min_seconds: float = MIN_SECONDS) -> list[Straggler]:
        """Return ranks and hosts that have lagged for ``min_seconds``, the worst first.

        If all ranks of a host lag, and there are at least two, the host replaces them.
        """
        self.update()
        skews = self._rows.skews()
        cause = self._rows.separates
        lasting = [
            Straggler(rank, self._state.ranks[rank].host, skews[rank], seconds, since, cause)
            for rank, since in self._since.items()
            if (seconds := self._lag_seconds(rank)) >= min_seconds
        ]
        if not lasting:
            return []
        hosts = {rank: state.host for rank, state in self._state.ranks.items()}
        return merge_stragglers_by_host(lasting, hosts)

    def find_lags(self, min_seconds: float = MIN_SECONDS) -> list[Lag]:
        """Return the stragglers with their case and the ranks that wait for them."""
        stragglers = self.find(min_seconds)
        case = self._rows.case
        return find_lags(case, stragglers, self._rows.times()) if case is not None else []

    def messages(self, min_seconds: float = MIN_SECONDS) -> list[str]:
        """Return a message for each straggler, the worst first, like the case's finding."""
        return describe_lags(self.find_lags(min_seconds))

    def _lag_seconds(self, rank: int) -> float:
        if self._rows.iterations(rank) < MIN_SAMPLES:
            return -1.0
        return self._state.ranks[rank].last_timed - self._since[rank]
