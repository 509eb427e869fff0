"""Recorded runs as pandas data frames and Parquet files (extra ``frames``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from spbench.errors import FailedRunError, MissingError
from spbench.report.recorded import RecordedRun
from spbench.report.records import metric_records, point_records, sample_records
from spbench.safe_files import open_replacement

if TYPE_CHECKING:
    import pandas

Table = Literal["metrics", "samples", "points"]
"""The tables of a run: a row for each case and metric, for each sample, or for each point."""
TABLES: tuple[Table, ...] = get_args(Table)
_RECORDS: Mapping[Table, Callable[[RecordedRun], list[dict[str, Any]]]] = {
    "metrics": metric_records,
    "samples": sample_records,
    "points": point_records,
}


def make_frame(run: RecordedRun, table: Table = "metrics") -> pandas.DataFrame:
    """Return a table of a run as a data frame; times are UTC.

    Raises:
        MissingError: pandas is not installed.
    """
    try:
        import pandas
    except ImportError:
        raise MissingError("pandas is not installed here: pip install 'spbench[frames]'") from None
    frame = pandas.DataFrame.from_records(_RECORDS[table](run))
    if "started" in frame:
        frame["started"] = pandas.to_datetime(frame["started"], utc=True)
    return frame


def write_parquet(run: RecordedRun, path: Path, table: Table = "metrics") -> None:
    """Write a table of a run as a Parquet file, completely or not at all.

    Raises:
        MissingError: pandas or pyarrow is not installed.
        FailedRunError: The file cannot be written.
    """
    frame = make_frame(run, table)
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        raise MissingError("pyarrow is not installed here: pip install 'spbench[frames]'") from None
    for name in (name for name in frame if frame[name].dtype == object):
        frame[name] = frame[name].map(_format_cell, na_action="ignore")
    try:
        with open_replacement(path, 0o666) as file:
            frame.to_parquet(file, engine="pyarrow", index=False)
    except OSError as error:
        raise FailedRunError(f"cannot write {path}: {error.strerror or error}") from None


def _format_cell(cell: Any) -> str:
    """Return a value as text, because parameters of one name may have several types."""
    return str(cell).lower() if isinstance(cell, bool) else str(cell)
