"""The case, the rank and the metric of a run that the page shows, and their samples."""

from __future__ import annotations

from spbench.record.case_state import CaseState
from spbench.tui.feed import Feed
from spbench.tui.run.case_rows import RunCaseRows
from spbench.tui.run.charts import MetricSamples, SamplesCache, list_metrics
from spbench.tui.run.live_ranks import LiveRanks
from spbench.tui.run.rank_source import RankSource
from spbench.tui.run.recorded_ranks import RecordedRanks
from spbench.tui.run.words import RunFindings
from spbench_core.events.statuses import CaseStatus


class RunSelection:
    """A run, and the case, rank and metric that were chosen in it.

    Attributes:
        rank: The rank that charts and logs are of; None for all.
        following: Whether the case that runs is shown, whichever it is.
    """

    def __init__(self, feed: Feed) -> None:
        self.feed = feed
        self.cases = RunCaseRows(feed)
        self.findings = RunFindings(feed)
        self.rank: int | None = None
        self.follows_running = True
        self._chosen: str | None = None
        self._metric = "time_ms"
        self._live = LiveRanks(feed)
        self._recorded: tuple[tuple[str, str], RecordedRanks] | None = None
        self._samples = SamplesCache()

    @property
    def running(self) -> CaseState | None:
        """The case that runs, or the one that was started last."""
        return self.feed.rows.case

    @property
    def case(self) -> CaseState | None:
        """The case that is shown."""
        if self.follows_running or self._chosen is None:
            return self.running
        return self.feed.state.cases.get(self._chosen)

    def choose(self, case: str) -> None:
        """Show a case from now on, whichever runs."""
        self._chosen = case
        self.follows_running = False

    @property
    def ranks(self) -> RankSource:
        """The ranks of the case that is shown: those that run, or what it has left."""
        case = self.case
        if case is None or case is self.running:
            return self._live
        key = (case.id, case.status)
        if self._recorded is None or self._recorded[0] != key:
            self._recorded = key, RecordedRanks(case)
        return self._recorded[1]

    @property
    def metric(self) -> str | None:
        """The metric that the charts show: the chosen one, or the first that has samples."""
        known = list_metrics(self.case) if self.case else []
        return self._metric if self._metric in known else next(iter(known), None)

    def next_metric(self) -> str | None:
        """Go on to the next metric that has samples, and return it."""
        known = list_metrics(self.case) if self.case else []
        if known:
            at = known.index(self.metric or known[0])
            self._metric = known[(at + 1) % len(known)]
        return self.metric

    def samples(self) -> MetricSamples | None:
        """Return the samples of the shown case, metric and rank; None where there is no case."""
        case = self.case
        metric = self.metric
        if case is None or metric is None:
            return None
        return self._samples.get(case, metric, self.rank)

    def first_failed_case(self) -> str | None:
        """Return the first case that failed; None if all others passed or did not run."""
        cases = self.feed.state.cases.values()
        return next((case.id for case in cases if case.status.is_bad), None)

    def next_case_with_failed_rank(self) -> str | None:
        """Return the case after the shown one, round and round, in which a rank has failed."""
        ids = list(self.feed.state.cases)
        shown = self.case
        at = ids.index(shown.id) + 1 if shown is not None else 0
        order = [*ids[at:], *ids[:at]]
        return next((id for id in order if _has_failed(self.feed.state.cases[id])), None)

    def why_no_failed_rank(self) -> str:
        """Return why there is no failed rank to go to, in one sentence."""
        case = self.case
        if case is None or case.status == CaseStatus.WAITING:
            return "the case has not begun: no rank can have failed yet"
        if case.status == CaseStatus.RUNNING:
            return f"no rank has failed so far in {case.id}"
        if case.status == CaseStatus.PASSED:
            return f"{case.id} passed on every rank"
        if case.status.was_not_run:
            return f"{case.id} was {case.status}: no rank failed in it"
        return f"{case.id} ended as {case.status}, by no fault of a single rank; enter tells why"

    def next_failed_rank(self) -> int | None:
        """Return the failed rank after the chosen one; after the last, the first again."""
        failed = sorted(self.ranks.failed_ranks())
        later = [rank for rank in failed if self.rank is None or rank > self.rank]
        return next(iter(later or failed), None)


def _has_failed(case: CaseState) -> bool:
    """Whether a rank has failed a check of a case, ended in error or was lost."""
    broken = any(rank.status.is_broken for rank in case.measured.ranks.values())
    return broken or not all(case.measured.checked.values())
