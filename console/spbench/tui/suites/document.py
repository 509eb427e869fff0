"""The open suite file, and whether it has changed on disk."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from spbench.errors import UsageError
from spbench.record.runs.files import write_file

UNSAVED = "●"
DEMO = "demo"
"""The folder of the demo run, and the name of its suite."""


@dataclass(frozen=True, slots=True)
class SuiteDocument:
    """A suite file as it was last read or written.

    Attributes:
        path: The file.
        stored: The text on disk; None if there is no file.
        proposed: The initial text if there is no file. Default: the head of a suite.
        source: The shipped suite if it is a copy of one that has no file.
    """

    path: Path
    stored: str | None
    proposed: str | None = None
    source: Path | None = None

    @property
    def text(self) -> str:
        """The text to edit: that of the file, or the head of a new suite."""
        if self.stored is not None:
            return self.stored
        return make_suite_text(self.path) if self.proposed is None else self.proposed

    @property
    def is_unsaved_copy(self) -> bool:
        """Whether the suite is a copy of a shipped one that has no file."""
        return self.stored is None and self.proposed is not None

    @property
    def is_new(self) -> bool:
        """Whether the suite was started from scratch and has no file."""
        return self.stored is None and self.proposed is None

    def format_title(self, has_changes: bool) -> str:
        """Return the name of the file, and whether it or its text is not saved."""
        if has_changes:
            return f"{UNSAVED} {self.path.name} not saved (Ctrl+S)"
        if self.is_unsaved_copy:
            return f"a copy: F5 or Ctrl+S writes {self.path.parent.name}/{self.path.name}"
        return self.path.name

    def find_listed_path(self, has_changes: bool) -> Path:
        """Return its path in the list of files: an unchanged copy is that of its source."""
        return self.path if has_changes or self.source is None else self.source

    def is_stale(self) -> bool:
        """Return whether another program has changed, created or removed the file."""
        try:
            return _read_text(self.path) != self.stored
        except UsageError:
            return self.stored is not None or self.path.exists()

    def is_current(self, path: Path) -> bool:
        """Return whether this is the file of a path or a copy of it, unchanged on disk."""
        paths = [file.resolve() for file in (self.path, self.source) if file is not None]
        return path.resolve() in paths and not self.is_stale()

    def save(self, text: str) -> SuiteDocument:
        """Write the text into the file; links and permissions of the file stay.

        Raises:
            FailedRunError: The file cannot be written.
        """
        write_file(self.path.resolve(), text)
        return SuiteDocument(self.path, text)


def open_document(path: Path) -> SuiteDocument:
    """Return a file to edit.

    Raises:
        UsageError: The file cannot be read, or is not text.
    """
    return SuiteDocument(path, _read_text(path))


def make_document(path: Path, proposed: str | None = None) -> SuiteDocument:
    """Return a suite without a file, with an initial text or only its head.

    Raises:
        UsageError: The file exists.
    """
    if path.exists():
        raise UsageError(f"{path} exists already: open it, or choose another name")
    return SuiteDocument(path, None, proposed)


def copy_document(path: Path, folder: Path) -> SuiteDocument:
    """Return an unsaved copy of a shipped suite in a folder.

    Raises:
        UsageError: The suite cannot be read, or the file exists.
    """
    return replace(make_document(locate_copy(path, folder), _read_text(path)), source=path)


def locate_copy(path: Path, folder: Path) -> Path:
    """Return the file of a folder into which a shipped suite is copied."""
    name = f"{DEMO}.yaml" if path.parent.name == DEMO else path.name
    return folder / "suites" / name


def make_suite_text(path: Path) -> str:
    """Return the head of a suite, without cases."""
    from spbench.suites.case import SCHEMA
    from spbench.suites.edit.yaml_format import format_scalar

    name = "".join(letter if letter.isalnum() else "-" for letter in path.stem).strip("-")
    name = name if name.isascii() and name else "suite"
    return f'schema: {SCHEMA}\nname: {format_scalar(name)}\ndescription: ""\ncases:\n'


def _read_text(path: Path) -> str:
    from spbench.suites.loader import read_suite_file  # takes 0.1 s, so not with the page

    return read_suite_file(path)
