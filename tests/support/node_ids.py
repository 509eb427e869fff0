"""Compares the test ids before and after a change.

    pytest --collect-only -q > AFTER
    python tests/support/node_ids.py BEFORE AFTER MOVED

A line of MOVED is ``old|new|reason``. ``old`` is an id, or a file or folder for all ids in it. An
empty ``new`` means that the test was dropped. The exit code is 1 if an id is missing without a
reason.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Move:
    """The new name of an id, or of all ids in a file or folder, with the reason."""

    old: str
    new: str
    reason: str

    def find_new_id(self, test: str) -> str | None:
        """Return the new id of a test, empty if it was dropped; None if this move has no part."""
        if test == self.old:
            return self.new
        if not test.startswith((f"{self.old}::", f"{self.old.rstrip('/')}/")):
            return None
        return self.new and self.new + test.removeprefix(self.old)


def read_ids(path: Path) -> list[str]:
    """Return the ids in the output of ``pytest --collect-only -q``."""
    return [line for line in path.read_text().splitlines() if "::" in line]


def read_moves(path: Path) -> list[Move]:
    """Return the moves of a file, the longest old name first.

    Raises:
        SystemExit: A line does not have three parts, or has no reason.
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
    """Return a line for each id that changed, and the number of ids lost without a reason."""
    ids_after = set(after)
    lines = []
    lost = 0
    kept = set()
    for test in before:
        matches = [(new, move) for move in moves if (new := move.find_new_id(test)) is not None]
        new, reason = (matches[0][0], matches[0][1].reason) if matches else (test, "")
        kept.add(new)
        if new == test and test in ids_after:
            continue
        if matches and (not new or new in ids_after):
            lines.append(f"{test} -> {new or 'dropped'}  ({reason})")
        else:
            lost += 1
            lines.append(f"{test} -> LOST{f': there is no {new}' if matches else ''}")
    lines += [f"new: {test}" for test in after if test not in kept]
    return lines, lost


def main(arguments: list[str]) -> int:
    """Print the changed ids; return 1 if an id is lost."""
    if len(arguments) != 3:
        raise SystemExit("usage: python tests/support/node_ids.py BEFORE AFTER MOVED")
    before = read_ids(Path(arguments[0]))
    after = read_ids(Path(arguments[1]))
    lines, lost = compare(before, after, read_moves(Path(arguments[2])))
    print(*lines, sep="\n")
    print(f"{len(before)} before, {len(after)} after, {lost} without a reason")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
