"""The suites and hostfiles that come with spbench: found by name, and copied into a folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from spbench.errors import FailedRunError, UsageError, did_you_mean
from spbench.safe_files import make_folders, open_replacement

PREFIX = "shipped:"
_PACKAGE = Path(__file__).parents[1]


def find_shipped_folder() -> Path:
    """Return the folder that holds ``suites`` and ``hostfiles``: in a wheel it is ours."""
    packaged = _PACKAGE / "shipped"
    return packaged if packaged.is_dir() else Path(__file__).parents[3]


def list_shipped_suites() -> dict[str, Path]:
    """Return the suites by name."""
    return {path.stem: path for path in sorted((find_shipped_folder() / "suites").glob("*.yaml"))}


def is_shipped_name(path: Path) -> bool:
    """Whether a path is ``shipped:NAME``, which is no file's."""
    return str(path).startswith(PREFIX)


def resolve_suite_path(folder: Path, suite: Path) -> Path:
    """Return a suite's path as it is meant in a folder; ``shipped:NAME`` is so in each."""
    return suite if is_shipped_name(suite) else folder / suite


def locate_suite_file(path: Path) -> Path:
    """Return where the file of ``shipped:NAME`` is or was; any other path as it is.

    A recorded run may name a suite that only an earlier version had.
    """
    if not is_shipped_name(path):
        return path
    return find_shipped_folder() / "suites" / f"{str(path).removeprefix(PREFIX)}.yaml"


def find_suite_file(path: Path) -> Path:
    """Return the file of ``shipped:NAME``; any other path as it is.

    Raises:
        UsageError: No suite of that name comes with spbench.
    """
    if not is_shipped_name(path):
        return path
    known = list_shipped_suites()
    name = str(path).removeprefix(PREFIX)
    if name not in known:
        near = did_you_mean(name, known)
        raise UsageError(
            f"no suite {name!r} comes with spbench{near}; there are {', '.join(known)}"
        )
    return known[name]


def is_shipped(path: Path) -> bool:
    """Whether a file or folder is one of the shipped ones, or of the demo."""
    real = path.resolve()
    return is_installed(path) or any(real.is_relative_to(place.resolve()) for place in _places())


def is_installed(path: Path) -> bool:
    """Whether a file is part of the installed package, where nobody edits it."""
    return path.resolve().is_relative_to(_PACKAGE.resolve())


def needs_copy(path: Path, folder: Path) -> bool:
    """Whether a file comes with spbench and is not a folder's own, so that a copy is edited.

    A virtual environment in the folder makes no file that is installed there one of its own.
    """
    inside = path.resolve().is_relative_to(folder.resolve())
    return is_installed(path) or (is_shipped(path) and not inside)


def _places() -> Iterator[Path]:
    folder = find_shipped_folder()
    yield from (folder / "suites", folder / "hostfiles")


@dataclass(frozen=True, slots=True)
class CopyResult:
    """The files that were written into a folder, and those that were there and stay."""

    written: tuple[Path, ...]
    kept: tuple[Path, ...]


def copy_shipped(folder: Path, *, force: bool = False) -> CopyResult:
    """Write the suites and hostfiles into a folder; a file that is there stays.

    Args:
        folder: The folder; it is made where it is not there.
        force: Write over files that are there.

    Raises:
        FailedRunError: Something cannot be written.
    """
    written = []
    kept = []
    for place in _places():
        for source in sorted(path for path in place.iterdir() if path.is_file()):
            target = folder / place.name / source.name
            if os.path.lexists(target) and not force:  # a link to nowhere stays, too
                kept.append(target)
                continue
            _write(target, source.read_bytes())
            written.append(target)
    return CopyResult(tuple(written), tuple(kept))


def _write(target: Path, content: bytes) -> None:
    try:
        make_folders(target.parent)
        with open_replacement(target, 0o666) as file:
            file.write(content)
    except OSError as error:
        raise FailedRunError(f"cannot write {target}: {error.strerror or error}") from None
