"""The tree of suite files, with the loader's result for each."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from rich.cells import cell_len
from rich.style import Style
from rich.text import Text
from textual import work
from textual.binding import BindingType
from textual.widgets import Tree
from textual.widgets.tree import TreeNode

from spbench.errors import UsageError
from spbench.record.number_formatting import GLYPHS
from spbench.record.runs.folder import FileStamp, file_stamp
from spbench.suites.shipped import list_shipped_suites, needs_copy
from spbench.tui.suites.document import locate_copy
from spbench.tui.widgets.keys import make_binding
from spbench.tui.widgets.text import fit
from spbench_core.number_text import format_quantity

FIRST_SUITE = "smoke"
"""The shipped suite that is selected at first: each benchmark once, small, on two ranks."""

SHIPPED = "shipped with spbench"
"""The title of the shipped suites that have no copy in the folder."""
NOT_SAVED = "not saved"
"""Shown after the name of the open suite if it has no file, or unsaved changes."""
MAX_FILES = 500
"""Largest number of suites listed per folder."""
_RESULT_WIDTH = 9
"""Cells of a result such as ``120 cases`` or ``not saved``."""
_MIN_LABEL_WIDTH = 27
"""Width of a label in the narrowest pane, next to the scroll bar."""
_INDENT_AND_SCROLL_BAR = 3
_LONG_LABEL_CLASS = "long"
"""The class of a tree with longer names, which the page gives more columns if it has them."""
_HEAD_BYTES = 4096
_SCHEMA_LINE = re.compile(rb"^\s*schema\s*:\s*['\"]?spbench\.suite/", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class FileCheck:
    """The numbers of cases and of errors of a suite file."""

    case_count: int
    error_count: int


def find_suites(folder: Path, opened: Path | None = None) -> dict[Path, tuple[Path, ...]]:
    """Return suite files by folder.

    Args:
        folder: The folder of the console; its suites and those below ``suites`` are listed.
        opened: The open suite; it and the suites in its folder are listed too.
    """
    candidates = [*folder.glob("suites/**/*.y*ml"), *folder.glob("*.y*ml")]
    if opened is not None:
        candidates += [opened, *opened.parent.glob("*.y*ml")]
    suites: dict[Path, list[Path]] = {}
    for path in _select_suites(candidates, opened):
        suites.setdefault(path.parent, []).append(path)
    return {parent: tuple(sorted(paths)[:MAX_FILES]) for parent, paths in suites.items()}


def list_files(folder: Path, opened: Path | None = None) -> dict[Path, tuple[Path, ...]]:
    """Return the files of `find_suites`, then the shipped suites without a copy."""
    is_own = opened is not None and not needs_copy(opened, folder)
    suites = find_suites(folder, opened if is_own else None)
    listed = {path.resolve() for paths in suites.values() for path in paths}
    shipped = tuple(
        path
        for path in list_shipped_suites().values()
        if path.resolve() not in listed and not os.path.lexists(locate_copy(path, folder))
    )
    # The folder of the shipped suites is listed in full if one of them is opened there.
    return suites if not shipped else {**suites, shipped[0].parent: shipped}


def find_same_file(paths: Iterable[Path], opened: Path | None) -> Path | None:
    """Return the path of the open file among several, also if it is a link."""
    real = opened.resolve() if opened else None
    return next((path for path in paths if path.resolve() == real), None)


def _select_suites(paths: Iterable[Path], opened: Path | None) -> Iterator[Path]:
    """Yield the suites among files, each once even if several paths lead to it."""
    yielded_paths: set[Path] = set()
    for path in paths:
        real_path = path.resolve()
        if real_path not in yielded_paths and (path == opened or _has_suite_head(path)):
            yielded_paths.add(real_path)
            yield path


def _has_suite_head(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return _SCHEMA_LINE.search(file.read(_HEAD_BYTES)) is not None
    except OSError:
        return False


def check_file(path: Path) -> FileCheck:
    """Return the loader's result for a file; an unreadable file counts as one error."""
    # In a thread, because these imports take 0.1 s.
    from spbench.suites.edit.outline import lacks_only_cases
    from spbench.suites.loader import check_text, read_suite_file

    try:
        text = read_suite_file(path)
    except UsageError:
        return FileCheck(0, 1)
    checked_text = check_text(text, path)
    if lacks_only_cases(checked_text, text):
        return FileCheck(0, 0)
    cases = len(checked_text.suite.cases) if checked_text.suite else 0
    return FileCheck(cases, len(checked_text.diagnostics))


class SuiteTree(Tree[Path]):
    """Suite files by folder, with the number of cases or errors of loaded files."""

    HELP: ClassVar[str] = """\
The suites below this folder and next to the open one, then the suites that come with spbench. Enter
opens a suite. A shipped suite opens as a copy, which is listed once you change it, and written when
you save or run it. It leaves the list of shipped ones then. ✗ marks a suite with errors.
"""
    BINDINGS: ClassVar[list[BindingType]] = [
        make_binding("files.open", "enter", "select_cursor", "Open", "Open the file", show=True),
        make_binding(
            "files.find", "slash", "app.jump('suite')", "Find", "Find a suite by name", show=True
        ),
        make_binding("files.down", "j", "cursor_down", "Down", "The file below"),
        make_binding("files.up", "k", "cursor_up", "Up", "The file above"),
    ]
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        f"suite-tree--{name}" for name in ("folder", "cases", "errors")
    }
    DEFAULT_CSS = """
    SuiteTree { background: transparent; scrollbar-size: 0 1; }
    SuiteTree:focus { background-tint: $foreground 0%; }
    SuiteTree > .suite-tree--folder { color: $text-muted; }
    SuiteTree > .suite-tree--cases { color: $text-muted; }
    SuiteTree > .suite-tree--errors { color: $text-error; }
    """

    def __init__(
        self,
        folder: Path,
        last_suite: Path | None = None,
        id: str | None = None,
        classes: str | None = None,
    ) -> None:
        super().__init__("suites", id=id, classes=classes)
        self.show_root = False
        self.show_guides = False
        self.guide_depth = 2
        self.auto_expand = False
        self._folder = folder
        self._last_suite = last_suite
        self._opened: Path | None = None
        self._requested: Path | None = None
        self._is_opened_unsaved = False
        self._has_changes = False
        self._files: dict[Path, TreeNode[Path]] = {}
        self._longest_name = 0
        self._checks: dict[Path, tuple[FileStamp, FileCheck]] = {}

    @property
    def selected_path(self) -> Path | None:
        """The file under the cursor; None on a folder."""
        return self.cursor_node.data if self.cursor_node is not None else None

    def action_scroll_home(self) -> None:
        """Select the first suite; the cursor would be invisible on the folder above it."""
        self.move_cursor(next(iter(self._files.values()), None))
        self.scroll_to_line(0)

    def update_files(self, opened: Path | None, *, has_changes: bool = False) -> None:
        """Update the files; the open one is marked."""
        self._has_changes = has_changes
        self._requested = opened
        self._update_listing(opened)

    def mark_changes(self, opened: Path | None, has_changes: bool) -> None:
        """Show whether the open file has unsaved changes; a changed copy is another file."""
        if opened != self._requested:
            self.update_files(opened, has_changes=has_changes)
        elif has_changes != self._has_changes:
            self._has_changes = has_changes
            self._label(path for path in self._files if path == self._opened)

    def _find_first_suite(self) -> TreeNode[Path] | None:
        """Return the suite that was opened last, or the first one.

        If only shipped suites are listed, it is the quickest.
        """
        if self._last_suite is not None and self._last_suite in self._files:
            return self._files[self._last_suite]
        nodes = list(self._files.values())
        if nodes and nodes[0].data is not None and self._is_shipped(nodes[0].data):
            nodes.sort(key=lambda node: node.data is None or node.data.stem != FIRST_SUITE)
        return next(iter(nodes), None)

    def lists_shipped(self, path: Path) -> bool:
        """Return whether a file is listed as a shipped suite."""
        return path in self._files and self._is_shipped(path)

    def _is_shipped(self, path: Path) -> bool:
        return needs_copy(path, self._folder)

    @work(exclusive=True, group="files")
    async def _update_listing(self, opened: Path | None) -> None:
        folders = await asyncio.to_thread(list_files, self._folder, opened or self._last_suite)
        paths = [path for files in folders.values() for path in files]
        opened_path = await asyncio.to_thread(find_same_file, paths, opened)
        self._last_suite = await asyncio.to_thread(find_same_file, paths, self._last_suite)
        has_moved = opened_path != self._opened
        self._opened = opened_path
        self._is_opened_unsaved = opened_path is not None and not await asyncio.to_thread(
            os.path.lexists, opened_path
        )
        if paths != list(self._files):
            self._show(folders)
        if has_moved and opened_path is not None:
            self.call_after_refresh(self.move_cursor, self._files[opened_path])
        self._label(paths)
        await self._wait_for_refresh()
        for path in paths:
            await self._read(path)

    async def _wait_for_refresh(self) -> None:
        """Wait until the names are shown. The first check imports the loader."""
        refreshed = asyncio.Event()
        self.call_after_refresh(refreshed.set)
        await refreshed.wait()

    def _show(self, folders: dict[Path, tuple[Path, ...]]) -> None:
        chosen = self.cursor_node.data if self.cursor_node else None
        self.clear()
        self._files.clear()
        names = [path.name for files in folders.values() for path in files]
        self._longest_name = max(map(cell_len, names), default=0)
        is_long = self._longest_name + 1 + _RESULT_WIDTH > _MIN_LABEL_WIDTH
        self.set_class(is_long, _LONG_LABEL_CLASS)
        for folder, files in folders.items():
            node = self.root.add(self._format_folder(folder), expand=True, allow_expand=False)
            for path in files:
                self._files[path] = node.add_leaf(path.name, path)
        self.root.expand()
        node_to_select = self._files.get(chosen or self._opened or Path())
        self.call_after_refresh(self.move_cursor, node_to_select or self._find_first_suite())

    def _format_folder(self, folder: Path) -> str:
        if self._is_shipped(folder):
            return SHIPPED
        name = os.path.relpath(folder, self._folder)
        return f"{name if len(name) < len(str(folder)) else folder}/"

    async def _read(self, path: Path) -> None:
        """Load a file and show its number of cases or errors, if it has changed."""
        if not await asyncio.to_thread(os.path.lexists, path):  # the open file is not saved
            self._checks.pop(path, None)
            return
        stamp = await asyncio.to_thread(file_stamp, path)
        cached = self._checks.get(path)
        if cached is None or cached[0] != stamp:
            self._checks[path] = stamp, await asyncio.to_thread(check_file, path)
            self._label([path])

    def _label(self, paths: Iterable[Path]) -> None:
        """Set the labels of files, which also measures them again."""
        for path in paths:
            self._files[path].set_label(self._format_label(path))

    def _format_label(self, path: Path) -> str:
        if path == self._opened and (self._is_opened_unsaved or self._has_changes):
            return self._append_result(path.name, NOT_SAVED)
        check = self._get_check(path)
        return self._append_result(path.name, "" if check is None else _format_check(check))

    def _append_result(self, name: str, result: str) -> str:
        """Return a name, shortened if it is too long, and a result at the right."""
        label_width = max(self.content_size.width - _INDENT_AND_SCROLL_BAR, _MIN_LABEL_WIDTH)
        label_width = min(label_width, self._longest_name + 2 + _RESULT_WIDTH)
        name_width = label_width - 1 - max(cell_len(result), _RESULT_WIDTH)
        return f"{fit(name, name_width)} {result:>{_RESULT_WIDTH}}"

    def on_resize(self) -> None:
        """Fit the labels to the new width."""
        self._label(self._files)

    def _get_check(self, path: Path) -> FileCheck | None:
        return self._checks[path][1] if path in self._checks else None

    def get_label_width(self, node: TreeNode[Path]) -> int:
        """Return the width of a label; unlike rendering, this needs no styles."""
        if node.data is None:
            return cell_len(str(node.label))
        return cell_len(self._format_label(node.data))

    def render_label(self, node: TreeNode[Path], base_style: Style, style: Style) -> Text:
        """Return the name of a folder or a file, with the loader's result for a file."""
        if node.data is None:
            return Text(str(node.label), self.get_component_rich_style("suite-tree--folder"))
        check = self._get_check(node.data)
        label = Text(self._format_label(node.data), style)
        if node.data == self._opened:
            label.stylize(Style(bold=True))
        if node is not self.cursor_node:  # the cursor has its own background
            name = "errors" if check and check.error_count else "cases"
            colour = self.get_component_rich_style(f"suite-tree--{name}").color
            label.stylize(Style(color=colour), len(label) - _RESULT_WIDTH - 1)
        return label


def _format_check(check: FileCheck) -> str:
    if check.error_count:
        return f"{GLYPHS['error']} {format_quantity(check.error_count, 'error')}"
    number, _, noun = format_quantity(check.case_count, "case").partition(" ")
    return f"{number:>3} {noun:<5}"  # with the numbers below each other
