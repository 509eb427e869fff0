"""The Suites page: compose a suite, see what it will run and how, and run it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from textual.app import ComposeResult
from textual.containers import Container, Horizontal
from textual.content import Content
from textual.widgets import Tree

from spbench.engine.plan import Request
from spbench.tui.page import Page
from spbench.tui.suites import composing, look, saving, starting
from spbench.tui.suites.cases_pane import CasesPane
from spbench.tui.suites.command import CommandPane
from spbench.tui.suites.document import SuiteDocument
from spbench.tui.suites.text_pane import TextPane
from spbench.tui.suites.tree import SuiteTree


class SuitesPage(Page):
    """Suite files, a text, its cases and their commands."""

    NAME = "suites"
    HELP = look.HELP
    CHANGES = look.CHANGES
    BINDINGS = look.KEYS
    DEFAULT_CSS = look.CSS
    AUTO_FOCUS = "#cases"
    HORIZONTAL_BREAKPOINTS = look.SIZES

    _led_to = 0
    """The line that the editor was sent to from the table, until it says so."""

    def compose_body(self) -> ComposeResult:
        """Return files, text, cases and command."""
        app = self.console_app
        with Horizontal(id="desk"):
            yield SuiteTree(app.opening.folder, id="files", classes="pane")
            with Container(id="work"):
                yield TextPane(self.request_of, app.readonly, id="text", classes="pane")
                yield CasesPane(id="made")

    def on_mount(self) -> None:
        """Open the suite that the console was started with; without one show the files."""
        self._hosts = self.console_app.hosts
        self.query_one("#files").border_title = Content("Files")
        suite = self.console_app.opening.suite
        if suite is not None:
            self.open(suite)
        else:
            self.add_class("files")
            self.query_one(SuiteTree).focus()
            self.look_for_files()

    def on_screen_resume(self) -> None:
        """See what has become of the files."""
        self.look_for_files()

    # Parts

    @property
    def text_pane(self) -> TextPane:
        """The text."""
        return self.query_one(TextPane)

    @property
    def cases_pane(self) -> CasesPane:
        """The cases."""
        return self.query_one(CasesPane)

    def request_of(self, path: Path) -> Request:
        """Return what a run of a file from here asks for."""
        app = self.console_app
        return Request(
            suite=path,
            home=app.opening.home,
            environ=app.opening.environ,
            chosen=app.hosts,
        )

    def unsaved(self) -> str | None:
        """Return in one sentence what would be lost if the console ended; None: nothing."""
        pane = self.text_pane
        if pane.document is None or not pane.changed:
            return None
        return f"{pane.document.path.name} is not saved."

    def complain(self, sentence: str) -> None:
        """Say what is wrong."""
        self.app.notify(sentence, severity="error", timeout=8, markup=False)

    # Files

    def look_for_files(self) -> None:
        """Look for suites, and at those that have changed."""
        document = self.text_pane.document
        self.query_one(SuiteTree).look(document.path if document else None)

    def open(self, path: Path) -> None:
        """Open a suite."""
        self._begin(saving.open_suite, path)

    def edit(self, document: SuiteDocument) -> None:
        """Show a file to be edited."""
        self.remove_class("files")
        self.cases_pane.forget()
        self.text_pane.open(document)
        self.query_one("#cases").focus()
        self.look_for_files()

    def on_tree_node_selected(self, event: Tree.NodeSelected[Path]) -> None:
        """Open the file that was chosen."""
        if event.node.data is not None:
            self.open(event.node.data)

    # Text and cases go together

    def on_text_pane_read(self, event: TextPane.Read) -> None:
        """Show the cases of the text."""
        self.cases_pane.show(event.reading, self.text_pane.editor.cursor_line)

    def on_text_pane_moved(self, event: TextPane.Moved) -> None:
        """Choose the case at the cursor."""
        if event.line != self._led_to:
            self.cases_pane.follow(event.line)
        self._led_to = 0

    def on_cases_pane_chosen(self, event: CasesPane.Chosen) -> None:
        """Go to the line of a case."""
        editor = self.text_pane.editor
        if editor.cursor_line != event.line:
            # By the time the editor says that it has moved, the table may be at another case.
            self._led_to = event.line
            editor.go_to(event.line)
        if event.opened:
            editor.focus()

    def refresh_page(self) -> None:
        """Plan again where the hosts were chosen anew."""
        if self._hosts != self.console_app.hosts:
            self._hosts = self.console_app.hosts
            self.text_pane.read_soon(0)

    # Actions

    def _begin(self, action: Callable[..., Awaitable[object]], *more: object) -> None:
        self.run_worker(partial(action, self, *more), group="action")

    def action_save(self) -> None:
        """Write the text into its file."""
        self._begin(saving.save)

    def action_new(self) -> None:
        """Begin a suite."""
        self._begin(saving.new_suite)

    def action_compose(self) -> None:
        """Add a case."""
        self._begin(composing.compose_case)

    def action_edit(self) -> None:
        """Edit the case at the cursor."""
        self._begin(composing.edit_case)

    def action_remove(self) -> None:
        """Remove the case at the cursor."""
        self._begin(composing.remove)

    def action_run_all(self) -> None:
        """Run the suite."""
        self._begin(starting.run_all)

    def action_run_case(self) -> None:
        """Run the chosen case."""
        self._begin(starting.run_case)

    def action_inject(self) -> None:
        """Run the chosen case with a fault."""
        self._begin(starting.run_with_fault)

    def action_copy(self) -> None:
        """Copy the launch line."""
        line = self.query_one(CommandPane).line
        if line:
            self.app.copy_to_clipboard(line)
            self.app.notify("launch line copied", timeout=3)

    def action_toggle_files(self) -> None:
        """Show or hide the files."""
        tree = self.query_one(SuiteTree)
        shown = tree.display
        self.set_class(not shown, "files")
        self.set_class(shown, "no-files")
        if not shown:
            tree.focus()
