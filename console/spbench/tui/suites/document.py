"""The suite file that is open: its text as read, and whether it changed since, here or on disk."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from spbench.errors import UsageError
from spbench.record.runs.folder import write_file
from spbench.suites.case import SCHEMA
from spbench.suites.edit.writing import format_scalar
from spbench.suites.loader import read_suite_file

DEMO = "demo"
"""The folder of the demo's run, and the name of its suite."""


@dataclass(frozen=True, slots=True)
class SuiteDocument:
    """A suite file as it was read or written last.

    Attributes:
        stored: Its text on disk; None where there is no file yet.
        proposed: The text to begin with where there is no file; None: the head of a suite.
    """

    path: Path
    stored: str | None
    proposed: str | None = None

    @property
    def text(self) -> str:
        """The text to edit: the file's, or the head of a new suite."""
        if self.stored is not None:
            return self.stored
        return new_suite_text(self.path) if self.proposed is None else self.proposed

    @property
    def is_new(self) -> bool:
        """Whether there is no file of it, nor another one that it was copied from."""
        return self.stored is None and self.proposed is None

    def is_stale(self) -> bool:
        """Say whether another program has changed, made or removed the file since."""
        try:
            return read_suite_file(self.path) != self.stored
        except UsageError:
            return self.stored is not None or self.path.exists()

    def is_current(self, path: Path) -> bool:
        """Say whether this is the file of that path, and as it is on disk now."""
        return path.resolve() == self.path.resolve() and not self.is_stale()

    def save(self, text: str) -> SuiteDocument:
        """Write the text into the file, through links and with the permissions that it has.

        Raises:
            FailedRunError: It cannot be written.
        """
        write_file(self.path.resolve(), text)
        return SuiteDocument(self.path, text)


def open_document(path: Path) -> SuiteDocument:
    """Return a file to edit.

    Raises:
        UsageError: It cannot be read, or is no text.
    """
    return SuiteDocument(path, read_suite_file(path))


def new_document(path: Path, proposed: str | None = None) -> SuiteDocument:
    """Return a suite that is not written yet, with a text to begin with or its head alone.

    Raises:
        UsageError: The name is no YAML file's, or there is something of that name already.
    """
    if path.suffix not in (".yaml", ".yml"):
        raise UsageError(f"{path} is no name of a suite; end it with .yaml")
    if path.exists():
        raise UsageError(f"{path} is there already; open it, or choose another name")
    return SuiteDocument(path, None, proposed)


def copy_document(path: Path, folder: Path) -> SuiteDocument:
    """Return a suite of spbench's own as one of a folder, which is not written yet.

    Raises:
        UsageError: It cannot be read, or there is one of that name already.
    """
    name = f"{DEMO}.yaml" if path.parent.name == DEMO else path.name
    return new_document(folder / "suites" / name, read_suite_file(path))


def new_suite_text(path: Path) -> str:
    """Return the keys that each suite begins with; its cases are still to be written."""
    name = "".join(letter if letter.isalnum() else "-" for letter in path.stem).strip("-")
    name = name if name.isascii() and name else "suite"
    return f"schema: {SCHEMA}\nname: {format_scalar(name)}\ndescription: ''\ncases:\n"
