"""The Python interface: results of recorded runs for analysis."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spbench.errors import UsageError
from spbench.record.runs.folder import RunFolder
from spbench.report.recorded import RecordedRun, load_report
from spbench.report.recorded import load_run as load_run_folder
from spbench.report.records import metric_records, point_records, sample_records

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas

    from spbench.report.frames import Table
    from spbench.report.model import CasePart


@dataclass(frozen=True, slots=True)
class RunResults:
    """The results of a recorded run.

    Attributes:
        recorded: The run in the form that reports and comparisons use.
    """

    recorded: RecordedRun

    @property
    def id(self) -> str:
        """The run's id."""
        return self.recorded.summary.id

    @property
    def suite(self) -> str:
        """The name of its suite."""
        return self.recorded.summary.suite

    @property
    def verdict(self) -> str:
        """The run's status: ``passed``, ``failed``, ``error`` and so on, or ``running``."""
        return self.recorded.summary.status

    @property
    def cases(self) -> Mapping[str, CasePart]:
        """The cases by id, with the fields of the report: status, metrics, checks, limits."""
        return self.recorded.cases

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each case and metric."""
        return metric_records(self.recorded)

    def samples(self) -> list[dict[str, Any]]:
        """Return a row for each sample of an iteration."""
        return sample_records(self.recorded)

    def points(self) -> list[dict[str, Any]]:
        """Return a row for each labelled value, such as a link's latency at one size."""
        return point_records(self.recorded)

    def frame(self, table: Table = "metrics") -> pandas.DataFrame:
        """Return ``metrics``, ``samples`` or ``points`` as a data frame.

        Raises:
            MissingError: pandas is not installed; the extra ``frames`` installs it.
        """
        from spbench.report.frames import make_frame

        return make_frame(self.recorded, table)


def load_run(path: str | os.PathLike[str]) -> RunResults:
    """Load the results of a run.

    Args:
        path: The run's folder, ``.spbench/runs/ID``, or the file of a report.

    Raises:
        UsageError: The path is neither, or cannot be read.
    """
    path = Path(path)
    if path.is_dir():
        folder = RunFolder(path)
        if not folder.events.exists() and not folder.report.exists():
            raise UsageError(f"{path} is no folder of a run: name one of .spbench/runs")
        return RunResults(load_run_folder(folder))
    return RunResults(load_report(path))
