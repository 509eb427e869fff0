"""The entries of ``cases:`` that the loader rejects, with their errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spbench.errors import UsageError

if TYPE_CHECKING:
    from spbench.suites.edit.outline import EntryLines, Outline
    from spbench.suites.loader import CheckedText


@dataclass(frozen=True, slots=True)
class RejectedEntry:
    """An entry with errors.

    Attributes:
        id: A key that no case and no other entry has.
        name: Its name, or its number if it has none.
        benchmark: The text of its benchmark; empty without one.
        ranks: The text of its key ``np``; empty without one.
        span: Its lines.
        errors: Messages on its errors.
        fits_form: Whether the form of a case can hold it.
    """

    id: str
    name: str
    benchmark: str
    ranks: str
    span: EntryLines
    errors: Sequence[str]
    fits_form: bool

    @property
    def line(self) -> int:
        """The line of its dash."""
        return self.span.first


def list_rejected_entries(checked_text: CheckedText, outline: Outline) -> Sequence[RejectedEntry]:
    """Return the entries with errors, in the order of the text."""
    case_diagnostics = {error.diagnostic for error in checked_text.case_errors}
    errors_by_index: dict[int, list[str]] = {}
    for error in checked_text.case_errors:
        errors_by_index.setdefault(error.index, []).append(error.message)
    for diagnostic in checked_text.diagnostics:
        index = outline.find_entry(diagnostic.line)
        if index is not None and diagnostic not in case_diagnostics:
            errors_by_index.setdefault(index, []).append(diagnostic.message)
    used_ids = {case.id for case in checked_text.cases}
    entries = []
    for index, errors in sorted(errors_by_index.items()):
        if index < len(outline.items):
            entry = _make_entry(outline, index, errors, used_ids)
            used_ids.add(entry.id)
            entries.append(entry)
    return entries


def _make_entry(
    outline: Outline, index: int, errors: Sequence[str], used_ids: set[str]
) -> RejectedEntry:
    span = outline.spans[index]
    data = outline.items[index].data
    name = outline.find_name(index)
    id = name if name not in used_ids else f"{name} on line {span.first}"
    ranks = _read_text(data, "np")
    benchmark = _read_text(data, "benchmark")
    fits_form = _fits_form(outline, index)
    return RejectedEntry(id, name, benchmark, ranks, span, tuple(errors), fits_form)


def _fits_form(outline: Outline, index: int) -> bool:
    """Return whether the form of a case can hold an entry."""
    # Importing both takes long, and most suites have no errors.
    from spbench.suites.edit.compose import read_entry
    from spbench_core.catalog import BENCHMARKS

    try:
        draft = read_entry(outline, index)
    except UsageError:
        return False
    return draft.benchmark in BENCHMARKS


def _read_text(data: Any, key: str) -> str:
    value = data.get(key) if isinstance(data, dict) else None
    return str(value) if isinstance(value, str | int) else ""
