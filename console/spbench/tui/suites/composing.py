"""Editing the suite in the editor by forms: its head, and its cases."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from spbench.errors import SpbenchError, UsageError, did_you_mean
from spbench.suites.edit.compose import (
    EditedText,
    find_entry,
    insert_case,
    read_defaults,
    read_draft,
    remove_case,
    replace_case,
)
from spbench.suites.edit.draft import CaseDraft, inherit_defaults
from spbench.suites.edit.head import (
    HeadDraft,
    list_suite_benchmarks,
    read_head,
    replace_head,
)
from spbench.suites.edit.outline import Outline
from spbench.tui.chooser import Choice, Chooser
from spbench.tui.dialogs import Confirm
from spbench.tui.suites.case_rows import EntryPosition
from spbench.tui.suites.form.case_form import CaseForm
from spbench.tui.suites.form.preview import WriteDraft
from spbench.tui.suites.form.suite_form import SuiteForm
from spbench.tui.suites.text_pane import TextPane
from spbench_core.catalog import BENCHMARKS
from spbench_core.catalog.benchmark import Benchmark


class CaseComposer:
    """Dialogs that change the head or the cases of the open suite, called in workers.

    Args:
        pane: The pane with the text.
        show_error: Shows an error message.
        find_selected: Returns the entry of the selected case, or None.
    """

    def __init__(
        self,
        pane: TextPane,
        show_error: Callable[[str], None],
        find_selected: Callable[[], EntryPosition | None],
    ) -> None:
        self._pane = pane
        self._show_error = show_error
        self._find_selected = find_selected

    async def compose(self) -> None:
        """Ask for a benchmark, show its form, and insert the case below the cursor's."""
        document = self._pane.document
        editor = self._pane.editor
        assert document is not None  # the page opens one first
        text = editor.text
        line = editor.cursor_line
        suite = document.path.stem

        def write(draft: CaseDraft) -> EditedText:
            return insert_case(text, draft, line, suite)

        try:
            names = [str(case.data.get("name")) for case in Outline(text).items]
        except UsageError as error:
            self._show_error(str(error))
            return
        choices = [Choice(benchmark.name, benchmark.summary) for benchmark in BENCHMARKS.values()]
        chooser = Chooser("Benchmark of the new case", choices)
        benchmark_name = await self._pane.app.push_screen_wait(chooser)
        if benchmark_name is not None:
            name = _make_unique(benchmark_name.rpartition(".")[2], names)
            benchmark = BENCHMARKS[benchmark_name]
            draft = _make_draft(name, benchmark, read_defaults(text))
            await self._show_form(benchmark, draft, write, "Insert", "added")

    async def edit(self) -> None:
        """Edit the case at the cursor in its form."""
        text = self._pane.editor.text
        try:
            index = self._find_entry()
        except SpbenchError as error:
            self._show_error(str(error))
            return
        try:
            draft = read_draft(text, index)
            benchmark = _find_benchmark(draft)
        except SpbenchError as error:
            self._show_error(str(error))
            self._pane.show_problem(Outline(text).spans[index])
            return

        def write(changed: CaseDraft) -> EditedText:
            return replace_case(text, index, changed)

        await self._show_form(benchmark, draft, write, "Change", "changed")

    async def edit_suite(self) -> None:
        """Edit name, description, defaults and launch settings of the suite in a form."""
        document = self._pane.document
        assert document is not None  # the page opens one first
        text = self._pane.editor.text
        try:
            draft = read_head(text)
        except SpbenchError as error:
            self._show_error(str(error))
            return

        def write(changed: HeadDraft) -> EditedText:
            return replace_head(text, changed)

        benchmarks = list_suite_benchmarks(text)
        forecast = self._pane.forecast_suite
        form = SuiteForm(draft, benchmarks, write, document.path, forecast)
        edited = await self._pane.app.push_screen_wait(form)
        if edited is not None:
            self._pane.editor.replace_text(edited.text, edited.line, "suite defaults changed")

    async def _show_form(
        self,
        benchmark: Benchmark,
        draft: CaseDraft,
        write: WriteDraft,
        submit_label: str,
        change: str,
    ) -> None:
        document = self._pane.document
        assert document is not None  # the case is in it
        form = CaseForm(
            benchmark,
            draft,
            write,
            document.path,
            submit_label,
            self._pane.forecast_suite,
            read_defaults(self._pane.editor.text),
        )
        edited = await self._pane.app.push_screen_wait(form)
        if edited is not None:
            name = Outline(edited.text).find_name(find_entry(edited.text, edited.line) or 0)
            self._pane.editor.replace_text(edited.text, edited.line, f"case {name} {change}")

    async def remove(self) -> None:
        """Remove the case at the cursor after a question."""
        parsed = await self._pane.parse()
        # The text is read after the parsing, in which the user may type.
        editor = self._pane.editor
        text = editor.text
        try:
            index = self._find_entry()
            edited = remove_case(text, index)
        except SpbenchError as error:
            self._show_error(str(error))
            return
        outline = Outline(text)
        name = outline.find_name(index)
        case_count = parsed.count_cases(outline.spans[index]) if parsed.text == text else 0
        cases = f" and its {case_count:,} cases" if case_count > 1 else ""
        question = f"Delete {name}{cases}? (Ctrl+Z undoes it.)"
        if await self._pane.app.push_screen_wait(Confirm(question, "Delete", "Keep")):
            editor.replace_text(edited.text, edited.line, f"case {name} deleted")

    def _find_entry(self) -> int:
        """Return the index of the entry at the cursor, or of the selected case.

        The cursor of the text counts if the text has the focus, or if no case is selected: an
        undone change leaves it at another case than the selected one.

        Raises:
            UsageError: There is no case, or the text is invalid YAML.
        """
        editor = self._pane.editor
        outline = Outline(editor.text)  # raises UsageError for invalid YAML
        if not outline.items:
            raise UsageError("the suite has no cases yet: F4 adds one")
        entries = [self._find_selected_entry(outline), outline.find_entry(editor.cursor_line)]
        if self._pane.screen.focused is editor:
            entries.reverse()
        index = next((entry for entry in entries if entry is not None), None)
        if index is None:
            raise UsageError(
                "no case is at the cursor: move it to a case, or select a case in the table"
            )
        return index

    def _find_selected_entry(self, outline: Outline) -> int | None:
        """Find the entry of the selected case in the text, which may have changed."""
        selected = self._find_selected()
        if selected is None:
            return None
        indices = [i for i in range(len(outline.items)) if outline.find_name(i) == selected.name]
        at_line = outline.find_entry(selected.line)
        return at_line if at_line in indices else next(iter(indices), None)


def _make_unique(name: str, names: Iterable[str]) -> str:
    """Return the name, with a number appended if a case has it already."""
    used = set(names)
    unique = name
    number = 1
    while unique in used:
        number += 1
        unique = f"{name}-{number}"
    return unique


def _make_draft(name: str, benchmark: Benchmark, defaults: Any) -> CaseDraft:
    """Return a new case with the starting values that it does not inherit."""
    draft = CaseDraft(name, benchmark.name)
    inherited = inherit_defaults(draft, defaults).params
    inherited_params = [benchmark.find_param(key) for key in inherited]
    params = {
        key: value
        for key, value in benchmark.starting_params.items()
        if benchmark.find_param(key) not in inherited_params
    }
    return replace(draft, params=params)


def _find_benchmark(draft: CaseDraft) -> Benchmark:
    benchmark = BENCHMARKS.get(draft.benchmark)
    if benchmark is None:
        hint = did_you_mean(draft.benchmark, BENCHMARKS)
        raise UsageError(f"unknown benchmark {draft.benchmark!r}{hint}; fix its name in the text")
    return benchmark
