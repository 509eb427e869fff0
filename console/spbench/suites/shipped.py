"""The suites and hostfiles that come with spbench, and copies of them."""

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
    """Return the folder with ``suites`` and ``hostfiles``."""
    packaged = _PACKAGE / "shipped"
    return packaged if packaged.is_dir() else Path(__file__).parents[3]


def list_shipped_suites() -> dict[str, Path]:
    """Return the paths of the shipped suites by name."""
    return {path.stem: path for path in sorted((find_shipped_folder() / "suites").glob("*.yaml"))}


def is_shipped_name(path: Path) -> bool:
    """Return whether a path is ``shipped:NAME``."""
    return str(path).startswith(PREFIX)


def resolve_suite_path(folder: Path, suite: Path) -> Path:
    """Return the path of a suite relative to a folder; ``shipped:NAME`` is unchanged."""
    return suite if is_shipped_name(suite) else folder / suite


def resolve_shipped_path(path: Path) -> Path:
    """Return the path of ``shipped:NAME``; other paths are unchanged.

    The file may not exist: a recorded run may name a suite that only an earlier version had.
    """
    if not is_shipped_name(path):
        return path
    return find_shipped_folder() / "suites" / f"{str(path).removeprefix(PREFIX)}.yaml"


def require_suite_file(path: Path) -> Path:
    """Return the existing file for ``shipped:NAME``, or the path itself.

    Raises:
        UsageError: No suite of that name comes with spbench.
    """
    if not is_shipped_name(path):
        return path
    suites = list_shipped_suites()
    name = str(path).removeprefix(PREFIX)
    if name not in suites:
        hint = did_you_mean(name, suites)
        raise UsageError(
            f"no suite {name!r} comes with spbench{hint}; there are {', '.join(suites)}"
        )
    return suites[name]


def is_shipped(path: Path) -> bool:
    """Return whether a file or folder comes with spbench, also as a part of the demo."""
    real = path.resolve()
    folders = _list_folders()
    return is_installed(path) or any(real.is_relative_to(folder.resolve()) for folder in folders)


def is_installed(path: Path) -> bool:
    """Return whether a file is part of the installed package, which users do not edit."""
    return path.resolve().is_relative_to(_PACKAGE.resolve())


def needs_copy(path: Path, folder: Path) -> bool:
    """Return whether a file comes with spbench and is not in a folder.

    Files in a virtual environment in the folder count as not being in the folder.
    """
    inside = path.resolve().is_relative_to(folder.resolve())
    return is_installed(path) or (is_shipped(path) and not inside)


def _list_folders() -> Iterator[Path]:
    folder = find_shipped_folder()
    yield from (folder / "suites", folder / "hostfiles")


@dataclass(frozen=True, slots=True)
class CopyResult:
    """The files that were copied into a folder, and existing ones that were kept."""

    copied: tuple[Path, ...]
    existing: tuple[Path, ...]


def copy_shipped(folder: Path, *, force: bool = False) -> CopyResult:
    """Copy the suites and hostfiles into a folder; existing files are kept.

    Args:
        folder: The folder; it is created if it does not exist.
        force: Overwrite existing files.

    Raises:
        FailedRunError: A file cannot be written.
    """
    source_by_target = _find_sources(folder)
    existing_files = [] if force else list(filter(os.path.lexists, source_by_target))
    new_files = [target for target in source_by_target if target not in existing_files]
    for target in new_files:
        _write(target, source_by_target[target].read_bytes())
    return CopyResult(tuple(new_files), tuple(existing_files))


def count_missing(folder: Path) -> int:
    """Return the number of files that `copy_shipped` would write into a folder."""
    return sum(not os.path.lexists(target) for target in _find_sources(folder))


def _find_sources(folder: Path) -> dict[Path, Path]:
    """Return the files that come with spbench, by their copies in a folder."""
    return {
        folder / shipped.name / source.name: source
        for shipped in _list_folders()
        for source in sorted(path for path in shipped.iterdir() if path.is_file())
    }


def _write(target: Path, content: bytes) -> None:
    try:
        make_folders(target.parent)
        with open_replacement(target, 0o666) as file:
            file.write(content)
    except OSError as error:
        raise FailedRunError(f"cannot write {target}: {error.strerror or error}") from None
