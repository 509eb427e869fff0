"""The Suites page: compose a suite, see its cases and launch commands, and run it."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container, Horizontal
from textual.content import Content
from textual.widgets import Tree

from spbench.launch.choice import LaunchChoice
from spbench.tui.context import ConsoleContext
from spbench.tui.page import Page
from spbench.tui.suites.bindings import (
    CONDITIONAL_ACTIONS,
    FOOTER,
    HELP,
    MODIFYING_ACTIONS,
    RUN_VERBS,
    SUITES_BINDINGS,
    has_effect,
    is_possible,
)
from spbench.tui.suites.cases_pane import CasesPane, CommandPane
from spbench.tui.suites.document import SuiteDocument
from spbench.tui.suites.file_actions import Change, FileActions
from spbench.tui.suites.running.run_actions import RunActions
from spbench.tui.suites.start.last_opened import find_last_suite
from spbench.tui.suites.start.start_pane import StartPane
from spbench.tui.suites.text_pane import TextPane
from spbench.tui.suites.tree import SuiteTree
from spbench_core.number_text import format_quantity

if TYPE_CHECKING:
    from spbench.engine.plan import Request
    from spbench.tui.suites.composing import CaseComposer

_SIZES: list[tuple[int, str]] | None = [(0, "-narrow"), (100, "-normal"), (160, "-wide")]
"""With 100 columns the files are shown, with 160 the cases are next to the text."""
SECOND_RECOVERY_DELAY = 3.0
"""Time after which the page looks for unsaved texts a second time, in seconds."""


class SuitesPage(Page):
    """Suite files, the text of a suite, its cases and their commands."""

    NAME = "suites"
    HELP = HELP
    MODIFYING_ACTIONS = MODIFYING_ACTIONS
    FOOTER = FOOTER
    BINDINGS: ClassVar[list[BindingType]] = SUITES_BINDINGS
    DEFAULT_CSS = """
    SuitesPage #workspace { height: 1fr; }
    SuitesPage #files { width: 34; }
    SuitesPage #work, SuitesPage #start { width: 1fr; layout: vertical; }
    SuitesPage.start #work { display: none; }
    SuitesPage #start { display: none; }
    SuitesPage.start #start { display: block; }
    SuitesPage #text { width: 1fr; height: 5fr; min-height: 7; }
    SuitesPage #cases-pane { width: 1fr; height: 4fr; }
    SuitesPage.-narrow #files { display: none; }
    SuitesPage.-narrow.files #files { display: block; }
    SuitesPage.no-files #files { display: none; }
    SuitesPage.-wide #work { layout: horizontal; }
    SuitesPage.-wide #files.long { width: 46; }
    SuitesPage.-wide #text { height: 1fr; width: 1fr; }
    SuitesPage.-wide #cases-pane { height: 1fr; width: 1fr; }
    """
    AUTO_FOCUS = "SuitesPage.files #files, #cases"
    HORIZONTAL_BREAKPOINTS = _SIZES

    _requested_line = 0
    """The line to which the editor moves for the table or undo, until the editor reports it."""

    def __init__(self, context: ConsoleContext) -> None:
        super().__init__(context)
        self._file_actions = FileActions(self, self.show_document, self.update_files)
        self._run_actions = RunActions(self, self._file_actions)
        if context.suite is None:
            # Before the page is composed, so that its styles and keys are computed only once.
            self.add_class("files", "start")

    def compose_body(self) -> ComposeResult:
        """Yield files, text, cases and command."""
        context = self.context
        last_suite = find_last_suite(context.options.environ, context.options.folder)
        with Horizontal(id="workspace"):
            yield SuiteTree(context.options.folder, last_suite, id="files", classes="pane")
            yield StartPane(self.build_request, last_suite, id="start")
            with Container(id="work"):
                yield TextPane(
                    self.build_request,
                    context.options.home,
                    context.readonly,
                    id="text",
                    classes="pane",
                )
                yield CasesPane(id="cases-pane")

    def on_mount(self) -> None:
        """Open the suite of the command line, or show the files if there is none."""
        self._known_launch_settings = self._launch_settings
        if not self.context.readonly:
            offer_unsaved = self._file_actions.offer_unsaved
            self.start_action(offer_unsaved)
            # When a browser page is reloaded, the old console may end after this one has started.
            self.set_timer(SECOND_RECOVERY_DELAY, partial(self.start_action, offer_unsaved))
        self.query_one("#files").border_title = Content("Files")
        if not self._open_requested():
            self.update_files()

    def on_screen_resume(self) -> None:
        """Open a suite that another page requested, and update the files."""
        if not self._open_requested() and self.context.rewritten_suites:
            self.start_action(self._file_actions.reload_rewritten)
        self.update_files()

    def _open_requested(self) -> bool:
        path = self.context.suite
        self.context.suite = None
        if path is not None:
            self.open(path)
        return path is not None

    @property
    def text_pane(self) -> TextPane:
        """The pane of the text."""
        return self.query_one(TextPane)

    @property
    def cases_pane(self) -> CasesPane:
        """The pane of the cases."""
        return self.query_one(CasesPane)

    def build_request(self, path: Path) -> Request:
        """Return the request for a run of a suite with the current launch settings."""
        from spbench.engine.plan import Request

        options = self.context.options
        return Request(
            suite=path,
            home=options.home,
            environ=options.environ,
            overrides=self.context.overrides,
            launch_choice=self.context.launch_choice,
        )

    def describe_unsaved(self) -> str | None:
        """Return a message on an unsaved text; None if there is none."""
        for pane in self.query(TextPane):  # none before the page is composed
            if pane.document is not None and pane.has_changes:
                return f"{pane.document.path.name} is not saved."
        return None

    async def save_unsaved(self) -> bool:
        """Save the unsaved text, which may ask questions; return whether it is saved."""
        return await self._file_actions.save()

    def discard_unsaved(self) -> None:
        """Discard the unsaved text."""
        for pane in self.query(TextPane):
            pane.delete_recovery_file()

    def update_files(self) -> None:
        """Update the list of suite files."""
        has_changes = self.text_pane.has_changes
        self.query_one(SuiteTree).update_files(self._listed_path, has_changes=has_changes)

    @property
    def _listed_path(self) -> Path | None:
        """The path of the open suite in the list of files."""
        pane = self.text_pane
        return None if pane.document is None else pane.document.find_listed_path(pane.has_changes)

    def open(self, path: Path) -> None:
        """Open a suite, after a question if the open one has unsaved changes."""
        self.start_action(self.wait_for_opening, path)

    async def wait_for_opening(self, path: Path) -> bool:
        """Open a suite like `open`, and return whether it is open; call it in a worker."""
        is_open = await self._file_actions.open(path)
        self.set_class(self.text_pane.document is None, "start")
        return is_open

    def action_init(self) -> None:
        """Write the shipped suites and hostfiles into the console's folder."""
        self.start_action(self._file_actions.copy_shipped_suites)

    def action_new(self) -> None:
        """Ask for a file name and start a new suite."""
        self.start_action(self._file_actions.create)

    def action_save(self) -> None:
        """Write the text into its file."""
        self.start_action(self._file_actions.save)

    def action_reload(self) -> None:
        """Read the file again."""
        self.start_action(self._file_actions.reload)

    def show_document(self, document: SuiteDocument) -> None:
        """Show a file for editing."""
        self.remove_class("files", "start")
        self.cases_pane.clear()
        self.text_pane.open(document)
        self.query_one("#cases").focus()
        self.update_files()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Disable actions that the text and the cases do not allow."""
        if action in CONDITIONAL_ACTIONS and not (
            self.is_mounted and is_possible(action, self.text_pane)
        ):
            return False
        return super().check_action(action, parameters)

    def offers(self, action: str) -> bool:
        """Return whether the open suite and the chosen case allow an action."""
        return has_effect(action, self.text_pane, self.cases_pane, self.context)

    def find_key_title(self, action: str) -> str | None:
        """Return the title of a key that runs cases, with the number of marked ones."""
        marked = self.cases_pane.cases.marked
        verb = RUN_VERBS.get(action)
        if verb is None or not marked or self._run_actions.must_open_file():
            return None
        return f"{verb} {format_quantity(len(marked), 'case')}"

    @staticmethod
    def has_use(action: str, context: ConsoleContext) -> bool:
        """Return whether the palette offers an action of this page while another is shown."""
        return action != "demo"  # the palette offers it on each page

    def describe_location(self) -> tuple[str, ...]:
        """Return the open suite and the chosen case."""
        document = self.text_pane.document
        selected = self.cases_pane.cases.table.cursor_key
        return (document.path.name if document else "", "" if selected is None else str(selected))

    def action_undo(self) -> None:
        """Undo the last change of the text."""
        self._requested_line = self.text_pane.undo()

    def action_redo(self) -> None:
        """Redo the last undone change."""
        self._requested_line = self.text_pane.redo()

    def on_tree_node_selected(self, event: Tree.NodeSelected[Path]) -> None:
        """Open the selected file."""
        if event.node.data is not None:
            self.open(event.node.data)

    def on_tree_node_highlighted(self, event: Tree.NodeHighlighted[Path]) -> None:
        """Describe the file under the cursor while no suite is open."""
        if self.text_pane.document is None:
            path = event.node.data
            is_shipped = path is not None and self.query_one(SuiteTree).lists_shipped(path)
            self.query_one(StartPane).show_file(path, is_shipped=is_shipped)
        elif self.cases_pane.cases.marked:
            self.refresh_bindings()  # F5 runs the selected file instead of the marked cases

    def on_text_pane_text_parsed(self, event: TextPane.TextParsed) -> None:
        """Show the cases of the text."""
        line = self.text_pane.editor.cursor_line
        self.cases_pane.show(event.parsed, line, keep_case=event.is_undone)
        self.query_one(SuiteTree).mark_changes(self._listed_path, self.text_pane.has_changes)
        self.refresh_bindings()

    def on_text_pane_cursor_moved(self, event: TextPane.CursorMoved) -> None:
        """Select the case at the cursor."""
        if event.line != self._requested_line:
            self.cases_pane.select_line(event.line)
        self._requested_line = 0

    def on_cases_pane_case_selected(self, event: CasesPane.CaseSelected) -> None:
        """Go to the line of a case."""
        editor = self.text_pane.editor
        if editor.cursor_line != event.line:
            # Before the editor reports its move, the table may have moved to another case.
            self._requested_line = event.line
            editor.go_to(event.line)

    def on_cases_pane_case_opened(self) -> None:
        """Edit a case in its form, or in the text if the form cannot."""
        if self.context.readonly or self.cases_pane.selected_line is None:
            self.action_edit_text()
        else:
            self.action_edit()

    def refresh_page(self) -> None:
        """Plan the jobs again if hosts, launcher or environment have changed."""
        if self._known_launch_settings != self._launch_settings:
            self._known_launch_settings = self._launch_settings
            self.text_pane.schedule_parse(0)

    @property
    def _launch_settings(self) -> tuple[LaunchChoice, tuple[str, ...]]:
        return self.context.launch_choice, self.context.environment

    @property
    def _composer(self) -> CaseComposer:
        from spbench.tui.suites.composing import CaseComposer

        return CaseComposer(self.text_pane, self.show_error, self.cases_pane.find_selected)

    def _change_suite(self, change: Change, next_step: str) -> None:
        self.start_action(self._file_actions.change_open, change, next_step)

    def action_compose(self) -> None:
        """Add a case."""
        self._change_suite(self._composer.compose, "press F4 to add a case")

    def action_edit(self) -> None:
        """Edit the case at the cursor."""
        self._change_suite(self._composer.edit, "select a case, then press F3 to edit it")

    def action_edit_text(self) -> None:
        """Focus the text, in which the cursor is at the selected case."""
        self.text_pane.editor.focus()

    def action_edit_suite(self) -> None:
        """Edit name, description and defaults of the suite."""
        self._change_suite(self._composer.edit_suite, "press Ctrl+D to edit its defaults")

    def action_remove(self) -> None:
        """Remove the case at the cursor."""
        self._change_suite(self._composer.remove, "select a case, then press F8 to delete it")

    def action_next_error(self) -> None:
        """Move the cursor of the text to its next error."""
        self.text_pane.go_to_next_problem()

    def action_run_all(self) -> None:
        """Run the marked cases, or all."""
        self.start_action(self._run_actions.run_all)

    def action_run_case(self) -> None:
        """Run the selected case, or the marked ones."""
        self.start_action(self._run_actions.run_case)

    def action_inject(self) -> None:
        """Run the selected case with a fault, to test that it is detected."""
        self.start_action(self._run_actions.run_with_fault)

    def action_copy(self) -> None:
        """Copy the launch line."""
        pane = self.query_one(CommandPane)
        if not pane.copy_line():
            self.show_error(f"no launch line to copy: {pane.reason}")

    def action_demo(self) -> None:
        """Play the recorded demo run on the Run page."""
        self.context.replay_demo()

    def action_toggle_files(self) -> None:
        """Show and focus the files, or hide the focused ones."""
        tree = self.query_one(SuiteTree)
        hides = tree.has_focus
        self.set_class(not hides, "files")
        self.set_class(hides, "no-files")
        target = self.cases_pane.cases.table if hides else tree
        target.focus()
