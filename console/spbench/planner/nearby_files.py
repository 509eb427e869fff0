"""Profiles and clusters near a folder, recognised by how the files begin."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from operator import itemgetter
from pathlib import Path

from spbench.errors import UsageError
from spbench.suites.pipe_files import expand_user_path

MAX_FILES = 200
"""The most files of a kind that are listed."""
MAX_CANDIDATES = 1000
"""The most files that are read to find their kinds, since all folders are searched."""
_NESTED_FOLDER = "docs/examples"
"""The only folder that is searched below the folders of the folder."""
_ENDINGS = frozenset({".json", ".txt", ".yaml", ".yml"})
_HEAD_BYTES = 4096
_JSON = re.compile(rb'"schema"\s*:\s*"spbench\.profile/')
_TORCHGRAPH = re.compile(rb"^\S+ -- .* -- forward_compute_time=", re.MULTILINE)
_CLUSTER = re.compile(rb"^\s*schema\s*:\s*['\"]?spbench\.cluster/", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class NearbyFiles:
    """Profiles and clusters in a folder and the folders in it, newest first.

    Names are relative to the folder.

    Attributes:
        profiles: Profiles in spbench's format.
        torchgraphs: Profiles in PipeDream's format, which lacks the batch size.
        clusters: Clusters.
    """

    profiles: tuple[str, ...] = ()
    torchgraphs: tuple[str, ...] = ()
    clusters: tuple[str, ...] = ()


def find_nearby_files(folder: Path) -> NearbyFiles:
    """Return the profiles and clusters of a folder and of the folders in it."""
    paths_by_format: dict[str, list[str]] = {"profile": [], "torchgraph": [], "cluster": []}
    candidates = islice(_generate_candidates(folder), MAX_CANDIDATES)
    for path in sorted(candidates, key=_read_modification_time, reverse=True):
        file_format = _detect_format(path)
        if file_format is not None and len(paths_by_format[file_format]) < MAX_FILES:
            paths_by_format[file_format].append(str(path.relative_to(folder)))
    return NearbyFiles(*(tuple(paths) for paths in paths_by_format.values()))


def complete_path(folder: Path, text: str) -> str | None:
    """Return a typed path completed with the first matching file, or else folder.

    Args:
        folder: The folder of relative paths.
        text: The typed beginning of the path.
    """
    stem, slash, prefix = text.rpartition("/")
    try:
        parent = expand_user_path(folder, f"{stem}{slash}")
        candidates = sorted(
            (path.is_file(), path.name)
            for path in parent.iterdir()
            if path.name.startswith(prefix)
            and (path.is_dir() or path.suffix in _ENDINGS)
            and (prefix or not path.name.startswith("."))
        )
    except (OSError, UsageError, ValueError):
        return None
    if not candidates or not prefix:
        return None
    is_file, name = max(candidates, key=itemgetter(0))
    return f"{stem}{slash}{name}{'' if is_file else '/'}"


def _generate_candidates(folder: Path) -> Iterator[Path]:
    for searched_folder in (folder, *_list_subfolders(folder), folder / _NESTED_FOLDER):
        for path in _list_paths(searched_folder):
            if path.suffix in _ENDINGS and path.is_file():
                yield path


def _list_subfolders(folder: Path) -> list[Path]:
    """Return the folders in a folder, without hidden ones such as that of the runs."""
    return [
        path
        for path in sorted(_list_paths(folder))
        if path.is_dir() and not path.name.startswith(".")
    ]


def _list_paths(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []  # there is no such folder, or it cannot be read


def _read_modification_time(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _detect_format(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
    except OSError:
        return None
    pattern_by_format = {"profile": _JSON, "torchgraph": _TORCHGRAPH, "cluster": _CLUSTER}
    return next(
        (file_format for file_format, pattern in pattern_by_format.items() if pattern.search(head)),
        None,
    )
