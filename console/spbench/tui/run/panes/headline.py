"""The lines at the top: run, status, progress, replay, and a hidden finding."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from textual.content import Content
from textual.widgets import Static

from spbench.engine.remaining_time import format_remaining
from spbench.record.case_state import CaseState
from spbench.record.messages.phases import describe_phase, describe_start
from spbench.record.number_formatting import format_whole_seconds
from spbench.record.planted_faults import FaultOutcome
from spbench.record.run_parts import CaseCounts, count_cases
from spbench.record.state import RunState
from spbench.tui.feed import Feed, LiveSource, ReplaySource
from spbench.tui.run.findings import MUTED, QUIET_KINDS, FindingKind, RunFinding, choose_colour
from spbench.tui.widgets.text import cell_width, fit, wrap_words
from spbench_core.events import fields as event_fields
from spbench_core.events.statuses import CaseStatus
from spbench_core.number_text import format_quantity

BAR_WIDTH = 16
LONGER_THAN_ESTIMATED = "longer than estimated"
MIN_GROWTH_SECONDS = 2.0
MIN_GROWTH_SHARE = 0.2
"""The remaining time is shown as longer only if it grew by more than both, else it would jitter."""
MAX_FINDING_LINES = 3
"""Most lines of the finding below the two lines about the run."""


def list_for_headline(findings: Iterable[RunFinding]) -> list[RunFinding]:
    """Return the findings in the order for a line that shows only the first one.

    These are the next step of a plan's run, and the problems. If the worst one is a slow rank,
    noise comes before it, since it may be the cause.
    """
    problems = [finding for finding in findings if finding.kind not in QUIET_KINDS]
    if not problems or problems[0].kind is not FindingKind.SLOW:
        return problems
    return sorted(problems, key=lambda finding: finding.kind is not FindingKind.NOISY)


class HeadlinePart(NamedTuple):
    """A part of a line; if it does not fit, it is cut or left out.

    Attributes:
        bar: Styled pieces in front of the text.
    """

    text: str
    style: str = ""
    cut: bool = False
    bar: tuple[tuple[str, str], ...] = ()

    @property
    def width(self) -> int:
        """The number of cells of bar and text."""
        return sum(cell_width(text) for text, _ in self.bar) + cell_width(self.text)


class EventRate:
    """The number of events per second, averaged over one second or longer."""

    def __init__(self) -> None:
        self._since = 0.0
        self._events = 0
        self.value = 0.0

    def update(self, events: int) -> None:
        """Update the rate with the number of events so far."""
        now = time.monotonic()
        if not self._since:
            self._since = now
            self._events = events
        elif now - self._since >= 1:
            self.value = (events - self._events) / (now - self._since)
            self._since = now
            self._events = events


class RemainingTime:
    """The remaining time of a run, which grows only if the estimate has grown much."""

    def __init__(self) -> None:
        self._shown: float | None = None
        self._since = 0.0
        self._is_exceeded = False

    def describe(self, seconds: float | None, now: float) -> str:
        """Return the time to show in words, or that the run takes longer than estimated.

        Args:
            seconds: The new estimate; None if unknown.
            now: The time of the run, in seconds.
        """
        previous = self._shown
        elapsed = now - self._since
        # While it is exceeded, the estimate is a small share of the time since then.
        if self._is_exceeded and seconds is not None and previous is not None:
            is_overrun = previous <= seconds < max(elapsed, previous + MIN_GROWTH_SECONDS)
            if is_overrun:
                return LONGER_THAN_ESTIMATED
        shown = self.update(seconds)
        if shown != previous:
            self._since = now
        self._is_exceeded = shown is not None and now - self._since > shown + MIN_GROWTH_SECONDS
        return LONGER_THAN_ESTIMATED if self._is_exceeded else format_remaining(shown)

    def update(self, seconds: float | None) -> float | None:
        """Return the time to show for a new estimate, in seconds; None if unknown."""
        shown = self._shown
        if seconds is None or shown is None or seconds < shown or _has_grown_much(shown, seconds):
            self._shown = seconds
        return self._shown


def _has_grown_much(before: float, seconds: float) -> bool:
    return seconds - before > max(MIN_GROWTH_SECONDS, MIN_GROWTH_SHARE * before)


class HostCount:
    """The number of hosts, counted again only when ranks have started."""

    def __init__(self) -> None:
        self._counted: object = None
        self._count = 0

    def update(self, state: RunState) -> int:
        """Return the number of hosts."""
        counted = len(state.ranks), [(number, len(job.ranks)) for number, job in state.jobs.items()]
        if counted != self._counted:
            self._counted = counted
            self._count = len({rank.host for rank in state.ranks.values()})
        return self._count


class Headline(Static):
    """The lines about the run, which are updated even while the page is paused."""

    DEFAULT_CSS = (
        "Headline { dock: top; height: auto; min-height: 2; margin-top: 1; padding: 0 1;"
        " background: $boost; }"
    )

    def __init__(self) -> None:
        super().__init__("", id="headline", markup=False)
        self._feed: Feed | None = None
        self._rate = EventRate()
        self._host_count = HostCount()
        self._remaining = RemainingTime()
        self._shown: object = None

    def show_start(self, progress: str) -> None:
        """Show that another run is being started, instead of the previous run."""
        if progress == self._shown:
            return
        self._shown = progress
        self.update(Content.assemble(("… starting a run", "bold"), f"\n{progress}"), layout=False)
        self.styles.height = 2

    def show(
        self,
        feed: Feed,
        paused: bool,
        findings: Sequence[RunFinding],
        note: str = "",
    ) -> None:
        """Show a run.

        Args:
            feed: The run.
            paused: Whether table and charts are paused.
            findings: The findings that are not visible elsewhere; the first one is shown.
            note: Why the shown case was chosen.
        """
        if feed is not self._feed:
            self._feed = feed
            self._rate = EventRate()
            self._host_count = HostCount()
            self._remaining = RemainingTime()
        self._rate.update(feed.event_count)
        remaining = self._remaining.describe(feed.remaining, feed.now)
        lines = (
            _build_first(feed, self._rate.value, remaining),
            _build_second(feed, paused, note, self._host_count.update(feed.state)),
        )
        width = max(1, self.content_size.width)
        content = (lines, tuple(findings), width)
        if content != self._shown:
            self._shown = content
            contents = [_join_fitting(line, width) for line in lines]
            finding_lines = _wrap_findings(findings, width)
            self.update(Content("\n").join([*contents, *finding_lines]), layout=False)
            self.styles.height = len(contents) + len(finding_lines)


def _build_first(feed: Feed, rate: float, remaining: str) -> list[HeadlinePart]:
    run = feed.state.run
    cases = feed.state.cases.values()
    if run is None:
        reason = feed.failure or "waiting for the run's first events"
        return [HeadlinePart(reason, "$text-error" if feed.failure else MUTED, cut=True)]
    counts = count_cases(cases)
    has_ended = feed.ended or run.finished is not None
    colour = "$text-accent" if feed.state.fault_outcome else choose_colour(feed.status)
    return [
        HeadlinePart(run.suite, "bold", cut=True),
        HeadlinePart(feed.status_text + _format_host(feed), f"bold {colour}"),
        HeadlinePart(f" {counts.describe(has_ended)}", "$text-primary", bar=_build_bar(counts)),
        HeadlinePart(format_whole_seconds(max(0.0, (run.finished or feed.now) - run.started))),
        HeadlinePart(remaining),
        HeadlinePart("" if feed.ended else f"{rate:,.0f} events/s", MUTED),
        HeadlinePart(run.id, MUTED),
    ]


def _build_bar(counts: CaseCounts) -> tuple[tuple[str, str], ...]:
    """Return the shares of good, bad and open repeats, and of those with found faults."""
    ended_cells = BAR_WIDTH * counts.ended_repeats // max(1, counts.repeats)

    def count_cells(repeats: int) -> int:
        if not repeats or not ended_cells:
            return 0
        return max(1, round(ended_cells * repeats / counts.ended_repeats))  # visible if small

    bad_cells = count_cells(counts.bad_repeats)
    found_cells = min(count_cells(counts.found_repeats), ended_cells - bad_cells)
    return (
        ("█" * (ended_cells - bad_cells - found_cells), choose_colour(CaseStatus.PASSED)),
        ("▒" * bad_cells, choose_colour(CaseStatus.FAILED)),
        ("▒" * found_cells, choose_colour(FaultOutcome.FOUND)),
        ("░" * (BAR_WIDTH - ended_cells), MUTED),
    )


def _build_second(feed: Feed, paused: bool, note: str, host_count: int) -> list[HeadlinePart]:
    phase = "" if feed.ended else _describe_phase(feed)
    return [
        HeadlinePart("HELD" if paused else "", "bold reverse"),
        HeadlinePart(_describe_replay(feed), "$text-accent"),
        HeadlinePart(phase, "$text-primary"),
        HeadlinePart("" if feed.ended else _describe_passed_over(feed.state), MUTED),
        HeadlinePart(note),
        *_describe_job(feed.state, host_count),
    ]


def _wrap_findings(findings: Sequence[RunFinding], width: int) -> list[Content]:
    """Return the lines of the first finding, with the number of others."""
    if not findings:
        return []
    first = findings[0]
    lines = wrap_words(first.line, width, MAX_FINDING_LINES)
    if len(findings) > 1:
        more = f"  +{len(findings) - 1} more"
        lines[-1] = fit(lines[-1], max(1, width - len(more))).rstrip() + more
    return [Content.assemble((line, choose_colour(first.kind))) for line in lines]


def _describe_phase(feed: Feed) -> str:
    """Describe the phase of the ranks, or else the start of the run."""
    phase = describe_phase(feed.state, feed.now)
    if phase:
        return phase
    # A run that starts sends few events, so that `feed.now` would show too short a time.
    is_live = isinstance(feed.source, LiveSource) and feed.remote_host is None
    return describe_start(feed.state, event_fields.now() if is_live else feed.now)


def _describe_passed_over(state: RunState) -> str:
    """Describe cases that wait while later ones run, such as those of programs."""
    cases = list(state.cases.values())
    last = max((index for index, case in enumerate(cases) if _has_begun(case)), default=0)
    waiting = [case.id for case in cases[:last] if not _has_begun(case)]
    if not waiting:
        return ""
    if len(waiting) == 1:
        return f"case {waiting[0]}: later, in a separate launch"
    return f"{len(waiting)} cases: later, in separate launches"


def _has_begun(case: CaseState) -> bool:
    return case.status != CaseStatus.WAITING or case.num_ended_repeats > 0


def _describe_job(state: RunState, host_count: int) -> Iterator[HeadlinePart]:
    if not state.jobs:
        return
    job = state.jobs[max(state.jobs)]
    hosts = f" on {format_quantity(host_count, 'host')}" if host_count else ""
    yield HeadlinePart(f"job {job.number}: {format_quantity(job.np, 'rank')}{hosts}")
    yield HeadlinePart(f"{job.launcher}, {job.version}", MUTED)


def _format_host(feed: Feed) -> str:
    return f" on {feed.remote_host}" if feed.remote_host and not feed.ended else ""


def _join_fitting(parts: Iterable[HeadlinePart], width: int) -> Content:
    """Return the parts that fit in a line; earlier parts take precedence."""
    spans: list[tuple[str, str]] = []
    available_width = width
    for part in parts:
        gap = "  " if spans else ""
        width = len(gap) + part.width
        if not part.text or (width > available_width and not part.cut):
            continue
        text = part.text
        if width > available_width:
            text = fit(text, available_width - len(gap))
            width = available_width
        spans += [(gap, ""), *part.bar, (text, part.style)]
        available_width -= width
    return Content.assemble(*spans)


def _describe_replay(feed: Feed) -> str:
    """Return speed and position of a replay: ``▶ 2x at 12 s``; empty for a live run."""
    source = feed.source
    if not isinstance(source, ReplaySource):
        return ""
    if feed.ended:
        return f"■ played, {source.played_count:,} events"
    speed = "max" if source.speed is None else f"{source.speed:g}x"
    run = feed.state.run
    position = f" at {max(0.0, feed.now - run.started):.1f} s" if run is not None else ""
    return f"{'▶' if source.playing else '⏸'} {speed}{position}, {source.played_count:,} events"
