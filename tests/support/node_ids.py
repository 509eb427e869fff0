"""Test ids before and after a change, each with where it went.

    pytest --collect-only -q > AFTER
    python tests/support/node_ids.py BEFORE AFTER MOVED

A line of MOVED is ``old|new|reason``: an id, or a file or folder for all in it. Where ``new`` is
empty, the test was dropped. Ends with 1 where an id has gone and no line says why.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Move:
    """The new name of an id, or of all that begin with it, with the reason."""

    old: str
    new: str
    reason: str

    def find_new_id(self, test: str) -> str | None:
        """Return the new id of a test, empty where it was dropped; None where it is another's."""
        whole = test == self.old
        if not whole and not test.startswith((f"{self.old}::", f"{self.old.rstrip('/')}/")):
            return None
        return self.new and (self.new if whole else self.new + test.removeprefix(self.old))


def read_ids(path: Path) -> list[str]:
    """Return the ids in what ``pytest --collect-only -q`` printed."""
    return [line for line in path.read_text().splitlines() if "::" in line]


def read_moves(path: Path) -> list[Move]:
    """Return the moves of a file, the most exact first.

    Raises:
        SystemExit: A line has not three parts, or no reason.
    """
    moves = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        parts = [part.strip() for part in line.rsplit("|", 2)]
        if len(parts) != 3 or not parts[0] or not parts[2]:
            raise SystemExit(f"{path}:{number}: write old|new|reason")
        moves.append(Move(*parts))
    return sorted(moves, key=lambda move: -len(move.old))


def compare(before: list[str], after: list[str], moves: list[Move]) -> tuple[list[str], int]:
    """Return a line for each id that is not what and where it was, and how many have no reason."""
    there = set(after)
    lines = []
    lost = 0
    kept = set()
    for test in before:
        found = [(new, move) for move in moves if (new := move.find_new_id(test)) is not None]
        new, reason = (found[0][0], found[0][1].reason) if found else (test, "")
        kept.add(new)
        if new == test and test in there:
            continue
        if found and (not new or new in there):
            lines.append(f"{test} -> {new or 'dropped'}  ({reason})")
        else:
            lost += 1
            lines.append(f"{test} -> LOST{f': there is no {new}' if found else ''}")
    lines += [f"new: {test}" for test in after if test not in kept]
    return lines, lost


def main(words: list[str]) -> int:
    """Print what `compare` finds."""
    if len(words) != 3:
        raise SystemExit("usage: python tests/support/node_ids.py BEFORE AFTER MOVED")
    before = read_ids(Path(words[0]))
    after = read_ids(Path(words[1]))
    lines, lost = compare(before, after, read_moves(Path(words[2])))
    print(*lines, sep="\n")
    print(f"{len(before)} before, {len(after)} after, {lost} without a reason")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
