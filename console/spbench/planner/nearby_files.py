"""Profiles and clusters that a user may mean: files near, told by how they begin."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MOST_FILES = 200
"""How many of a kind are listed."""
_PLACES = (".", "profiles", "clusters", "docs/examples")
_ENDINGS = frozenset({".json", ".txt", ".yaml", ".yml"})
_HEAD = 4096
_JSON = re.compile(rb'"schema"\s*:\s*"spbench\.profile/')
_TORCHGRAPH = re.compile(rb"^\S+ -- .* -- forward_compute_time=", re.MULTILINE)
_CLUSTER = re.compile(rb"^\s*schema\s*:\s*['\"]?spbench\.cluster/", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class NearbyFiles:
    """Profiles and clusters in a folder and its usual places, those that changed last first.

    Names are relative to the folder.

    Attributes:
        profiles: Profiles of spbench's own.
        torchgraphs: Profiles in PipeDream's text, which do not say their batch size.
        clusters: Clusters.
    """

    profiles: tuple[str, ...] = ()
    torchgraphs: tuple[str, ...] = ()
    clusters: tuple[str, ...] = ()


def find_nearby_files(folder: Path) -> NearbyFiles:
    """Return the profiles and clusters of a folder and of its usual places."""
    found: dict[str, list[str]] = {"profile": [], "torchgraph": [], "cluster": []}
    for path in sorted(_files(folder), key=_changed, reverse=True):
        kind = _kind(path)
        if kind is not None and len(found[kind]) < MOST_FILES:
            found[kind].append(str(path.relative_to(folder)))
    return NearbyFiles(*(tuple(names) for names in found.values()))


def complete_path(folder: Path, text: str) -> str | None:
    """Return a path as far as it is typed with the rest of the first name that begins so.

    Args:
        folder: Where relative paths begin.
        text: What is typed.
    """
    stem, slash, begun = text.rpartition("/")
    place = folder / Path(f"{stem}{slash}").expanduser()
    try:
        names = sorted(
            (path.is_file(), path.name)
            for path in place.iterdir()
            if path.name.startswith(begun)
            and (path.is_dir() or path.suffix in _ENDINGS)
            and (begun or not path.name.startswith("."))
        )
    except (OSError, RuntimeError, ValueError):
        return None
    if not names or not begun:
        return None
    is_file, name = max(names, key=lambda each: each[0])
    return f"{stem}{slash}{name}{'' if is_file else '/'}"


def _files(folder: Path) -> Iterator[Path]:
    for place in _PLACES:
        try:
            for path in (folder / place).iterdir():
                if path.suffix in _ENDINGS and path.is_file():
                    yield path
        except OSError:
            continue  # it has no such place


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _kind(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD)
    except OSError:
        return None
    kinds = {"profile": _JSON, "torchgraph": _TORCHGRAPH, "cluster": _CLUSTER}
    return next((kind for kind, begins in kinds.items() if begins.search(head)), None)
