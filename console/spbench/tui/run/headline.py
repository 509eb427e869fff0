"""The two lines at the top: the run, its status and progress, and the speed of a replay."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from textual.content import Content
from textual.widgets import Static

from spbench.engine.remaining_time import format_remaining
from spbench.record.case_counts import count_cases
from spbench.record.messages.phases import describe_phase, describe_start
from spbench.record.state import RunState
from spbench.tui.cells import format_status
from spbench.tui.feed import Feed, LiveSource, ReplaySource
from spbench.tui.run.replaying import describe_replay
from spbench.tui.run.words import MUTED, RunFinding, status_colour
from spbench.tui.widgets.text import cell_width, fit
from spbench_core.events import clock
from spbench_core.quantities import format_quantity

BAR_WIDTH = 16


class HeadlinePart(NamedTuple):
    """A piece of a line; where there is no room for it, it is cut or else left out."""

    text: str
    style: str = ""
    cut: bool = False


class EventRate:
    """Events a second, over the last second or longer."""

    def __init__(self) -> None:
        self._since = 0.0
        self._events = 0
        self.value = 0.0

    def update(self, events: int) -> None:
        """Take in how many events have come by now."""
        now = time.monotonic()
        if not self._since:
            self._since = now
            self._events = events
        elif now - self._since >= 1:
            self.value = (events - self._events) / (now - self._since)
            self._since = now
            self._events = events


class Headline(Static):
    """The two lines about the run that go on even while the page is paused."""

    DEFAULT_CSS = (
        "Headline { dock: top; height: 2; margin-top: 1; padding: 0 1; background: $boost; }"
    )

    def __init__(self) -> None:
        super().__init__("", id="headline", markup=False)
        self._feed: Feed | None = None
        self._rate = EventRate()
        self._shown: object = None

    def show_start(self, words: str) -> None:
        """Show that another run is being started, in place of what is known of the one before."""
        if words == self._shown:
            return
        self._shown = words
        self.update(Content.assemble(("… starting a run", "bold"), f"\n{words}"), layout=False)

    def show(
        self, feed: Feed, paused: bool, worst: RunFinding | None, noisy: RunFinding | None
    ) -> None:
        """Show a run.

        Args:
            feed: The run.
            paused: Whether table and charts stand still.
            worst: The most pressing sentence, if the page has no room for the findings.
            noisy: A sentence on noise; it comes after the phase of the run.
        """
        if feed is not self._feed:
            self._feed = feed
            self._rate = EventRate()
        self._rate.update(feed.events)
        lines = (_first(feed, self._rate.value), _second(feed, paused, worst, noisy))
        width = max(1, self.content_size.width)
        if (lines, width) != self._shown:
            self._shown = lines, width
            text = Content("\n").join(_fitting(line, width) for line in lines)
            self.update(text, layout=False)


def _first(feed: Feed, rate: float) -> list[HeadlinePart]:
    run = feed.state.run
    cases = feed.state.cases.values()
    if run is None:
        why = feed.failure or "waiting for the run's first events"
        return [HeadlinePart(why, "$text-error" if feed.failure else MUTED, cut=True)]
    counts = count_cases(cases)
    filled = BAR_WIDTH * counts.ran // max(1, counts.total)
    bar = "█" * filled + "░" * (BAR_WIDTH - filled)
    ended = feed.ended or run.finished is not None
    return [
        HeadlinePart(run.suite, "bold", cut=True),
        HeadlinePart(
            format_status(feed.status) + _elsewhere(feed), f"bold {status_colour(feed.status)}"
        ),
        HeadlinePart(f"{bar} {counts.describe(ended)}", "$text-primary"),
        HeadlinePart(_format_elapsed(max(0.0, (run.finished or feed.now) - run.started))),
        HeadlinePart(format_remaining(feed.remaining)),
        HeadlinePart("" if feed.ended else f"{rate:,.0f} events/s", MUTED),
        HeadlinePart(run.id, MUTED),
    ]


def _second(
    feed: Feed, paused: bool, worst: RunFinding | None, noisy: RunFinding | None
) -> list[HeadlinePart]:
    replay = describe_replay(feed) if isinstance(feed.source, ReplaySource) else ""
    parts = [
        HeadlinePart("PAUSED" if paused else "", "bold reverse"),
        HeadlinePart(replay, "$text-accent"),
    ]
    if worst is not None:
        return [*parts, HeadlinePart(worst.line, status_colour(worst.kind), cut=True)]
    doing = "" if feed.ended else describe_phase(feed.state, feed.now) or _starting(feed)
    return [*parts, HeadlinePart(doing, "$text-primary"), *_launched(feed.state, noisy)]


def _starting(feed: Feed) -> str:
    """What the run waits for; of a run that goes on the clock goes on as well."""
    live = isinstance(feed.source, LiveSource) and feed.remote_host is None
    return describe_start(feed.state, clock.now() if live else feed.now)


def _launched(state: RunState, noisy: RunFinding | None) -> Iterator[HeadlinePart]:
    if not state.jobs:
        return
    job = state.jobs[max(state.jobs)]
    hosts = len({rank.host for rank in state.ranks.values()})
    where = f" on {format_quantity(hosts, 'host')}" if hosts else ""
    yield HeadlinePart(f"job {job.number}: {format_quantity(job.np, 'rank')}{where}")
    if noisy is not None:
        yield HeadlinePart(noisy.line, status_colour(noisy.kind), cut=True)
    yield HeadlinePart(f"{job.launcher}, {job.version}", MUTED)


def _elsewhere(feed: Feed) -> str:
    return f" on {feed.remote_host}" if feed.remote_host and not feed.ended else ""


def _fitting(parts: Iterable[HeadlinePart], width: int) -> Content:
    """As many of the parts as fit in a line, the first ones first."""
    chosen: list[tuple[str, str]] = []
    room = width
    for part in parts:
        gap = "  " if chosen else ""
        text = gap + part.text
        if not part.text or (cell_width(text) > room and not part.cut):
            continue
        text = fit(text, room) if cell_width(text) > room else text
        chosen.append((text, part.style))
        room -= cell_width(text)
    return Content.assemble(*chosen)


def _format_elapsed(seconds: float) -> str:
    """Return the time since the start, to a whole second: ``95 s`` or ``2 min 05 s``."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"
