"""The cases of recorded runs by name, from the index of the runs."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from spbench.record.runs.index_file import UnusableIndexError, open_reading

MAX_CASES = 50_000
"""The most cases that are listed, those of the newest runs."""


def list_recorded_cases(home: Path) -> list[tuple[str, str]]:
    """Return the run and the id of each indexed case, the newest run first.

    Runs that the index lacks are left out. The list is empty if the index cannot be used.
    """
    query = "SELECT run, id FROM cases ORDER BY run DESC, rowid LIMIT ?"
    with suppress(UnusableIndexError), open_reading(home) as index:
        return [(str(run), str(case)) for run, case in index.execute(query, (MAX_CASES,))]
    return []


def count_launches_of_run(home: Path, run: str) -> dict[str, int]:
    """Return the timed launches of each case of a run; empty if the index lacks it."""
    query = (
        "SELECT id, COUNT(launch) FROM cases LEFT JOIN launches "
        "ON launches.run = cases.run AND case_id = id AND metric = 'time_ms' "
        "WHERE cases.run = ? GROUP BY id"
    )
    with suppress(UnusableIndexError), open_reading(home) as index:
        return {str(case): int(count) for case, count in index.execute(query, (run,))}
    return {}
