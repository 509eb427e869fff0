"""Files of the Suites page: opened, made and saved, never over unsaved or foreign changes unasked.

Each function is a step of an action and may ask the user; a worker runs it.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from spbench.errors import SpbenchError
from spbench.tui.dialogs import AskLine, Confirm
from spbench.tui.suites.document import SuiteDocument, new_document, open_document

if TYPE_CHECKING:
    from spbench.tui.suites.page import SuitesPage


async def open_suite(page: SuitesPage, path: Path) -> None:
    """Open a suite, once the user agrees to lose changes of the one that is open."""
    document = page.text_pane.document
    if document is not None and await asyncio.to_thread(document.holds, path):
        page.text_pane.editor.focus()
    elif await may_drop_changes(page):
        try:
            page.edit(await asyncio.to_thread(open_document, path))
        except SpbenchError as error:
            page.complain(str(error))


async def new_suite(page: SuitesPage) -> None:
    """Ask for a file's name, and begin a suite in it."""
    if not await may_drop_changes(page):
        return
    folder = page.console_app.opening.folder
    start = "suites/" if (folder / "suites").is_dir() else ""
    name = await page.app.push_screen_wait(AskLine("File of the new suite:", start))
    if name is None:
        return
    path = folder / Path(name).expanduser()
    try:
        page.edit(await asyncio.to_thread(new_document, path.with_suffix(path.suffix or ".yaml")))
    except SpbenchError as error:
        page.complain(str(error))


async def save(page: SuitesPage) -> bool:
    """Write the text into its file; say whether it is there now."""
    pane = page.text_pane
    document, text = pane.document, pane.editor.text
    if document is None:
        return False
    if await asyncio.to_thread(document.is_stale) and not await _may_overwrite(page, document):
        return False
    try:
        pane.written(await asyncio.to_thread(document.save, text))
    except SpbenchError as error:
        page.complain(str(error))
        return False
    page.look_for_files()
    return True


async def _may_overwrite(page: SuitesPage, document: SuiteDocument) -> bool:
    question = f"{document.path.name} has changed on disk since it was read. Write over it?"
    return await page.app.push_screen_wait(Confirm(question, "Write over", "Keep it"))


async def may_drop_changes(page: SuitesPage) -> bool:
    """Ask about changes that are not saved, where there are some."""
    unsaved = page.unsaved()
    if unsaved is None:
        return True
    question = f"{unsaved} Drop its changes?"
    return await page.app.push_screen_wait(Confirm(question, "Drop them", "Stay"))
