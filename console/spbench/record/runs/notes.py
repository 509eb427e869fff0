"""The note and tags of a run, by its user or a failed baseline."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass

from spbench.errors import UsageError
from spbench.record.runs.files import unwritable_error
from spbench.record.runs.folder import RunFolder

FILE = "note.json"
MAX_TEXT = 500
"""The largest number of characters of a note."""
_TAG = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")


@dataclass(frozen=True, slots=True)
class RunNote:
    """A user's note on a run: a line of text, and tags in alphabetical order."""

    text: str = ""
    tags: tuple[str, ...] = ()

    def __str__(self) -> str:
        """``#fast #rack2 new driver``; empty without a note."""
        return " ".join([*(f"#{tag}" for tag in self.tags), *filter(None, [self.text])])


NO_NOTE = RunNote()


def parse_note(line: str) -> RunNote:
    """Return the note in a line with tags such as ``#tag``.

    Raises:
        UsageError: The text is too long or not printable.
    """
    terms = line.split()
    tags = [term[1:] for term in terms if term.startswith("#") and _TAG.fullmatch(term[1:])]
    text = " ".join(term for term in terms if not (term.startswith("#") and term[1:] in tags))
    if len(text) > MAX_TEXT:
        raise UsageError(f"a note has at most {MAX_TEXT} characters, and this has {len(text)}")
    if not text.isprintable():
        raise UsageError("a note is a line of text, and this has control characters")
    return RunNote(text, _sort_tags(tags))


def check_tag(tag: str) -> str:
    """Return a tag without its ``#``.

    Raises:
        UsageError: It is not a valid tag.
    """
    bare = tag.removeprefix("#")
    if not _TAG.fullmatch(bare):
        use = "at most 40 letters, digits and . _ - with a letter or digit first"
        raise UsageError(f"{tag!r} cannot be a tag: use {use}")
    return bare


def change_tags(note: RunNote, add: Iterable[str], remove: Iterable[str] = ()) -> RunNote:
    """Return a note with other tags."""
    return RunNote(note.text, _sort_tags({*note.tags, *add} - set(remove)))


def has_note(folder: RunFolder) -> bool:
    """Whether a run has a note."""
    return os.access(f"{folder.path}/{FILE}", os.F_OK)


def read_note(folder: RunFolder) -> RunNote:
    """Return the note of a run; a damaged file counts as no note."""
    content = folder.read_json(FILE)
    text = content.get("note")
    tags = content.get("tags")
    tags = tags if isinstance(tags, list) else []
    valid = [tag for tag in tags if isinstance(tag, str) and _TAG.fullmatch(tag)]
    return RunNote(text[:MAX_TEXT] if isinstance(text, str) else "", _sort_tags(valid))


def write_note(folder: RunFolder, note: RunNote) -> None:
    """Write a run's note; an empty one is removed.

    Raises:
        FailedRunError: It cannot be written.
    """
    if note == NO_NOTE:
        try:
            (folder.path / FILE).unlink(missing_ok=True)
        except OSError as error:
            raise unwritable_error(folder.path / FILE, error) from None
        return
    folder.write_json(FILE, {"note": note.text, "tags": list(note.tags)})


def _sort_tags(tags: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(tags)))
