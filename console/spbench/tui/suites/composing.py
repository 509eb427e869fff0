"""Cases of the Suites page: composed and edited in a form, and removed.

Each function is a step of an action and may ask the user; a worker runs it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from spbench.errors import SpbenchError, UsageError, did_you_mean
from spbench.suites.edit.compose import (
    CaseDraft,
    Edited,
    draft_of,
    entry_at,
    insert_case,
    remove_case,
    replace_case,
)
from spbench.suites.edit.outline import Outline
from spbench.tui.dialogs import Confirm
from spbench.tui.suites.chooser import Choice, Chooser
from spbench.tui.suites.form import CaseForm
from spbench.tui.suites.preview import Write
from spbench_core.catalog import BENCHMARKS
from spbench_core.catalog.benchmark import Benchmark

if TYPE_CHECKING:
    from spbench.tui.suites.page import SuitesPage


async def compose_case(page: SuitesPage) -> None:
    """Ask for a benchmark, show its form, and write the case below the one at the cursor."""
    pane = page.text_pane
    if pane.document is None:
        page.complain("no suite is open: choose one of the files, or make one with Ctrl+N")
        return
    text, line, suite = pane.editor.text, pane.editor.cursor_line, pane.document.path.stem

    def write(draft: CaseDraft) -> Edited:
        return insert_case(text, draft, line, suite)

    try:
        names = [str(item.data.get("name")) for item in Outline(text).items]
    except UsageError as error:
        page.complain(str(error))
        return
    choices = [Choice(entry.name, entry.summary) for entry in BENCHMARKS.values()]
    chosen = await page.app.push_screen_wait(Chooser("Benchmark of the new case", choices))
    if chosen is not None:
        benchmark = BENCHMARKS[chosen]
        draft = CaseDraft(_unlike(names, chosen.rpartition(".")[2]), chosen)
        await _edit(page, benchmark, draft, write, "Insert")


def _unlike(names: Iterable[str], name: str) -> str:
    """Return a name that no other case has."""
    taken, number = set(names), 1
    while (free := name if number == 1 else f"{name}-{number}") in taken:
        number += 1
    return free


async def edit_case(page: SuitesPage) -> None:
    """Show the case at the cursor in its form, and change its text."""
    text = page.text_pane.editor.text
    try:
        index = _entry(page)
        draft = draft_of(text, index)
        benchmark = _benchmark(draft)
    except SpbenchError as error:
        page.complain(str(error))
        return

    def write(changed: CaseDraft) -> Edited:
        return replace_case(text, index, changed)

    await _edit(page, benchmark, draft, write, "Change")


def _benchmark(draft: CaseDraft) -> Benchmark:
    entry = BENCHMARKS.get(draft.benchmark)
    if entry is None:
        near = did_you_mean(draft.benchmark, BENCHMARKS)
        raise UsageError(f"unknown benchmark {draft.benchmark!r}{near}; mend its name in the text")
    return entry


async def _edit(
    page: SuitesPage, benchmark: Benchmark, draft: CaseDraft, write: Write, verb: str
) -> None:
    document = page.text_pane.document
    assert document is not None  # the case is in it
    form = CaseForm(benchmark, draft, write, document.path, verb)
    edited = await page.app.push_screen_wait(form)
    if edited is not None:
        page.text_pane.editor.change(edited.text, edited.line)


async def remove(page: SuitesPage) -> None:
    """Take the case at the cursor out of the text, after a question."""
    editor = page.text_pane.editor
    text = editor.text
    try:
        index = _entry(page)
        edited = remove_case(text, index)
    except SpbenchError as error:
        page.complain(str(error))
        return
    name = Outline(text).items[index].children().get("name")
    told = f"the case {name[1].text}" if name else f"case entry {index + 1}"
    question = f"Remove {told} from the text? (Ctrl+Z takes it back.)"
    if await page.app.push_screen_wait(Confirm(question, "Remove", "Keep")):
        editor.change(edited.text, edited.line)


def _entry(page: SuitesPage) -> int:
    """Return the entry at the cursor, from 0.

    Raises:
        UsageError: There is none.
    """
    editor = page.text_pane.editor
    Outline(editor.text)  # says what is wrong where the text is no YAML
    index = entry_at(editor.text, editor.cursor_line)
    if index is None:
        raise UsageError("no case is at the cursor: go to a line of one, or choose it in the table")
    return index
