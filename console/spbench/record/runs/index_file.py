"""index.sqlite: the file of the index, rebuilt if damaged or older."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from spbench.record.runs.files import PRIVATE, TooLargeError
from spbench.safe_files import open_regular

NAME = "index.sqlite"
VERSION = 4
"""The version of `_TABLES`. An older index is rebuilt, and a newer one is not used."""
MAX_BYTES = 1 << 30
"""The largest size of an index that is used. One of 10,000 runs has some tens of MB.

It may have to be copied into memory.
"""
LOCK_TIMEOUT = 0.5
"""Seconds that a console waits for another one that writes."""
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
    """An index that cannot be used, so that the runs themselves must be read."""


@contextmanager
def open_reading(home: Path) -> Iterator[sqlite3.Connection]:
    """Open the index of a home without changing it.

    Raises:
        UnusableIndexError: It is missing, damaged, locked or of another version.
    """
    path = home / NAME
    with _convert_errors(path), closing(_connect(path, "ro")) as connection:
        if _read_version(connection) != VERSION:
            raise UnusableIndexError(f"{path} is of another version of spbench")
        yield connection


@contextmanager
def open_writing(home: Path) -> Iterator[sqlite3.Connection]:
    """Open the index of a home, which is created if it is missing, in one transaction.

    Raises:
        UnusableIndexError: It cannot be written, another console has locked it, or it is of a newer
            version. A damaged index is removed.
    """
    path = home / NAME
    with _convert_errors(path), closing(_open_or_create(path)) as connection, connection:
        yield connection


@contextmanager
def open_in_memory(home: Path) -> Iterator[sqlite3.Connection]:
    """Open an index without a file, with the readable content of a home's index."""
    with closing(sqlite3.connect(":memory:")) as connection:
        with suppress(UnusableIndexError), open_reading(home) as stored:
            stored.backup(connection)
        _make_tables(connection, home / NAME)
        yield connection


def remove_index(home: Path) -> None:
    """Remove the index of a home, and the journal of a console that was killed."""
    for name in (f"{NAME}-journal", NAME):
        with suppress(OSError):
            (home / name).unlink()


@contextmanager
def _convert_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.OperationalError as error:  # locked, read-only, a full disk
        raise UnusableIndexError(f"{path}: {error}") from None
    except sqlite3.DatabaseError as error:
        remove_index(path.parent)
        raise UnusableIndexError(f"{path}: {error}") from None
    except (sqlite3.Error, OSError, ValueError, OverflowError) as error:
        raise UnusableIndexError(f"{path}: {error}") from None


def _open_or_create(path: Path) -> sqlite3.Connection:
    with suppress(FileExistsError):  # only for its owner, like the runs
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, PRIVATE & 0o666))
    connection = _connect(path, "rw")
    try:
        version = _read_version(connection)
        _check_version(version, path)
        if version < VERSION:
            _make_tables(connection, path)
        # It can be rebuilt, so runs need not wait for the disk.
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

    The version is read again, because another console may have created and filled the tables since.

    Raises:
        UnusableIndexError: The other console has a newer version.
    """
    connection.execute("BEGIN IMMEDIATE")
    with connection:
        version = _read_version(connection)
        _check_version(version, path)
        if version == VERSION:
            return
        for table in ("runs", "cases", "launches"):
            connection.execute(f"DROP TABLE IF EXISTS {table}")
        for statement in _TABLES.split(";"):
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {VERSION}")


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    # A pipe would never end, and a link may lead to another program's database: tables are dropped.
    file = open_regular(path, os.O_RDONLY)
    try:
        size = os.fstat(file).st_size
    finally:
        os.close(file)
    if size > MAX_BYTES:
        raise TooLargeError(path, size, MAX_BYTES)
    uri = f"{path.absolute().as_uri()}?mode={mode}"
    return sqlite3.connect(uri, uri=True, timeout=LOCK_TIMEOUT, isolation_level="IMMEDIATE")


def _read_version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])
