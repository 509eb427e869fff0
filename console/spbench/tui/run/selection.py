"""The selected case, rank and metric of a run, and their samples."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from time import monotonic

from spbench.record.case_state import CaseState
from spbench.record.findings import names_slow_part
from spbench.record.messages.phases import describe_finished_launches, describe_phase
from spbench.record.outliers.host_slowness import compute_host_slowness, find_host_slowness
from spbench.record.shares import list_ranks_with_shares
from spbench.tui.feed import Feed, ReplaySource
from spbench.tui.panes import READING
from spbench.tui.run.case_computation import CaseComputation
from spbench.tui.run.case_ranks import LiveRanks, RecordedRanks
from spbench.tui.run.case_rows import RunCaseRows
from spbench.tui.run.findings import RunFindings
from spbench.tui.run.panels import Panel
from spbench.tui.run.panes.charts import (
    ChartPane,
    MetricSamples,
    SamplesCache,
    compute_case_bars,
    count_bars,
    list_metrics,
)
from spbench.tui.run.panes.hosts_panel import split_numbers
from spbench.tui.run.panes.overview import PreviousRows
from spbench.tui.run.problems import (
    LocatedProblem,
    find_largest_ratio,
    find_severity,
    has_problem,
    list_link_problems,
    list_problem_ranks,
)
from spbench.tui.run.rank_source import RankSource
from spbench_core.events.statuses import CaseStatus

LIVE_SLOWNESS_INTERVAL = 1.0
"""Time between two comparisons of the hosts in the running case, in seconds."""


class RunSelection:
    """A run, and the selected case, rank and metric.

    Args:
        feed: The run.
        planned_suite: The suite of a plan that the Plan page has run last; None: none.

    Attributes:
        rank: The rank of charts and logs; None for all ranks.
        follows_running: Whether the running case is shown.
    """

    def __init__(self, feed: Feed, planned_suite: Path | None = None) -> None:
        self.feed = feed
        self.cases = RunCaseRows(feed)
        self.findings = RunFindings(feed, planned_suite)
        self.hosts = CaseComputation(compute_host_slowness, is_live=False)
        self.bars = CaseComputation(compute_case_bars, is_live=True)
        self.previous: PreviousRows | None = None
        self._hosts: tuple[int, list[str]] = (0, [])
        self._live_slowness: tuple[float, CaseState | None, Mapping[str, float]]
        self._live_slowness = (-math.inf, None, {})
        self._slowness_between_launches: dict[str, Mapping[str, float]] = {}
        self.rank: int | None = None
        self.follows_running = True
        self._case_id: str | None = None
        self._metric = "time_ms"
        self._live = LiveRanks(feed)
        self._recorded: tuple[Hashable, RecordedRanks] | None = None
        self._samples_cache = SamplesCache()

    @property
    def replay(self) -> ReplaySource | None:
        """The source of the events if the run is replayed."""
        source = self.feed.source
        return source if isinstance(source, ReplaySource) else None

    @property
    def is_playing(self) -> bool:
        """Whether the run is replayed and not paused."""
        return self.replay is not None and self.replay.playing

    @property
    def running_case(self) -> CaseState | None:
        """The running case, or the one that was started last."""
        return self.feed.rows.newest_case

    @property
    def case(self) -> CaseState | None:
        """The case that is shown."""
        if self.follows_running or self._case_id is None:
            return self.running_case
        return self.feed.state.cases.get(self._case_id)

    def choose(self, case: str) -> None:
        """Show a case from now on, independent of the running one."""
        self._case_id = case
        self.follows_running = False

    @property
    def shows_live_ranks(self) -> bool:
        """Whether the shown ranks are those of the running launch, or of the last one."""
        case = self.case
        if case is None or case is self.feed.rows.case:
            return True
        is_next = case is self.running_case and not case.measured.ranks
        return is_next or self._was_not_begun(case)

    def _was_not_begun(self, case: CaseState) -> bool:
        """Whether the last launch was for a case, but ended before a rank began it."""
        has_begun = bool(case.measured.ranks) or self.feed.rows.case is not None
        return not has_begun and case.execution.job == max(self.feed.state.jobs, default=0)

    @property
    def ranks(self) -> RankSource:
        """The live or recorded ranks of the case that is shown."""
        case = self.case
        if self.shows_live_ranks or case is None:
            return self._live
        # Each launch of a case adds times to it.
        version = (case.status, len(case.measured.ended), len(case.measured.jobs))
        if self._recorded is not None:
            recorded_version, ranks = self._recorded
            # A retry replaces the state of the case.
            if ranks.case is case and recorded_version == version:
                return ranks
        ranks = RecordedRanks(case)
        self._recorded = version, ranks
        return ranks

    def describe_launches(self) -> str:
        """Return which launches the shown ranks come from, while more of them follow."""
        case = self.ranks.case
        if case is None or case is self.feed.rows.case or case.status != CaseStatus.RUNNING:
            return ""
        return describe_finished_launches(case)

    @property
    def has_ended(self) -> bool:
        """Whether the run has ended, or its log ends without that."""
        run = self.feed.state.run
        return self.feed.ended or (run is not None and run.finished is not None)

    def describe_missing_samples(self) -> str:
        """Return why the shown case has no samples: its phase while it runs."""
        case = self.case
        is_open = case is None or not case.status.is_final
        if self.has_ended or case is not self.running_case or not is_open:
            return "no samples"
        phase = describe_phase(self.feed.state, self.feed.now)
        return f"no samples so far: {phase}" if phase else "no samples so far"

    @property
    def has_charts(self) -> bool:
        """Whether any case has samples, or some may come."""
        cases = self.feed.state.cases.values()
        return not self.has_ended or any(case.measured.samples for case in cases)

    @property
    def max_ranks(self) -> int:
        """The number of ranks of the largest case."""
        cases = self.feed.state.cases.values()
        return max((case.identity.np for case in cases), default=0)

    @property
    def max_part_bars(self) -> int:
        """The largest number of bars that the parts of a case may have; 0 without parts."""
        cases = self.feed.state.cases.values()
        return max((count_bars(case) for case in cases), default=0)

    @property
    def metric(self) -> str | None:
        """The metric of the charts: the selected one, or the first that has samples."""
        metrics = list_metrics(self.case) if self.case else []
        return self._metric if self._metric in metrics else next(iter(metrics), None)

    def next_metric(self) -> str | None:
        """Select the next metric that has samples, and return it."""
        metrics = list_metrics(self.case) if self.case else []
        if metrics:
            index = metrics.index(self.metric or metrics[0])
            self._metric = metrics[(index + 1) % len(metrics)]
        return self.metric

    @property
    def chart_rank(self) -> int | None:
        """The rank of the charts: the chosen one, or the only one with samples; None: all."""
        case = self.case
        metric = self.metric
        if self.rank is not None or case is None or metric is None:
            return self.rank
        return self._samples_cache.get(case, metric, None).find_only_rank()

    def samples(self) -> MetricSamples | None:
        """Return the samples of the shown case, metric and rank; None without a case."""
        case = self.case
        metric = self.metric
        if case is None or metric is None:
            return None
        return self._samples_cache.get(case, metric, self.chart_rank)

    def update_chart(self, pane: ChartPane) -> None:
        """Show the samples in a chart; a hidden one is only emptied for another case."""
        samples = self.samples()
        metric = self.metric
        if not pane.is_on_screen:
            # When it becomes visible, the first frame must not show the other case.
            if pane.case is None or pane.case is not self.case:
                pane.clear(self.case, READING)
        elif samples is None or metric is None or (reason := samples.describe_missing()):
            if samples is None or metric is None:
                reason = self.describe_missing_samples()
            if self._keeps_chart(pane):
                pane.keep(reason)
            else:
                pane.clear(self.case, reason)
        else:
            pane.show(samples, metric, self.chart_rank)

    def _keeps_chart(self, pane: ChartPane) -> bool:
        """Return whether a chart of an earlier case stays for now."""
        if pane.case is None or self.has_ended or not self.follows_running:
            return False
        return self.feed.state.cases.get(pane.case.id) is pane.case

    def list_hosts(self) -> list[str]:
        """Return the hosts of the run, ``node10`` after ``node9``."""
        jobs = self.feed.state.jobs
        count = sum(len(job.ranks) for job in jobs.values())
        if count != self._hosts[0]:  # thousands of ranks take milliseconds
            facts = (rank for job in jobs.values() for rank in job.ranks.values())
            self._hosts = count, sorted({rank.host for rank in facts}, key=split_numbers)
        return self._hosts[1]

    def list_empty_panels(self) -> frozenset[Panel]:
        """Return the panels that would show nothing, such as GPUs on hosts without any."""
        state = self.feed.state
        has_parts = self.case is not None and bool(list_ranks_with_shares(self.case))
        has_map = len(self.list_hosts()) > 1
        contents = {
            Panel.HOSTS: bool(state.host_loads.hosts()),
            Panel.GPUS: bool(state.gpu_loads),
            Panel.LOGS: bool(self.feed.logs),
            Panel.HOST_MAP: has_map,
            Panel.PARTS: has_parts,
            Panel.MAP_AND_PARTS: has_map or has_parts,
            Panel.PREVIOUS: self.previous is not None,
        }
        return frozenset(panel for panel, has_content in contents.items() if not has_content)

    def compute_host_slowness(self) -> dict[str, Mapping[str, float]]:
        """Return the slowness by case and host, as far as it is computed."""
        slowness: dict[str, Mapping[str, float]] = {}
        for case in self.feed.state.cases.values():
            if case.status.is_final:
                slowness[case.id] = self.hosts.get(case) or {}
                continue
            live = self._compute_live_slowness(case) if case is self.feed.rows.case else {}
            if live:
                self._slowness_between_launches[case.id] = live
            slowness[case.id] = live or self._slowness_between_launches.get(case.id, {})
        return slowness

    def list_slow_hosts(self) -> dict[str, frozenset[str]]:
        """Return hosts by case that have a rank which is slow by the rules for findings."""
        hosts = {
            case.id: frozenset(straggler.host for straggler in case.execution.stragglers)
            for case in self.feed.state.cases.values()
            if case.execution.stragglers
        }
        live_case = self._live.case
        if live_case is not None and not live_case.status.is_final:
            ranks = live_case.measured.ranks
            slow_ranks = self._live.slow_ranks()
            hosts[live_case.id] = frozenset(ranks[rank].host for rank in slow_ranks)
        return hosts

    def _compute_live_slowness(self, case: CaseState) -> Mapping[str, float]:
        """Return the slowness of the hosts in the running case, computed once per second."""
        now = monotonic()
        computed_at, computed_case, slowness = self._live_slowness
        if computed_case is not case or now - computed_at >= LIVE_SLOWNESS_INTERVAL:
            slowness = find_host_slowness(case, self._live.skews())
            self._live_slowness = now, case, slowness
        return slowness

    def find_notable_case(self) -> str | None:
        """Return the case of the worst problem, or else the first one that was measured.

        Errors come before failed checks, these before found faults, slow ranks and links. None: no
        case.
        """
        cases = self.feed.state.cases.values()
        bad_cases = [case for case in cases if case.status.is_bad]
        slow_cases = [case for case in cases if case.execution.stragglers]
        link_problems = list_link_problems(self.feed.state)
        if bad_cases:
            return min(bad_cases, key=find_severity).id
        if slow_cases:
            return max(slow_cases, key=find_largest_ratio).id
        if link_problems:
            return link_problems[0].case
        return next((case.id for case in cases if case.measured.samples), None)

    def has_problem(self) -> bool:
        """Return whether there is a problem to go to."""
        state = self.feed.state
        return any(map(has_problem, state.cases.values())) or any(
            map(names_slow_part, state.findings)
        )

    def _list_problem_ranks(self, case: CaseState) -> Sequence[int | None]:
        """Return the failed and slow ranks of a case, also those lost before it began."""
        ranks = list_problem_ranks(case)
        if ranks == [None] and self._was_not_begun(case):
            return sorted(self._live.failed_ranks()) or ranks
        return ranks

    def find_next_problem(self) -> LocatedProblem | None:
        """Return the next problem of any case, after the last one the first again."""
        positions = {case_id: index for index, case_id in enumerate(self.feed.state.cases)}
        problems = [
            LocatedProblem(case.id, rank)
            for case in self.feed.state.cases.values()
            for rank in self._list_problem_ranks(case)
        ]
        case_ids = {problem.case for problem in problems}
        link_problems = list_link_problems(self.feed.state)
        problems += [item for item in link_problems if item.case not in case_ids]

        def locate(case_id: str, rank: int | None) -> tuple[int, int]:
            return positions[case_id], -1 if rank is None else rank

        problems.sort(key=lambda item: locate(item.case, item.rank))
        current = (-1, -1) if self.case is None else locate(self.case.id, self.rank)
        later = (item for item in problems if locate(item.case, item.rank) > current)
        return next(later, problems[0] if problems else None)
