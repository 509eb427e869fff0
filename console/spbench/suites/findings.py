"""Collects every error of a suite file, each with its place, and raises them at once."""

from __future__ import annotations

from collections.abc import Sequence

from spbench.errors import Diagnostic, SuiteError
from spbench.suites.yaml_nodes import Document, KeyPath, Mark, NodeMarks


class Findings:
    """The errors found so far in one suite file.

    A value that came from ``--set`` has no place of its own: its errors stand where the value
    that it replaces stands, name the option, and are told once however many cases share it.
    """

    def __init__(self, file: str, document: Document) -> None:
        self._file = file
        self._document = document
        self._count = 0
        self._found: dict[tuple[str, ...] | Diagnostic, Diagnostic] = {}
        self._options: dict[KeyPath, str] = {}
        self._moved: dict[KeyPath, Sequence[int]] = {}
        self._unreadable = {problem.mark for problem in document.problems}
        for mark, message in document.problems:
            self._add(mark, message)

    @property
    def count(self) -> int:
        """Number of errors found so far, those that are told only once included."""
        return self._count

    @property
    def diagnostics(self) -> list[Diagnostic]:
        """The errors found so far, each once."""
        return list(self._found.values())

    def mark_option(self, path: KeyPath, option: str) -> None:
        """Remember that the value at a path came from a command-line option."""
        self._options[path] = option

    def record_kept_items(self, path: KeyPath, kept: Sequence[int]) -> None:
        """Remember that of the list at a path only the items ``kept`` are left, by index."""
        before = self._moved.get(path)
        self._moved[path] = [before[at] for at in kept] if before is not None else kept

    def list_options(self, path: KeyPath) -> list[str]:
        """Return the options that gave the values at or below a path, each once."""
        below = (o for p, o in self._options.items() if p[: len(path)] == path)
        return list(dict.fromkeys(below))

    def find_option(self, path: KeyPath) -> str | None:
        """Return the option that gave the value at a path, None where the file did."""
        return next((o for p, o in self._options.items() if path[: len(p)] == p), None)

    def has_value(self, path: KeyPath) -> bool:
        """Return whether the file has a value at a path."""
        return self._document.root.find_node(path) is not None

    def find_line(self, path: KeyPath) -> int:
        """Return the line on which the value at a path begins."""
        return self._place(path).value.line

    def add(self, mark: Mark, message: str) -> None:
        """Add an error at a place; after an error in the YAML there, it only counts.

        Such a value is read as empty, so a second error would be about a value that nobody wrote.
        """
        if mark in self._unreadable:
            self._count += 1
        else:
            self._add(mark, message)

    def _add(self, mark: Mark, message: str) -> None:
        self._count += 1
        diagnostic = Diagnostic(self._file, mark.line, mark.column, message)
        self._found.setdefault(diagnostic, diagnostic)

    def add_at_key(self, path: KeyPath, message: str) -> None:
        """Add an error at the key (or the list's item) of a path."""
        self._add_or_mark(path, self._place(path).key, message)

    def add_at_value(self, path: KeyPath, message: str) -> None:
        """Add an error at the value of a path."""
        self._add_or_mark(path, self._place(path).value, message)

    def add_in_text(self, path: KeyPath, at: int, message: str) -> None:
        """Add an error at a character of the text at a path, counted from 0.

        Where the file has the text in another form (with escapes, in several lines, from an
        option), its place is the text's beginning, and the message says which character.
        """
        mark = self._place(path).value
        inside = self._in_text(path, at)
        if at and inside is None:
            message = f"{message} (at its character {at + 1})"
        self._add_or_mark(path, inside or mark, message)

    def _in_text(self, path: KeyPath, at: int) -> Mark | None:
        node = self._document.root.find_node(self._standing(path))
        if node is None or node.text is None or self.find_option(path) is not None:
            return None
        line, column = node.mark
        quotes = node.end.column - column - len(node.text)
        verbatim = node.end.line == line and quotes in (0, 2)
        return Mark(line, column + at + quotes // 2) if verbatim else None

    def _place(self, path: KeyPath) -> NodeMarks:
        """Return where a path of the data stands in the file."""
        return self._document.find_marks(self._standing(path))

    def _standing(self, path: KeyPath) -> KeyPath:
        """Return a path of the data as the file has it, where lists may be longer."""
        for length in range(1, len(path)):
            index = path[length]
            if isinstance(index, int) and path[:length] in self._moved:
                path = (*path[:length], self._moved[path[:length]][index], *path[length + 1 :])
        return path

    def _add_or_mark(self, path: KeyPath, mark: Mark, message: str) -> None:
        option = self.find_option(path)
        if option is None:
            self.add(mark, message)
        else:
            self._count += 1
            told = Diagnostic(self._file, mark.line, mark.column, f"{option}: {message}")
            self._found.setdefault((option, message), told)

    def raise_if_any(self) -> None:
        """Raise all errors found.

        Raises:
            SuiteError: There are some.
        """
        if self._found:
            raise SuiteError(self.diagnostics)
