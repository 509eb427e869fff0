"""The version of a source tree: git's newest tag, or else the changelog's newest release.

hatchling asks for it where no PKG-INFO says it already: an sdist keeps the version that it was
made with.
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

    A tag vX.Y.Z is X.Y.Z; N commits later, or with changes that are not committed, it is the next
    patch's development version N. A tree that sees no tag, as a shallow clone or a copy without
    git, has the changelog's newest release, marked as not built from a tag.

    Raises:
        ValueError: There is no tag, and the changelog names no release.
    """
    told = _git(root, "describe", "--tags", "--long", "--dirty", "--match", "v[0-9]*")
    if found := TAG.fullmatch(told):
        return _since(found["release"], int(found["commits"]), found["commit"], found["dirty"])
    changelog = root / "CHANGELOG.md"
    release = RELEASE.search(changelog.read_text(encoding="utf-8"))
    if release is None:
        raise ValueError(f"{changelog} names no release, and git knows no tag such as v1.2.3")
    commit = _git(root, "rev-parse", "--short", "HEAD")
    return f"{release[1]}+untagged" + (f".g{commit}" if commit else "")


def _since(release: str, commits: int, commit: str, dirty: str | None) -> str:
    if not commits and not dirty:
        return release
    *before, patch = release.split(".")
    ahead = ".".join([*before, str(int(patch) + 1)])
    return f"{ahead}.dev{commits}+{commit}" + (".dirty" if dirty else "")


def _git(root: Path, *words: str) -> str:
    """Return what git says of this tree; empty where it is none of git's, or git is missing."""
    if not (root / ".git").exists():  # a copy inside another repository is not that one's
        return ""
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *words],
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
