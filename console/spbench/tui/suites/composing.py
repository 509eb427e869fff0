"""Cases of the Suites page: composed and edited in a form, and removed."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from spbench.errors import SpbenchError, UsageError, did_you_mean
from spbench.suites.edit.compose import (
    EditedText,
    find_entry,
    insert_case,
    read_draft,
    remove_case,
    replace_case,
)
from spbench.suites.edit.draft import CaseDraft
from spbench.suites.edit.outline import Outline
from spbench.tui.chooser import Choice, Chooser
from spbench.tui.dialogs import Confirm
from spbench.tui.suites.form.case_form import CaseForm
from spbench.tui.suites.form.preview import WriteDraft
from spbench.tui.suites.text_pane import TextPane
from spbench_core.catalog import BENCHMARKS
from spbench_core.catalog.benchmark import Benchmark


class CaseComposer:
    """Changes the cases of a text as the user asks; each of its actions runs in a worker.

    Args:
        pane: The text.
        complain: Says what is wrong.
        marked: Returns the line of the case that is marked in the table, None where none is.
    """

    def __init__(
        self,
        pane: TextPane,
        complain: Callable[[str], None],
        marked: Callable[[], int | None],
    ) -> None:
        self._pane = pane
        self._complain = complain
        self._marked = marked

    async def compose(self) -> None:
        """Ask for a benchmark, show its form, and write the case below the one at the cursor."""
        document = self._pane.document
        editor = self._pane.editor
        if document is None:
            self._complain("no suite is open: choose one of the files, or make one with Ctrl+N")
            return
        text = editor.text
        line = editor.cursor_line
        suite = document.path.stem

        def write(draft: CaseDraft) -> EditedText:
            return insert_case(text, draft, line, suite)

        try:
            names = [str(item.data.get("name")) for item in Outline(text).items]
        except UsageError as error:
            self._complain(str(error))
            return
        choices = [Choice(entry.name, entry.summary) for entry in BENCHMARKS.values()]
        chooser = Chooser("Benchmark of the new case", choices)
        chosen = await self._pane.app.push_screen_wait(chooser)
        if chosen is not None:
            name = _unlike(names, chosen.rpartition(".")[2])
            entry = BENCHMARKS[chosen]
            draft = CaseDraft(name, chosen, params=dict(entry.begins_with))
            await self._fill_in(entry, draft, write, "Insert")

    async def edit(self) -> None:
        """Show the case at the cursor in its form, and change its text."""
        text = self._pane.editor.text
        try:
            index = self._entry()
            draft = read_draft(text, index)
            benchmark = _benchmark(draft)
        except SpbenchError as error:
            self._complain(str(error))
            return

        def write(changed: CaseDraft) -> EditedText:
            return replace_case(text, index, changed)

        await self._fill_in(benchmark, draft, write, "Change")

    async def _fill_in(
        self, benchmark: Benchmark, draft: CaseDraft, write: WriteDraft, verb: str
    ) -> None:
        document = self._pane.document
        assert document is not None  # the case is in it
        form = CaseForm(benchmark, draft, write, document.path, verb, self._pane.estimate_suite)
        edited = await self._pane.app.push_screen_wait(form)
        if edited is not None:
            self._pane.editor.replace_text(edited.text, edited.line)

    async def remove(self) -> None:
        """Take the case at the cursor out of the text, after a question."""
        editor = self._pane.editor
        text = editor.text
        try:
            index = self._entry()
            edited = remove_case(text, index)
        except SpbenchError as error:
            self._complain(str(error))
            return
        name = Outline(text).items[index].list_children().get("name")
        told = f"the case {name[1].text}" if name else f"case entry {index + 1}"
        question = f"Delete {told} from the text? (Ctrl+Z undoes it.)"
        if await self._pane.app.push_screen_wait(Confirm(question, "Delete", "Keep")):
            editor.replace_text(edited.text, edited.line)

    def _entry(self) -> int:
        """Return the entry at the cursor, from 0; beside all entries that of the marked case.

        Raises:
            UsageError: There is none.
        """
        editor = self._pane.editor
        Outline(editor.text)  # says what is wrong where the text is no YAML
        index = find_entry(editor.text, editor.cursor_line)
        marked = self._marked()
        if index is None and marked is not None:
            index = find_entry(editor.text, marked)
        if index is None:
            raise UsageError(
                "no case is at the cursor: go to a line of one, or choose it in the table"
            )
        return index


def _unlike(names: Iterable[str], name: str) -> str:
    """Return a name that no other case has."""
    taken = set(names)
    number = 1
    while (free := name if number == 1 else f"{name}-{number}") in taken:
        number += 1
    return free


def _benchmark(draft: CaseDraft) -> Benchmark:
    entry = BENCHMARKS.get(draft.benchmark)
    if entry is None:
        near = did_you_mean(draft.benchmark, BENCHMARKS)
        raise UsageError(f"unknown benchmark {draft.benchmark!r}{near}; fix its name in the text")
    return entry
