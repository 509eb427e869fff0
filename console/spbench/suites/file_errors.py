"""Errors of a file, collected with their positions and raised together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spbench.errors import Diagnostic, SuiteError
from spbench.suites.yaml_nodes import Document, KeyPath, Mark, NodeMarks


@dataclass(frozen=True, slots=True)
class CaseError:
    """An error of an entry of ``cases:``.

    Attributes:
        path: The path of the value to change, such as ``("cases", 0, "params", "halo_len")``.
        default_path: The path of the default if the value is inherited; otherwise None.
        message: The message, without the name of the case.
        diagnostic: The error with its position in the file.
    """

    path: KeyPath
    default_path: KeyPath | None
    message: str
    diagnostic: Diagnostic

    @property
    def index(self) -> int:
        """The index of the entry, from 0."""
        return int(self.path[1])


class FileErrors:
    """The errors found so far in one file.

    A value from ``--set`` is not in the file. Its errors have the position of the value that it
    replaces and name the option. Each is reported once, independently of the number of cases.

    A value that a case inherits is not in the case. Its errors have the position of the default and
    name one case that inherits it.
    """

    def __init__(self, file: str, document: Document) -> None:
        self._file = file
        self._document = document
        self._count = 0
        self._diagnostics: dict[tuple[object, ...] | Diagnostic, Diagnostic] = {}
        self._options: dict[KeyPath, str] = {}
        self._kept_items: dict[KeyPath, Sequence[int]] = {}
        self._defaults: dict[KeyPath, KeyPath] = {}
        self._case_errors: dict[CaseError, None] = {}
        self._unreadable = {problem.mark for problem in document.problems}
        for mark, message in document.problems:
            self._add(mark, message)

    @property
    def count(self) -> int:
        """The number of errors so far, including those that are reported only once."""
        return self._count

    @property
    def diagnostics(self) -> list[Diagnostic]:
        """The errors so far, each once."""
        return list(self._diagnostics.values())

    @property
    def case_errors(self) -> Sequence[CaseError]:
        """The errors of cases; a wrong default has one for each case that inherits it."""
        return tuple(self._case_errors)

    def mark_option(self, path: KeyPath, option: str) -> None:
        """Record that the value at a path came from a command-line option."""
        self._options[path] = option

    def record_inherited(self, path: KeyPath, default_path: KeyPath) -> None:
        """Record that the value at a path of a case is the default at another path."""
        self._defaults[path] = default_path

    def find_default(self, path: KeyPath) -> KeyPath | None:
        """Return the path of the default of an inherited value; otherwise None."""
        for length in range(len(path), 0, -1):
            if path[:length] in self._defaults:
                return (*self._defaults[path[:length]], *path[length:])
        return None

    def record_kept_items(self, path: KeyPath, indices: Sequence[int]) -> None:
        """Record the indices of the remaining items of the list at a path."""
        before = self._kept_items.get(path)
        if before is not None:
            indices = [before[index] for index in indices]
        self._kept_items[path] = indices

    def list_options(self, path: KeyPath) -> list[str]:
        """Return the options that set values at or below a path, each once."""
        options = (
            option
            for option_path, option in self._options.items()
            if option_path[: len(path)] == path
        )
        return list(dict.fromkeys(options))

    def find_option(self, path: KeyPath) -> str | None:
        """Return the option that set the value at a path; None: it is from the file."""
        options = (
            option
            for option_path, option in self._options.items()
            if path[: len(option_path)] == option_path
        )
        return next(options, None)

    def has_value(self, path: KeyPath) -> bool:
        """Return whether the file has a value at a path."""
        return self._document.root.find_node(self._find_file_path(path)) is not None

    def find_line(self, path: KeyPath) -> int:
        """Return the line on which the value at a path begins."""
        return self._find_marks(path).value.line

    def add(self, mark: Mark, message: str) -> None:
        """Add an error at a position; if there is a YAML error already, only count it.

        An invalid YAML value is read as empty, so that a second error would be misleading.
        """
        self._add_unless_unreadable(mark, message)

    def _add_unless_unreadable(self, mark: Mark, message: str) -> Diagnostic | None:
        if mark in self._unreadable:
            self._count += 1
            return None
        return self._add(mark, message)

    def _add(self, mark: Mark, message: str) -> Diagnostic:
        self._count += 1
        diagnostic = Diagnostic(self._file, mark.line, mark.column, message)
        return self._diagnostics.setdefault(diagnostic, diagnostic)

    def add_at_key(self, path: KeyPath, message: str) -> None:
        """Add an error at the key (or the list's item) of a path."""
        self._add_at_mark(path, self._find_marks(path).key, message)

    def add_at_value(self, path: KeyPath, message: str, cause: KeyPath | None = None) -> None:
        """Add an error at the value of a path; ``cause`` is the path to change."""
        self._add_at_mark(path, self._find_marks(path).value, message, cause)

    def add_in_text(self, path: KeyPath, index: int, message: str) -> None:
        """Add an error at a character (from 0) of the text at a path.

        If the file has the text in another form (with escapes, in several lines, from an option),
        the position is the start of the text, and the message contains the character's number.
        """
        start = self._find_marks(path).value
        mark = self._find_character(path, index)
        if index and mark is None:
            message = f"{message} (at its character {index + 1})"
        self._add_at_mark(path, mark or start, message)

    def _find_character(self, path: KeyPath, index: int) -> Mark | None:
        """Return the position of a character, or None if the text is in another form."""
        node = self._document.root.find_node(self._find_file_path(path))
        if node is None or node.text is None or self.find_option(path) is not None:
            return None
        line, column = node.mark
        quotes = node.end.column - column - len(node.text)
        verbatim = node.end.line == line and quotes in (0, 2)
        return Mark(line, column + index + quotes // 2) if verbatim else None

    def _find_marks(self, path: KeyPath) -> NodeMarks:
        """Return the positions of a path of the data in the file."""
        return self._document.find_marks(self._find_file_path(path))

    def _find_file_path(self, path: KeyPath) -> KeyPath:
        """Return the path in the file for a path of the data.

        Items of lists may have been removed, and inherited values are those of the defaults.
        """
        for length in range(1, len(path)):
            index = path[length]
            kept_items = self._kept_items.get(path[:length])
            if isinstance(index, int) and kept_items is not None:
                path = (*path[:length], kept_items[index], *path[length + 1 :])
        return self.find_default(path) or path

    def _add_at_mark(
        self, path: KeyPath, mark: Mark, message: str, cause: KeyPath | None = None
    ) -> None:
        option = self.find_option(path)
        inheriting_case = self._find_inheriting_case(path)
        diagnostic: Diagnostic | None
        if option is not None:
            diagnostic = self._add_once((option, message), mark, f"{option}: {message}")
        elif inheriting_case is not None and mark not in self._unreadable:
            text = f"{message} (case {inheriting_case} inherits it)"
            diagnostic = self._add_once((mark, message), mark, text)
        else:
            diagnostic = self._add_unless_unreadable(mark, message)
        is_in_entry = path[:1] == ("cases",) and len(path) > 1
        if diagnostic is not None and is_in_entry:
            error = CaseError(cause or path, self.find_default(path), message, diagnostic)
            self._case_errors[error] = None

    def _add_once(self, key: tuple[object, ...], mark: Mark, message: str) -> Diagnostic:
        self._count += 1
        diagnostic = Diagnostic(self._file, mark.line, mark.column, message)
        return self._diagnostics.setdefault(key, diagnostic)

    def _find_inheriting_case(self, path: KeyPath) -> str | None:
        """Return the name of a case that inherits the value at a path, or None.

        The path is that of a default, or of the value in the case that inherited it.
        """
        if path[:1] == ("defaults",):
            case_paths = (
                case_path
                for case_path, default_path in self._defaults.items()
                if default_path == path[: len(default_path)]
            )
            case_path = next(case_paths, None)
        else:
            case_path = path if self.find_default(path) is not None else None
        if case_path is None:
            return None
        name = self._document.root.find_node((*case_path[:2], "name"))
        return str(name.data) if name is not None else f"on line {self.find_line(case_path[:2])}"

    def raise_if_any(self) -> None:
        """Raise all errors, if there are any.

        Raises:
            SuiteError: There are errors.
        """
        if self._diagnostics:
            raise SuiteError(self.diagnostics)
