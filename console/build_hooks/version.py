"""The version of a source tree: git's newest tag, or the changelog's last release.

hatchling reads it unless a PKG-INFO states the version: an sdist keeps the version that it was
built with.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
TAG = re.compile(
    r"v(?P<release>\d+(?:\.\d+)*)-(?P<commits>\d+)-(?P<commit>g\w+?)(?P<dirty>-dirty)?"
)
RELEASE = re.compile(r"^## (\d+(?:\.\d+)*)\b", re.MULTILINE)


def tree_version(root: Path = ROOT) -> str:
    """Return the version (PEP 440) of a tree.

    A tag vX.Y.Z is X.Y.Z. N commits later, or with uncommitted changes, it is the next patch's
    development version N. A tree without tags (a shallow clone, a copy without git) has the
    changelog's newest release, marked as not built from a tag.

    Raises:
        ValueError: There is no tag, and the changelog names no release.
    """
    description = _git(root, "describe", "--tags", "--long", "--dirty", "--match", "v[0-9]*")
    if match := TAG.fullmatch(description):
        return _format_version(
            match["release"], int(match["commits"]), match["commit"], match["dirty"]
        )
    changelog = root / "CHANGELOG.md"
    release = RELEASE.search(changelog.read_text(encoding="utf-8"))
    if release is None:
        raise ValueError(f"{changelog} names no release, and git knows no tag such as v1.2.3")
    commit = _git(root, "rev-parse", "--short", "HEAD")
    return f"{release[1]}+untagged" + (f".g{commit}" if commit else "")


def _format_version(release: str, commits: int, commit: str, dirty: str | None) -> str:
    if not commits and not dirty:
        return release
    *before, patch = release.split(".")
    ahead = ".".join([*before, str(int(patch) + 1)])
    return f"{ahead}.dev{commits}+{commit}" + (".dirty" if dirty else "")


def _git(root: Path, *arguments: str) -> str:
    """Return git's output for a tree; empty outside a repository or without git."""
    if not (root / ".git").exists():  # git would describe a repository around the tree
        return ""
    try:
        completed = subprocess.run(
            ["git", "-C", str(root), *arguments],
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except OSError:
        return ""
    return completed.stdout.strip() if completed.returncode == 0 else ""
