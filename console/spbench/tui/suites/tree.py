"""The tree of suite files, with what the loader says of each."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar

from rich.cells import cell_len
from rich.style import Style
from rich.text import Text
from textual import work
from textual.binding import BindingType
from textual.widgets import Tree
from textual.widgets.tree import TreeNode

from spbench.record.number_formatting import GLYPHS
from spbench.record.runs.folder import FileStamp, file_stamp
from spbench.suites.shipped import needs_copy
from spbench.tui.suites.files import FileCheck, check_file, find_same_file, list_files
from spbench.tui.widgets.keys import key
from spbench_core.quantities import format_quantity

FIRST_SUITE = "smoke"
"""The shipped suite that is chosen first: each benchmark once, small, on two ranks."""


class SuiteTree(Tree[Path]):
    """Suite files by folder; each tells how many cases or errors it has once it was read."""

    HELP: ClassVar[str] = """\
The suites below this folder and beside the one that is open; where there are none, those that come
with spbench, which are opened as copies. Enter opens one; ✗ tells of errors.
"""
    BINDINGS: ClassVar[list[BindingType]] = [
        key("files.down", "j", "cursor_down", "Down", "The file below"),
        key("files.up", "k", "cursor_up", "Up", "The file above"),
    ]
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        f"suite-tree--{word}" for word in ("folder", "cases", "errors")
    }
    DEFAULT_CSS = """
    SuiteTree { background: $surface; scrollbar-size: 0 1; }
    SuiteTree:focus { background-tint: $foreground 0%; }
    SuiteTree > .suite-tree--folder { color: $text-muted; }
    SuiteTree > .suite-tree--cases { color: $text-muted; }
    SuiteTree > .suite-tree--errors { color: $text-error; }
    """

    def __init__(self, folder: Path, id: str | None = None, classes: str | None = None) -> None:
        super().__init__("suites", id=id, classes=classes)
        self.show_root = False
        self.show_guides = False
        self.guide_depth = 2
        self.auto_expand = False
        self._folder = folder
        self._opened: Path | None = None
        self._files: dict[Path, TreeNode[Path]] = {}
        self._told: dict[Path, tuple[FileStamp, FileCheck]] = {}

    def update_files(self, opened: Path | None) -> None:
        """Look for files again; the one that is open is marked."""
        self._look(opened)

    def _first_to_try(self) -> TreeNode[Path] | None:
        """The shipped suite that runs anywhere and takes seconds, where those are listed."""
        shipped = (node for path, node in self._files.items() if self._is_shipped(path))
        return next((node for node in shipped if node.data and node.data.stem == FIRST_SUITE), None)

    def lists_shipped(self, path: Path) -> bool:
        """Whether a file is listed as one that comes with spbench, not as one of this folder."""
        return path in self._files and self._is_shipped(path)

    def _is_shipped(self, path: Path) -> bool:
        return needs_copy(path, self._folder)

    @work(exclusive=True, group="files")
    async def _look(self, opened: Path | None) -> None:
        folders = await asyncio.to_thread(list_files, self._folder, opened)
        paths = [path for files in folders.values() for path in files]
        listed = await asyncio.to_thread(find_same_file, paths, opened)
        moved, self._opened = listed != self._opened, listed
        if paths != list(self._files):
            self._show(folders)
        if moved and listed is not None:
            self.call_after_refresh(self.move_cursor, self._files[listed])
        self._label(paths)
        for path in paths:
            await self._read(path)

    def _show(self, folders: dict[Path, tuple[Path, ...]]) -> None:
        chosen = self.cursor_node.data if self.cursor_node else None
        self.clear()
        self._files.clear()
        for folder, files in folders.items():
            node = self.root.add(self._named(folder), expand=True, allow_expand=False)
            for path in files:
                self._files[path] = node.add_leaf(path.name, path)
        self.root.expand()
        at = self._files.get(chosen or self._opened or Path()) or self._first_to_try()
        self.call_after_refresh(self.move_cursor, at or next(iter(self._files.values()), None))

    def _named(self, folder: Path) -> str:
        if self._is_shipped(folder):
            return "shipped with spbench"
        name = os.path.relpath(folder, self._folder)
        return f"{name if len(name) < len(str(folder)) else folder}/"

    async def _read(self, path: Path) -> None:
        """Have the loader say what it makes of a file, unless it has not changed since."""
        if not await asyncio.to_thread(os.path.lexists, path):  # it is open, and not written yet
            self._told.pop(path, None)
            return
        stamp = await asyncio.to_thread(file_stamp, path)
        known = self._told.get(path)
        if known is None or known[0] != stamp:
            self._told[path] = stamp, await asyncio.to_thread(check_file, path)
            self._label([path])

    def _label(self, paths: Iterable[Path]) -> None:
        """Measure and draw names again, for what is known of their files has changed."""
        for path in paths:
            self._files[path].set_label(_words(path, self._checked(path)))

    def _checked(self, path: Path) -> FileCheck | None:
        return self._told[path][1] if path in self._told else None

    def get_label_width(self, node: TreeNode[Path]) -> int:
        """Return the cells of a label, which may be asked for before there are colours."""
        if node.data is None:
            return cell_len(str(node.label))
        return cell_len(_words(node.data, self._checked(node.data)))

    def render_label(self, node: TreeNode[Path], base_style: Style, style: Style) -> Text:
        """Return a folder's or a file's name, and what the loader says of the file."""
        if node.data is None:
            return Text(str(node.label), self.get_component_rich_style("suite-tree--folder"))
        checked = self._checked(node.data)
        label = Text(_words(node.data, checked), style)
        if node.data == self._opened:
            label.stylize(Style(bold=True))
        if node is not self.cursor_node:  # its ground is of another colour
            word = "errors" if checked and checked.errors else "cases"
            colour = self.get_component_rich_style(f"suite-tree--{word}").color
            label.stylize(Style(color=colour), len(node.data.name))
        return label


def _words(path: Path, checked: FileCheck | None) -> str:
    if checked is None:
        return path.name
    if checked.errors:
        return f"{path.name}  {GLYPHS['error']} {format_quantity(checked.errors, 'error')}"
    return f"{path.name}  {format_quantity(checked.cases, 'case')}"
