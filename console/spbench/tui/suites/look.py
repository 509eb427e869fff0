"""What the Suites page looks like, its help and its keys."""

from __future__ import annotations

from textual.binding import Binding, BindingType

HELP = """\
Compose a suite, see the cases that it expands to and the exact launch command of each, and run
it. On the left the suite files, then the text with its problems, then the cases and the command
of the chosen one: the case at the cursor is chosen, and choosing a case goes to its line.
Letters work wherever no text is typed; in the editor use the function keys, or Escape first.
What starts a run at once has no letter: F5 and F6."""


def _key(keys: str, action: str, name: str, id: str, tooltip: str, show: bool = False) -> Binding:
    return Binding(keys, action, name, show=show, id=f"suites.{id}", tooltip=tooltip)


KEYS: list[BindingType] = [
    _key("f2,t", "toggle_files", "Files", "files", "Show or hide the suite files", show=True),
    _key("f4,c", "compose", "Compose", "compose", "Add a case with a form", show=True),
    _key("f5", "run_all", "Run all", "run-all", "Save, and run the whole suite", show=True),
    _key("f6", "run_case", "Run case", "run-case", "Save, and run the chosen case", show=True),
    _key("ctrl+s", "save", "Save", "save", "Write the text into its file"),
    _key("f3,e", "edit", "Edit case", "edit", "Edit the case at the cursor in a form"),
    _key("f7,i", "inject", "Plant a fault", "inject", "Run the chosen case with a planted fault"),
    _key("f8,delete", "remove", "Remove case", "remove", "Take the case at the cursor out"),
    _key("ctrl+n,n", "new", "New suite", "new", "Begin a suite in a new file"),
    _key("y", "copy", "Copy command", "copy", "Copy the launch line of the chosen case"),
]
CHANGES = frozenset({"compose", "run_all", "run_case", "save", "edit", "inject", "remove", "new"})

SIZES: list[tuple[int, str]] | None = [(0, "-narrow"), (100, "-normal"), (160, "-wide")]
"""From how many columns on the files are shown unasked, and all stands side by side."""
CSS = """
SuitesPage #desk { height: 1fr; }
SuitesPage #files { width: 32; }
SuitesPage #work { width: 1fr; layout: vertical; }
SuitesPage #text { width: 1fr; height: 5fr; min-height: 7; }
SuitesPage #made { width: 1fr; height: 4fr; }
SuitesPage.-narrow #files { display: none; }
SuitesPage.-narrow.files #files { display: block; }
SuitesPage.no-files #files { display: none; }
SuitesPage.-wide #work { layout: horizontal; }
SuitesPage.-wide #text { height: 1fr; width: 5fr; }
SuitesPage.-wide #made { height: 1fr; width: 4fr; }
SuitesPage.-narrow SuiteEditor { scrollbar-size: 0 1; }
SuitesPage .pane { background: $surface; }
"""
