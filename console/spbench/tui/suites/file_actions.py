"""Opening, creating, saving, reloading and recovering suite files."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from spbench.errors import SpbenchError
from spbench.report.times import format_day_and_time
from spbench.suites.pipe_files import expand_suite_path
from spbench.suites.shipped import (
    copy_shipped,
    count_missing,
    is_installed,
    is_shipped_name,
    needs_copy,
    require_suite_file,
)
from spbench.tui.chooser import Choice, Chooser
from spbench.tui.dialogs import AskLine, Confirm
from spbench.tui.page import Page
from spbench.tui.suites.document import SuiteDocument, copy_document, make_document, open_document
from spbench.tui.suites.overwrite_dialog import OverwriteDialog, compare_texts
from spbench.tui.suites.recovery import RecoveryFile, UnsavedText, find_abandoned
from spbench.tui.suites.start.last_opened import save_last_suite
from spbench.tui.suites.text_pane import TextPane
from spbench.tui.suites.tree import SuiteTree
from spbench_core.number_text import format_quantity

RECOVER = "Recover"
LATER = "Later"
DISCARD = "Discard"
NO_SUITE = "no suite is open: open a file (F2), or start a new suite (Ctrl+N)"

Change = Callable[[], Awaitable[None]]
"""A change of the text of the open suite, with its dialogs."""


class FileActions:
    """Actions on suite files that may ask questions; each method runs in a worker.

    Args:
        page: The page, which shows dialogs and errors.
        show_document: Shows a file for editing.
        update_files: Updates the list of suite files.
    """

    def __init__(
        self,
        page: Page,
        show_document: Callable[[SuiteDocument], None],
        update_files: Callable[[], None],
    ) -> None:
        self._page = page
        self._show_document = show_document
        self._update_files = update_files
        self._offered_files: set[RecoveryFile] = set()

    @property
    def _pane(self) -> TextPane:
        return self._page.query_one(TextPane)

    async def open(self, path: Path) -> bool:
        """Open a suite, after a question about unsaved changes; return whether it is open."""
        await self._page.wait_until_mounted()
        document = self._pane.document
        if document is not None and await asyncio.to_thread(document.is_current, path):
            self._page.query_one("#cases").focus()  # as after opening it
            return True
        if not await self._confirm_discard():
            return False
        listed = self._page.query_one(SuiteTree).lists_shipped(path)
        try:
            await self._show(await asyncio.to_thread(self._load_document, path, listed))
        except SpbenchError as error:
            self._page.show_error(str(error))
            return False
        return True

    async def require_open(self, next_step: str) -> bool:
        """Return whether a suite is open already; if not, open the file under the cursor.

        Args:
            next_step: The advice to show after a suite is opened.
        """
        if self._pane.document is not None:
            return True
        path = self._page.query_one(SuiteTree).selected_path
        if path is None:
            self._page.show_error(NO_SUITE)
        elif await self.open(path):
            message = f"{path.name} is open: {next_step}"
            self._page.app.notify(message, timeout=10, markup=False)
        return False

    async def change_open(self, change: Change, next_step: str) -> None:
        """Change the open suite; without one, open the file under the cursor instead."""
        if await self.require_open(next_step):
            await change()

    def _load_document(self, path: Path, listed: bool) -> SuiteDocument:
        """Return a file to edit; a shipped suite is copied into the console's folder."""
        file = require_suite_file(path)
        folder = self._page.context.options.folder
        has_shipped_name = is_shipped_name(path) and needs_copy(file, folder)
        if has_shipped_name or listed or is_installed(file):
            return copy_document(file, folder)
        return open_document(file)

    async def create(self) -> None:
        """Ask for a file name and start a new suite."""
        if not await self._confirm_discard():
            return
        folder = self._page.context.options.folder
        start = "suites/" if (folder / "suites").is_dir() else ""
        proposed = await asyncio.to_thread(_find_free_name, folder / start)

        def parse(line: str) -> SuiteDocument:
            if start and line.startswith(start * 2):  # typed after the proposed folder
                line = line.removeprefix(start)
            return make_document(expand_suite_path(folder, line))

        question = "File of the new suite:"
        dialog = AskLine(
            question, parse, f"{start}{proposed}", required="a file name", prefix=start
        )
        document: SuiteDocument | None = await self._page.app.push_screen_wait(dialog)
        if document is not None and await self._confirm_new_folder(document.path.parent):
            await self._show(document)

    async def _show(self, document: SuiteDocument) -> None:
        """Show a file, and remember that it was opened from the console's folder."""
        self._show_document(document)
        options = self._page.context.options
        if not options.readonly:
            await asyncio.to_thread(save_last_suite, options.environ, options.folder, document.path)

    async def _confirm_new_folder(self, folder: Path) -> bool:
        """Ask whether saving may create the folder of a new suite, unless it exists."""
        working_folder = self._page.context.options.folder
        if folder == working_folder / "suites" or await asyncio.to_thread(folder.is_dir):
            return True
        question = f"Saving creates the folder {folder}."
        dialog = Confirm(question, "Continue", "Cancel", enter_is_yes=True)
        return await self._page.app.push_screen_wait(dialog)

    async def copy_shipped_suites(self) -> None:
        """Ask, and copy the shipped suites and hostfiles into the folder."""
        folder = self._page.context.options.folder
        missing = await asyncio.to_thread(count_missing, folder)
        if missing:
            files = format_quantity(missing, "file")
            question = f"Copy {files} into {folder}: suites and hostfiles of spbench?"
            if not await self._page.confirm(question, "Copy", "Cancel", enter_is_yes=True):
                return
        try:
            copied = await asyncio.to_thread(copy_shipped, folder)
        except SpbenchError as error:
            self._page.show_error(str(error))
            return
        note = (
            f"; kept {format_quantity(len(copied.existing), 'existing file')}"
            if copied.existing
            else ""
        )
        message = f"wrote {format_quantity(len(copied.copied), 'file')}{note}"
        self._page.app.notify(message, timeout=6)
        self._update_files()

    async def save(self) -> bool:
        """Save the text, after a question if the file has changed; return whether saved."""
        document = self._pane.document
        text = self._pane.editor.text
        if document is None:
            return False
        is_stale = await asyncio.to_thread(document.is_stale)
        if is_stale and not await self._confirm_overwrite(document, text):
            return False
        try:
            self._pane.mark_saved(await asyncio.to_thread(document.save, text))
        except SpbenchError as error:
            self._page.show_error(str(error))
            return False
        if document.stored is None:
            self._page.app.notify(f"saved {document.path}", timeout=4, markup=False)
        self._update_files()
        return True

    async def _confirm_overwrite(self, document: SuiteDocument, text: str) -> bool:
        """Ask whether to overwrite a file that has changed, with the difference to it."""
        name = document.path.name
        if not await asyncio.to_thread(document.path.exists):
            question = f"{name} was deleted on disk. Write it again?"
            return await self._page.confirm(question, "Write", "Do not save")
        question = f"{name} has changed on disk. Overwrite it with your text?"
        try:
            on_disk = await asyncio.to_thread(open_document, document.path)
        except SpbenchError:  # not text, for example
            return await self._page.confirm(question, "Overwrite", "Do not save")
        difference = await asyncio.to_thread(compare_texts, on_disk.text, text)
        return await self._page.app.push_screen_wait(OverwriteDialog(question, difference))

    async def reload(self) -> None:
        """Read the open file again, after a question if there are unsaved changes."""
        document = self._pane.document
        if document is None:
            self._page.show_error("no suite is open")
            return
        try:
            on_disk = await asyncio.to_thread(open_document, document.path)
        except SpbenchError as error:
            self._page.show_error(f"not reloaded: {error}")
            return
        name = document.path.name
        if not self._pane.has_changes and on_disk.stored == document.stored:
            self._page.app.notify(f"{name} has not changed on disk", timeout=4, markup=False)
            return
        question = f"{name} is not saved. Replace your text by the file? (Ctrl+Z undoes it.)"
        if not self._pane.has_changes or await self._page.confirm(
            question, "Reload from disk", "Keep my text"
        ):
            self._pane.reload(on_disk)
            self._update_files()

    async def reload_rewritten(self) -> None:
        """Read the open file again if another page wrote it and the text is unchanged."""
        await self._page.wait_until_mounted()
        document = self._pane.document
        rewritten = self._page.context.rewritten_suites
        if document is None or document.path not in rewritten or self._pane.has_changes:
            return
        rewritten.discard(document.path)
        try:
            on_disk = await asyncio.to_thread(open_document, document.path)
        except SpbenchError:
            return  # the title of the pane reports the state of the file
        self._pane.reload(on_disk)

    async def _confirm_discard(self) -> bool:
        unsaved = self._page.describe_unsaved()
        return unsaved is None or await self._page.confirm(
            f"{unsaved} Discard its changes?", "Discard", "Cancel"
        )

    async def offer_unsaved(self) -> None:
        """Ask whether to recover the unsaved texts of killed or crashed consoles."""
        await self._page.wait_until_mounted()
        home = self._page.context.options.home
        for file, unsaved in await asyncio.to_thread(find_abandoned, home):
            path = Path(unsaved.path)
            if file in self._offered_files or file == self._pane.recovery_file:
                continue
            self._offered_files.add(file)
            answer = await self._page.app.push_screen_wait(
                Chooser(
                    f"{path.name}, edited {format_day_and_time(unsaved.edited)}, was not saved",
                    [
                        Choice(RECOVER, f"open {path} with the unsaved text"),
                        Choice(LATER, "ask again when the console opens"),
                        Choice(DISCARD, "delete the unsaved text"),
                    ],
                )
            )
            if answer == RECOVER:
                await self._recover(file, unsaved)
                return
            if answer == DISCARD:
                await asyncio.to_thread(file.delete)

    async def _recover(self, file: RecoveryFile, unsaved: UnsavedText) -> None:
        await self._page.wait_until_mounted()
        if not await self._confirm_discard():
            return
        path = Path(unsaved.path)
        try:
            document = await asyncio.to_thread(open_document, path)
        except SpbenchError:  # the suite was new, or its file was deleted
            document = SuiteDocument(path, None)
        await self._show(document)
        await self._pane.restore(unsaved, file)


def _find_free_name(folder: Path) -> str:
    """Return ``suite.yaml``, or with a number if the folder has that file."""
    name = "suite.yaml"
    number = 1
    while (folder / name).exists():
        number += 1
        name = f"suite-{number}.yaml"
    return name
