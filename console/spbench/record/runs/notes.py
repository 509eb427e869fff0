"""A run's note and tags: ``note.json`` in its folder, of its user or of a failed baseline."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass

from spbench.errors import UsageError
from spbench.record.runs.event_log import unwritable_error
from spbench.record.runs.folder import RunFolder

FILE = "note.json"
MOST_TEXT = 500
"""Characters of a note."""
_TAG = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")


@dataclass(frozen=True, slots=True)
class RunNote:
    """What somebody wrote of a run: a line of text, and tags in the order of the alphabet."""

    text: str = ""
    tags: tuple[str, ...] = ()

    def __str__(self) -> str:
        """``#fast #rack2 new driver``; nothing where nothing was written."""
        return " ".join([*(f"#{tag}" for tag in self.tags), *filter(None, [self.text])])


NO_NOTE = RunNote()


def parse_note(line: str) -> RunNote:
    """Return the note of a line in which tags stand as ``#tag``.

    Raises:
        UsageError: The text is too long, or cannot be printed.
    """
    words = line.split()
    tags = [word[1:] for word in words if word.startswith("#") and _TAG.fullmatch(word[1:])]
    text = " ".join(word for word in words if not (word.startswith("#") and word[1:] in tags))
    if len(text) > MOST_TEXT:
        raise UsageError(f"a note has at most {MOST_TEXT} characters, and this has {len(text)}")
    if not text.isprintable():
        raise UsageError("a note is a line of text, and this has control characters")
    return RunNote(text, _sorted(tags))


def check_tag(tag: str) -> str:
    """Return a tag.

    Raises:
        UsageError: It is none.
    """
    bare = tag.removeprefix("#")
    if not _TAG.fullmatch(bare):
        use = "at most 40 letters, digits and . _ - with a letter or digit first"
        raise UsageError(f"{tag!r} cannot be a tag: use {use}")
    return bare


def change_tags(note: RunNote, add: Iterable[str], remove: Iterable[str] = ()) -> RunNote:
    """Return a note with other tags."""
    return RunNote(note.text, _sorted({*note.tags, *add} - set(remove)))


def has_note(folder: RunFolder) -> bool:
    """Whether something was written of a run."""
    return os.access(f"{folder.path}/{FILE}", os.F_OK)


def read_note(folder: RunFolder) -> RunNote:
    """Return the note of a run; a damaged file counts as none."""
    content = folder.read_json(FILE)
    text = content.get("note")
    tags = content.get("tags")
    tags = tags if isinstance(tags, list) else []
    known = [tag for tag in tags if isinstance(tag, str) and _TAG.fullmatch(tag)]
    return RunNote(text[:MOST_TEXT] if isinstance(text, str) else "", _sorted(known))


def write_note(folder: RunFolder, note: RunNote) -> None:
    """Keep a run's note; an empty one is removed.

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


def _sorted(tags: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(tags)))
