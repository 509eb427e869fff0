"""The Run page: the run that is watched, as it runs, as it ended, or played again."""

from __future__ import annotations

import asyncio
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.events import Resize
from textual.widgets import Input, Static

from spbench.tui.feed import Feed
from spbench.tui.page import Page
from spbench.tui.run import changing, keys, replaying
from spbench.tui.run.body import Body
from spbench.tui.run.details import case_details, rank_details
from spbench.tui.run.headline import Headline
from spbench.tui.run.offering import offered
from spbench.tui.run.pane import zoom
from spbench.tui.run.showing import Showing
from spbench.tui.run.watched import Watched
from spbench.tui.widgets.line_table import LineTable
from spbench.tui.widgets.rank_strip import RankStrip


class RunPage(Page):
    """Cases and ranks, charts, words and logs of the watched run.

    Attributes:
        opened: The run that is shown; None before there is one.
        startable: Whether it can be started again.
    """

    NAME = "run"
    HELP = keys.HELP
    CHANGES = frozenset({"cancel", "again"})
    BINDINGS: ClassVar[list[BindingType]] = keys.KEYS
    ALLOW_IN_MAXIMIZED_VIEW = "TabBar,Headline,Footer"
    DEFAULT_CSS = """
    RunPage #no-run { width: 100%; height: 1fr; content-align: center middle; }
    RunPage Headline, RunPage Body { display: none; }
    """

    def __init__(self) -> None:
        self._showing: Showing | None = None
        self.opened: Feed | None = None
        self.startable = False
        self._keys_for: object = None
        super().__init__()

    @property
    def showing(self) -> Showing:
        """What is shown of the run; there must be one."""
        assert self._showing is not None
        return self._showing

    @property
    def _watched(self) -> Watched:
        return self.showing.watched

    def compose_body(self) -> ComposeResult:
        """Return what stands here while no run is watched, and the panes of one, not shown yet."""
        yield Static(keys.NO_RUN, id="no-run", markup=False)
        yield Headline()
        yield Body()

    # Bringing up to date

    def refresh_page(self) -> None:
        """Take in what the feed has by now."""
        feed = self.console_app.feed
        if feed is None:
            starting = self.console_app.starting
            self.query_one("#no-run", Static).update(keys.STARTING if starting else keys.NO_RUN)
            return
        if self.opened is not feed:
            self._open(feed)
        self.showing.tick()
        self._show_headline()
        self._find_medians()
        keys_for = (self.console_app.run_goes_on(), feed, feed.elsewhere, self.startable)
        if keys_for != self._keys_for:
            self._keys_for = keys_for
            self.refresh_bindings()

    def _open(self, feed: Feed) -> None:
        """Show another run in place of what is there."""
        body = self.query_one(Body)
        self.query_one("#no-run").display = False
        self.query_one(Headline).display = body.display = True
        body.fit(self.size)
        body.close_filter()
        self.opened, self._showing = feed, Showing(body, Watched(feed))
        self._showing.ranks.focus()
        self.call_after_refresh(self._showing.all)
        self.startable = False
        self.run_worker(self._find_suite(feed), group="suite", exclusive=True)

    async def _find_suite(self, feed: Feed) -> None:
        """Offer to start the run again where its suite is there."""
        here = self.console_app.opening.folder
        self.startable = await asyncio.to_thread(changing.startable, feed.folder, here)

    def _show_headline(self) -> None:
        body, words = self.query_one(Body), self.showing.words
        seen = body.has_class("-wide") or body.panel == "words"
        worst = words[0] if words and words[0].kind != "note" and not seen else None
        self.query_one(Headline).show(self._watched.feed, self.showing.paused, worst)

    def _find_medians(self) -> None:
        cases = self._watched.cases
        if cases.behind and not any(worker.group == "medians" for worker in self.workers):
            self.run_worker(cases.find_medians(), group="medians")

    def on_resize(self, event: Resize) -> None:
        """Lay the panes out for the new size."""
        if self._showing is not None:
            self.query_one(Body).fit(event.size)
            self.call_after_refresh(self._showing.all)

    def watch_maximized(self) -> None:
        """Give a pane that fills the page all its lines, and the others theirs again."""
        if self._showing is not None:
            self.call_after_refresh(self._showing.all)

    # What the reader chooses

    def on_line_table_highlighted(self, message: LineTable.Highlighted) -> None:
        """Show the case, or the rank in charts and logs, that the reader has chosen."""
        if self._showing is None or not self._showing.chosen_by_reader(message):
            return
        if message.table is self._showing.cases:
            self._watched.choose(str(message.key))
            self._show_case()
        elif isinstance(message.key, int):
            self._watched.rank = message.key
            self._showing.soon()

    def _show_case(self) -> None:
        """Show the chosen case with all its ranks; what stood still goes on."""
        self._watched.rank = None
        self.showing.pause(False)
        self.showing.soon()

    def on_line_table_chosen(self, message: LineTable.Chosen) -> None:
        """Tell all that is known of a case or a rank."""
        if message.table is self.showing.cases:
            self.app.push_screen(case_details(self._watched.feed, str(message.key)))
        elif isinstance(message.key, int):
            self.app.push_screen(rank_details(self._watched, message.key))

    def on_rank_strip_chosen(self, message: RankStrip.Chosen) -> None:
        """Show the rank everywhere."""
        self._choose_rank(message.rank)

    def _choose_rank(self, rank: int | None) -> None:
        self._watched.rank = rank
        if rank is not None:
            self.showing.put(self.showing.ranks, rank)
        self.showing.soon()

    def on_input_changed(self, message: Input.Changed) -> None:
        """Filter as the words are typed."""
        self.showing.filter(message.value)

    def on_input_submitted(self, message: Input.Submitted) -> None:
        """Go back to the ranks that match."""
        self.showing.ranks.focus()

    # Actions

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Leave out what there is no run for, and what is only for runs of another kind."""
        return offered(self, action) and super().check_action(action, parameters)

    def action_pause(self) -> None:
        """Hold what is shown of the ranks, or let it go on."""
        self.showing.pause(not self.showing.paused)

    def action_filter(self) -> None:
        """Ask for words that a rank's row must have."""
        self.query_one(Body).open_filter()

    def action_panel(self) -> None:
        """Show the next panel below the ranks."""
        self.query_one(Body).next_panel()
        self.call_after_refresh(self.showing.all)

    def action_logs(self) -> None:
        """Show the logs below the ranks, or what was there before."""
        self.query_one(Body).show_panel("logs")
        self.call_after_refresh(self.showing.all)

    def action_cancel(self) -> None:
        """Ask whether to cancel the run."""
        changing.cancel(self.console_app, self._watched.feed.folder)

    def action_again(self) -> None:
        """Ask whether to start the run again."""
        changing.again(self.console_app, self._watched.feed.folder)

    def action_follow(self) -> None:
        """Show the running case, and each that comes after it."""
        self._watched.following = True
        self._show_case()
        self.showing.all()

    def action_slowest(self) -> None:
        """Sort by slowness, or by number again."""
        self.showing.sort_by_slowness()

    def action_metric(self) -> None:
        """Show the next metric in the charts."""
        self._watched.next_metric()
        self.showing.soon()

    def action_next_failed(self) -> None:
        """Choose the next rank that failed."""
        rank = self._watched.next_failed()
        if rank is None:
            self.notify("no rank has failed in this case", timeout=3)
        else:
            self.showing.ranks.focus()
            self._choose_rank(rank)

    def action_copy(self) -> None:
        """Copy the words where they have the focus, else the row under the cursor."""
        text = self.showing.text_of(self.focused)
        if text:
            self.app.copy_to_clipboard(text)
            self.notify("copied", timeout=2)

    def action_zoom(self) -> None:
        """Let the pane that has the focus fill the page, or give the others room again."""
        zoom(self)

    def action_play(self) -> None:
        """Stop a replay, or let it go on."""
        replaying.toggle(self._watched.feed)

    def action_speed(self, faster: bool) -> None:
        """Play a replay faster or slower."""
        replaying.change_speed(self._watched.feed, faster)

    def action_back(self) -> None:
        """Leave the filter, and then the chosen rank."""
        if self.query_one(Body).close_filter():
            self.showing.ranks.focus()
        else:
            self._choose_rank(None)
