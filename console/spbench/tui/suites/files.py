"""The suite files that a user may mean: found by how they begin, counted by the loader."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from spbench.errors import UsageError
from spbench.suites.edit.check import check_text
from spbench.suites.loader import read_suite_file
from spbench.suites.shipped import list_shipped_suites

MAX_FILES = 500
"""How many suites are listed of one folder."""
_HEAD = 4096
_BEGINS = re.compile(rb"^\s*schema\s*:\s*['\"]?spbench\.suite/", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class FileCheck:
    """The loader's result for a file: the number of its cases, or of its errors."""

    cases: int
    errors: int


def find_suites(folder: Path, opened: Path | None = None) -> dict[Path, tuple[Path, ...]]:
    """Return the suites by their folder.

    Args:
        folder: Where the console was opened: its own suites, and those below its ``suites``.
        opened: A suite that is open; it and its neighbours are listed too.
    """
    places = [*folder.glob("suites/**/*.y*ml"), *folder.glob("*.y*ml")]
    if opened is not None:
        places += [opened, *opened.parent.glob("*.y*ml")]
    found: dict[Path, list[Path]] = {}
    for path in _known(places, opened):
        found.setdefault(path.parent, []).append(path)
    return {place: tuple(sorted(paths)[:MAX_FILES]) for place, paths in found.items()}


def list_files(folder: Path, opened: Path | None = None) -> dict[Path, tuple[Path, ...]]:
    """Return what is listed: `suite_files`, and while none is written the shipped ones."""
    found = find_suites(folder, opened)
    shipped = tuple(list_shipped_suites().values())
    if not shipped or any(path.exists() for files in found.values() for path in files):
        return found
    return {**found, shipped[0].parent: shipped}


def find_same_file(paths: Iterable[Path], opened: Path | None) -> Path | None:
    """Return which of the paths names the file that is open, however that was named."""
    real = opened.resolve() if opened else None
    return next((path for path in paths if path.resolve() == real), None)


def _known(paths: Iterable[Path], opened: Path | None) -> Iterator[Path]:
    """Yield those that begin as suites, each file once however it is named."""
    told: set[Path] = set()
    for path in paths:
        real = path.resolve()
        if real not in told and (path == opened or _begins_as_suite(path)):
            told.add(real)
            yield path


def _begins_as_suite(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return _BEGINS.search(file.read(_HEAD)) is not None
    except OSError:
        return False


def check_file(path: Path) -> FileCheck:
    """Return what the loader says of a file; one that cannot be read has one error."""
    try:
        examined = check_text(read_suite_file(path), path)
    except UsageError:
        return FileCheck(0, 1)
    cases = len(examined.suite.cases) if examined.suite else 0
    return FileCheck(cases, len(examined.diagnostics))
