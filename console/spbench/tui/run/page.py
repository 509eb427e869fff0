"""The Run page: the watched run, live, ended or replayed."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.events import Resize
from textual.widget import Widget
from textual.widgets import Input

from spbench.tui.context import ConsoleContext
from spbench.tui.feed import Feed
from spbench.tui.page import Page
from spbench.tui.panes import Pane, mark_zoomed
from spbench.tui.run.bindings import FOOTER, RUN_BINDINGS, RUN_HELP
from spbench.tui.run.body import RunBody
from spbench.tui.run.control import RunControl
from spbench.tui.run.details import DetailsScreen, build_case_details
from spbench.tui.run.loading import RunLoader
from spbench.tui.run.offers import has_effect, has_use, is_possible
from spbench.tui.run.panels import Panel
from spbench.tui.run.panes.headline import Headline, list_for_headline
from spbench.tui.run.panes.start_note import NoRunText, StartNote, describe_preparation
from spbench.tui.run.presenter import RunPresenter
from spbench.tui.run.rank_details import build_rank_details
from spbench.tui.run.selection import RunSelection
from spbench.tui.widgets.line_table import LineTable
from spbench.tui.widgets.rank_strip import RankStrip


class RunPage(Page):
    """Cases, ranks, charts, findings and logs of the watched run.

    Attributes:
        shown_feed: The run that is shown; None before the first one.
    """

    NAME = "run"
    AUTO_FOCUS = ""  # the panes are hidden until there is a run; then the cases get the focus
    HELP = RUN_HELP
    MODIFYING_ACTIONS = frozenset({"cancel", "again", "failed", "rest"})
    FOOTER = FOOTER
    has_use = staticmethod(has_use)
    BINDINGS: ClassVar[list[BindingType]] = RUN_BINDINGS
    ALLOW_IN_MAXIMIZED_VIEW = "TabBar,Headline,KeyBar"
    DEFAULT_CSS = """
    RunPage Headline, RunPage RunBody { display: none; }
    """

    def __init__(self, context: ConsoleContext) -> None:
        self._presenter: RunPresenter | None = None
        self.shown_feed: Feed | None = None
        self._loader: RunLoader | None = None
        self._control = RunControl(self)
        self._bindings_state: object = None
        self._has_chosen_focus = False
        super().__init__(context)

    @property
    def presenter(self) -> RunPresenter:
        """The presenter of the shown run; there must be one."""
        assert self._presenter is not None
        return self._presenter

    @property
    def _selection(self) -> RunSelection:
        return self.presenter.selection

    def compose_body(self) -> ComposeResult:
        """Yield the text shown without a run, and the hidden panes of a run."""
        yield StartNote()
        yield NoRunText()
        yield Headline()
        yield RunBody()

    @property
    def is_followed(self) -> bool:
        """Whether the page is shown, or the details of a case or a rank in front of it."""
        return self.is_current or (self.is_active and isinstance(self.app.screen, DetailsScreen))

    def refresh_page(self) -> None:
        """Show the current state of the watched run, and open details of it."""
        if isinstance(self.app.screen, DetailsScreen):
            self.app.screen.refresh_details()
        self.query_one(StartNote).show(self.context.start_failure)
        feed = self.context.feed
        starting = self.context.starting_since
        if feed is None:
            self._close()
            self.query_one(NoRunText).show(self.context)
            self._update_bindings()
            return
        if self.shown_feed is not feed:
            self._open(feed)
        self.presenter.tick()
        self._choose_focus(len(feed.state.cases))
        if self._loader is not None:
            self._loader.update()
        if starting is not None:  # the panes still show the previous run
            self.query_one(Headline).show_start(describe_preparation(starting))
        else:
            self._show_headline()
        if self.presenter.show_outcome():
            self.call_after_refresh(self.presenter.update_all)
        self._update_bindings()

    def _update_bindings(self) -> None:
        """Show other keys if other actions have become possible."""
        feed = self.context.feed
        bindings_state = (
            self.context.starting_since is not None,
            self.context.can_watch,
            bool(self.context.start_queue.waiting),
            self.context.is_run_active(),
            feed,
            None if feed is None else (feed.ended, feed.remote_host, self._selection.is_playing),
            self.can_rerun,
            self._offers("back"),
            self._presenter is not None and self._presenter.is_slowest_first,
            self.offers("next_problem"),
        )
        if bindings_state != self._bindings_state:
            self._bindings_state = bindings_state
            self.refresh_bindings()

    def _open(self, feed: Feed) -> None:
        """Show another run."""
        body = self.query_one(RunBody)
        self.query_one(NoRunText).display = False
        self.query_one(Headline).display = body.display = True
        body.fit(self.size)
        body.close_filter()
        self.shown_feed = feed
        self._presenter = RunPresenter(body, RunSelection(feed, self.context.planned_suite))
        self._presenter.cases.focus()
        self._has_chosen_focus = False
        self.call_after_refresh(self._presenter.update_all)
        self._replace_loader(RunLoader(self, self._presenter))

    def _choose_focus(self, num_cases: int) -> None:
        """Focus the ranks of a run with a single case, once, unless the user has moved on."""
        if num_cases and not self._has_chosen_focus:
            self._has_chosen_focus = True
            if num_cases == 1 and self.focused in (None, self.presenter.cases):
                self.presenter.ranks.focus()

    def _close(self) -> None:
        """Hide the run that was watched before."""
        if self.shown_feed is None:
            return
        self.query_one(NoRunText).display = True
        self.query_one(Headline).display = self.query_one(RunBody).display = False
        self.shown_feed = None
        self._presenter = None
        self._replace_loader(None)
        self.set_focus(None)  # keys of a hidden table have no effect

    def _replace_loader(self, loader: RunLoader | None) -> None:
        if self._loader is not None:
            self._loader.close()
        self._loader = loader

    @property
    def can_rerun(self) -> bool:
        """Whether the shown run can be started again."""
        return self._loader is not None and self._loader.can_rerun

    def _show_headline(self) -> None:
        # Findings are in the headline only while they are not visible elsewhere.
        hidden = [] if self.query_one(RunBody).shows_findings else self.presenter.findings
        findings = list_for_headline(hidden)
        presenter = self.presenter
        note = presenter.describe_first_case()
        self.query_one(Headline).show(self._selection.feed, presenter.paused, findings, note)

    def on_resize(self, event: Resize) -> None:
        """Lay out the panes for the new size."""
        if self._presenter is not None:
            self.query_one(RunBody).fit(event.size)
            self.call_after_refresh(self._presenter.update_all)

    def watch_maximized(self, before: Widget | None, after: Widget | None) -> None:
        """Update the heights of all panes when one fills the page, or no longer does."""
        mark_zoomed(before, after)
        if self._presenter is not None:
            self.call_after_refresh(self._presenter.update_all)

    def on_line_table_row_highlighted(self, message: LineTable.RowHighlighted) -> None:
        """Show the case, or the rank in charts and logs, that the user selected."""
        if self._presenter is None or not self._presenter.cursors.is_user_choice(message):
            return
        if message.table is self._presenter.cases:
            self._selection.choose(str(message.key))
            self._show_case()
        elif isinstance(message.key, int):
            self._selection.rank = message.key
            self._presenter.update_rank_soon()

    def _show_case(self) -> None:
        """Show the selected case with all its ranks, and end a pause."""
        self._selection.rank = None
        self.presenter.pause(False)
        self.presenter.update_rank_soon()

    def on_line_table_row_selected(self, message: LineTable.RowSelected) -> None:
        """Show the details of a case or a rank."""
        if message.table is self.presenter.cases:
            self.app.push_screen(build_case_details(self._selection.feed, str(message.key)))
        elif isinstance(message.key, int):
            self.app.push_screen(build_rank_details(self._selection, message.key))

    def on_rank_strip_rank_selected(self, message: RankStrip.RankSelected) -> None:
        """Select the rank in all panes."""
        self._choose_rank(message.rank)

    def _choose_rank(self, rank: int | None) -> None:
        self._selection.rank = rank
        if rank is not None:
            self.presenter.cursors.move(self.presenter.ranks, rank)
        self.presenter.update_rank_soon()

    def on_input_changed(self, message: Input.Changed) -> None:
        """Filter while the user types."""
        self.presenter.filter_ranks(message.value)

    def on_input_submitted(self, message: Input.Submitted) -> None:
        """Focus the ranks that match."""
        self.presenter.ranks.focus()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Disable actions that the shown run does not support."""
        return self._offers(action, parameters) and super().check_action(action, parameters)

    def _offers(self, action: str, parameters: tuple[object, ...] = ()) -> bool:
        selection = None if self._presenter is None else self._selection
        if action == "back" and selection is not None:
            is_filtered = self.query_one(RunBody).is_filter_open
            return selection.rank is not None or self.presenter.ranks.is_sorted or is_filtered
        if action == "slowest" and selection is not None:
            return parameters != (self.presenter.is_slowest_first,)
        context = self.context
        return is_possible(action, parameters, selection, context, can_rerun=self.can_rerun)

    def offers(self, action: str) -> bool:
        """Return whether the status of the shown run allows an action."""
        selection = None if self._presenter is None else self._selection
        return has_effect(action, selection, self.context)

    def find_key_title(self, action: str) -> str | None:
        """Name the prediction that the run of a plan is compared with."""
        feed = self.shown_feed
        is_of_plan = feed is not None and feed.runs_suite(self.context.planned_suite)
        return "Predicted" if action == "compare" and is_of_plan else None

    def describe_location(self) -> tuple[str, ...]:
        """Return the run, and the case and the rank that are shown."""
        if self.shown_feed is None or self._presenter is None:
            return ()
        case = self._selection.case
        rank = self._selection.rank
        names = (self.shown_feed.folder.id, case.id if case is not None else "")
        return (*names, "" if rank is None else f"rank {rank}")

    def action_pause(self) -> None:
        """Pause the display of the ranks, or continue."""
        self.presenter.pause(not self.presenter.paused)

    def action_filter(self) -> None:
        """Ask for the filter of the ranks."""
        self.query_one(RunBody).open_filter()

    def action_panel(self) -> None:
        """Show the next panel below the ranks."""
        self.query_one(RunBody).next_panel()
        self.call_after_refresh(self.presenter.update_all)

    def action_logs(self) -> None:
        """Show the logs below the ranks, or the first panel again."""
        self.query_one(RunBody).show_panel(Panel.LOGS)
        self.call_after_refresh(self.presenter.update_all)

    def action_cancel(self) -> None:
        """Cancel the run, after a question if it has begun, or remove a start that waits."""
        if not self.context.is_run_active() and self.context.start_queue.remove_next():
            return
        if self.context.starting_since is not None:
            self.context.cancel_start()
        elif self.context.feed is not None:  # the page may still show the previous run
            self._control.cancel(self.context.feed.folder)

    def action_watch(self) -> None:
        """Watch the running run that the user did not want to watch."""
        self.context.watch_unwatched_run()

    def action_again(self) -> None:
        """Start the same run again, after a question if it is shown."""
        self._control.run_again(self.shown_feed)

    def action_compare(self) -> None:
        """Compare the run on the Results page, or that of a plan with its prediction."""
        self._control.compare(self._selection.feed)

    def action_failed(self) -> None:
        """Start a run of the failed cases of this one."""
        self._control.rerun_failed(self._selection.feed)

    def action_rest(self) -> None:
        """Start a run of the cancelled cases of this one."""
        self.action_failed()

    def action_follow(self) -> None:
        """Show the running case from now on."""
        self._selection.follows_running = True
        self._show_case()
        self.presenter.update_all()

    def action_slowest(self, slowest_first: bool) -> None:
        """Sort the slowest ranks first, or by number again, and focus the ranks."""
        self.presenter.ranks.focus()
        if slowest_first:
            self.presenter.sort_slowest_first()
        else:
            self.presenter.ranks.restore_order()
        self._update_bindings()

    def action_metric(self) -> None:
        """Show the next metric in the charts."""
        self._selection.next_metric()
        self.presenter.update_rank_soon()

    def action_next_problem(self) -> None:
        """Select the next failed or slow rank, or the next case that failed without one."""
        problem = self._selection.find_next_problem()
        if problem is None:
            self.notify("no case has a problem so far", timeout=3)
            return
        if self._selection.case is None or self._selection.case.id != problem.case:
            self._selection.choose(problem.case)
            self.presenter.cursors.move(self.presenter.cases, problem.case)
            self._show_case()
            self.presenter.update_all()
        if problem.rank is None:
            self.presenter.cases.focus()
            case = self._selection.case
            reason = case.execution.reason if case is not None else None
            self.notify(f"{problem.case}: {reason or 'no rank failed'}", timeout=5, markup=False)
        else:
            self.presenter.ranks.focus()
        self._choose_rank(problem.rank)

    def action_copy(self) -> None:
        """Copy the findings if they have the focus, or else the row under the cursor."""
        text = self.presenter.get_text_to_copy(self.focused)
        if text:
            self.app.copy_to_clipboard(text)
            self.notify("copied", timeout=2)

    def action_zoom(self) -> None:
        """Let the focused pane fill the page, or show all panes again."""
        nodes = self.focused.ancestors_with_self if self.focused is not None else ()
        pane = next((node for node in nodes if isinstance(node, Pane)), None)
        if self.maximized is not None:
            self.minimize()
        elif pane is not None:
            # Set first, since a maximized pane ignores changes of its height.
            pane.styles.height = "1fr"
            self.maximize(pane, container=False)

    def action_play(self, playing: bool) -> None:
        """Continue a replay, or pause it."""
        if (replay := self._selection.replay) is not None:
            replay.playing = playing

    def action_speed(self, faster: bool) -> None:
        """Replay faster or slower."""
        if (replay := self._selection.replay) is not None:
            replay.step_speed(faster)

    def action_back(self) -> None:
        """Leave the filter, or else the selected rank and the order."""
        if self.query_one(RunBody).close_filter():
            self.presenter.ranks.focus()
        else:
            self.presenter.ranks.restore_order()
            self._choose_rank(None)
            self._update_bindings()
