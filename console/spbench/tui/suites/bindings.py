"""The key bindings of the Suites page, and whether they have an effect."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.binding import BindingType

from spbench.tui.widgets.keys import make_binding

if TYPE_CHECKING:
    from spbench.tui.context import ConsoleContext
    from spbench.tui.suites.cases_pane import CasesPane
    from spbench.tui.suites.text_pane import TextPane

HELP = """\
Write a suite, see its cases and the exact launch command of each, and run it. The panes are the
suite files, the text with its errors, the cases, and the command of the selected case. The table
selects the case at the cursor of the text, and selecting a case moves the cursor to it. Enter on a
case edits it in a form, e goes to its text, and Escape leads back. Letter keys work if no text has
the focus. No letter starts a run: use F5 and F6."""
MODIFYING_ACTIONS = frozenset(
    {"compose", "run_all", "run_case", "save", "edit", "edit_suite"}
    | {"inject", "remove", "new", "init"}
)
"""Actions with effects outside the console."""
FOOTER = (
    *(
        "suites.next-error",
        "suites.run-all",
        "cases.unmark",
        "suites.compose",
        "suites.files",
        "suites.inject",
        "suites.edit-text",
        "suites.run-case",
        "cases.mark",
        "suites.edit",
    ),
    *(
        "suites.edit-suite",
        "suites.remove",
        "suites.save",
        "suites.new",
        "suites.init",
        "suites.demo",
    ),
    *("suites.undo", "suites.redo"),
    *("launch.launcher", "launch.hosts", "launch.environment", "suites.copy"),
)
"""The keys in the footer, the most important first."""
RUN_VERBS = {"run_all": "Run", "inject": "Fault in"}
"""Starts of the titles of keys that run the marked cases."""
CONDITIONAL_ACTIONS = frozenset({"undo", "redo"})
"""Actions that `is_possible` disables for a time."""
SUITES_BINDINGS: list[BindingType] = [
    make_binding(
        "suites.files",
        "f2",
        "toggle_files",
        "Files",
        "Go to the suite files, or hide them",
        show=True,
    ),
    make_binding(
        "suites.compose", "f4,c", "compose", "Add case", "Add a case with a form", show=True
    ),
    make_binding(
        "suites.run-all",
        "f5",
        "run_all",
        "Run",
        "Save, and run all or marked cases, or the selected file",
        show=True,
    ),
    make_binding(
        "suites.run-case",
        "f6",
        "run_case",
        "Run case",
        "Save, and run the selected case, or the marked ones",
        show=True,
    ),
    make_binding(
        "suites.undo", "ctrl+z,super+z", "undo", "Undo", "Undo the last change", show=True
    ),
    make_binding(
        "suites.redo",
        "ctrl+y,super+y",
        "redo",
        "Redo",
        "Redo the last undone change",
        show=True,
    ),
    make_binding("suites.save", "ctrl+s", "save", "Save", "Write the text into its file"),
    make_binding(
        "suites.reload", "ctrl+r", "reload", "Reload", "Read the suite from its file again"
    ),
    make_binding("suites.edit", "f3", "edit", "Edit case", "Edit the case at the cursor in a form"),
    make_binding(
        "suites.edit-text", "e", "edit_text", "Text", "Go to the selected case in the text"
    ),
    make_binding(
        "suites.edit-suite",
        "ctrl+d,D",
        "edit_suite",
        "Defaults",
        "Edit the suite: name, description, defaults",
    ),
    make_binding(
        "suites.inject",
        "f7,i",
        "inject",
        "Plant a fault",
        "Run the selected or marked cases with a planted fault",
    ),
    make_binding(
        "suites.remove", "f8,d,delete", "remove", "Delete case", "Delete the case at the cursor"
    ),
    make_binding(
        "suites.next-error",
        "ctrl+g,n",
        "next_error",
        "Next error",
        "Move the cursor of the text to its next error",
    ),
    make_binding("suites.new", "ctrl+n", "new", "New suite", "Start a suite in a new file"),
    make_binding(
        "suites.init", "I", "init", "Copy suites", "Copy suites of spbench into this folder"
    ),
    make_binding("suites.demo", "p", "demo", "Play demo", "Watch the demo, a recorded run"),
    make_binding(
        "suites.copy", "y", "copy", "Copy command", "Copy the launch line of the selected case"
    ),
]


def is_possible(action: str, text: TextPane) -> bool:
    """Return whether an action is possible, so that its key is bound."""
    if action == "undo":
        return text.editor.can_undo
    return action != "redo" or text.editor.can_redo


def has_effect(action: str, text: TextPane, cases: CasesPane, context: ConsoleContext) -> bool:
    """Return whether the open suite and the selected case allow an action."""
    is_open = text.document is not None
    if action == "next_error":
        return text.error_count > 0
    if action == "run_all":
        return True  # with no open suite, it runs the file under the cursor
    if action in ("compose", "edit_suite", "edit_text", "reload", "toggle_files"):
        return is_open
    if action == "run_case" and cases.cases.marked:
        return False  # F5 runs the marked cases, too, and the footer has their number there
    if action in ("run_case", "inject"):
        return cases.case is not None and not text.error_count
    if action == "edit":
        return cases.has_form
    if action == "remove":
        return cases.selected_line is not None
    if action == "copy":
        return cases.has_command_line
    if action == "save":
        return text.has_changes
    if action == "demo":
        return not is_open and not context.is_run_active()
    return action != "init" or not is_open
