"""index.sqlite: the file of the index, made again where it is damaged or of an older version."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from spbench.record.runs.files import PRIVATE, TooLargeError
from spbench.safe_files import open_regular

NAME = "index.sqlite"
VERSION = 3
"""The number of `_TABLES`; an index of a lower one is made again, one of a higher one not used."""
MOST_BYTES = 1 << 30
"""Bytes of an index: one of 10,000 runs has some tens of MB. A larger one is not used.

It may have to be copied into memory.
"""
PATIENCE = 0.5
"""Seconds that one console waits for another that writes."""
_TABLES = """
CREATE TABLE IF NOT EXISTS runs (
    id TEXT PRIMARY KEY, changed INTEGER NOT NULL, bytes INTEGER NOT NULL, head TEXT NOT NULL,
    fingerprint TEXT, report_changed INTEGER, report_bytes INTEGER,
    hosts TEXT, cores INTEGER
);
CREATE TABLE IF NOT EXISTS cases (
    run TEXT NOT NULL, id TEXT NOT NULL, status TEXT NOT NULL, work TEXT NOT NULL,
    seconds REAL, launches INTEGER, start REAL,
    PRIMARY KEY (run, id)
);
CREATE INDEX IF NOT EXISTS cases_of_work ON cases (work);
CREATE TABLE IF NOT EXISTS launches (
    run TEXT NOT NULL, case_id TEXT NOT NULL, metric TEXT NOT NULL, launch INTEGER NOT NULL,
    median REAL NOT NULL, PRIMARY KEY (case_id, metric, run, launch)
);
CREATE INDEX IF NOT EXISTS launches_of_run ON launches (run);
"""


class UnusableIndexError(Exception):
    """An index that cannot be read or written now: the runs themselves have to be read."""


@contextmanager
def open_reading(home: Path) -> Iterator[sqlite3.Connection]:
    """Open the index of a home as it is.

    Raises:
        UnusableIndexError: There is none, or it is damaged, locked or of another version.
    """
    path = home / NAME
    with _told(path), closing(_connected(path, "ro")) as connection:
        if _version(connection) != VERSION:
            raise UnusableIndexError(f"{path} is of another version of spbench")
        yield connection


@contextmanager
def open_writing(home: Path) -> Iterator[sqlite3.Connection]:
    """Open the index of a home, made where it is missing; at the end all is written, or nothing.

    Raises:
        UnusableIndexError: It cannot be written, another console holds it, or it is of a newer
            version. One that is found damaged is removed.
    """
    path = home / NAME
    with _told(path), closing(_writable(path)) as connection, connection:
        yield connection


@contextmanager
def open_in_memory(home: Path) -> Iterator[sqlite3.Connection]:
    """Open an index that no file holds, with what can be read of that of a home."""
    with closing(sqlite3.connect(":memory:")) as connection:
        with suppress(UnusableIndexError), open_reading(home) as kept:
            kept.backup(connection)
        _make_tables(connection, home / NAME)
        yield connection


def remove_index(home: Path) -> None:
    """Remove the index of a home, and what a console that was killed has left of a change."""
    for name in (f"{NAME}-journal", NAME):
        with suppress(OSError):
            (home / name).unlink()


@contextmanager
def _told(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.OperationalError as error:  # locked, read-only, a full disk
        raise UnusableIndexError(f"{path}: {error}") from None
    except sqlite3.DatabaseError as error:
        remove_index(path.parent)
        raise UnusableIndexError(f"{path}: {error}") from None
    except (sqlite3.Error, OSError, ValueError, OverflowError) as error:
        raise UnusableIndexError(f"{path}: {error}") from None


def _writable(path: Path) -> sqlite3.Connection:
    with suppress(FileExistsError):  # its owner's alone, as the runs are
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, PRIVATE & 0o666))
    connection = _connected(path, "rw")
    try:
        version = _version(connection)
        _check_version(version, path)
        if version < VERSION:
            _make_tables(connection, path)
        # It can be made again, so that no run has to wait for the disk.
        connection.execute("PRAGMA synchronous = OFF")
    except BaseException:
        connection.close()
        raise
    return connection


def _check_version(version: int, path: Path) -> None:
    if version > VERSION:
        raise UnusableIndexError(f"{path} is of a newer spbench")


def _make_tables(connection: sqlite3.Connection, path: Path) -> None:
    """Replace the tables of an older version, in one transaction.

    The version is read again: another console may have made the tables and filled them meanwhile.

    Raises:
        UnusableIndexError: The other console is of a newer version.
    """
    connection.execute("BEGIN IMMEDIATE")
    with connection:
        version = _version(connection)
        _check_version(version, path)
        if version == VERSION:
            return
        for table in ("runs", "cases", "launches"):
            connection.execute(f"DROP TABLE IF EXISTS {table}")
        for statement in _TABLES.split(";"):
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {VERSION}")


def _connected(path: Path, mode: str) -> sqlite3.Connection:
    # A pipe would never end. A link may lead to another program's database: tables are dropped.
    file = open_regular(path, os.O_RDONLY)
    try:
        size = os.fstat(file).st_size
    finally:
        os.close(file)
    if size > MOST_BYTES:
        raise TooLargeError(path, size, MOST_BYTES)
    place = f"{path.absolute().as_uri()}?mode={mode}"
    return sqlite3.connect(place, uri=True, timeout=PATIENCE, isolation_level="IMMEDIATE")


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])
