"""The Python interface: recorded runs, read for analysis."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spbench.errors import UsageError
from spbench.record.runs.folder import RunFolder
from spbench.report.recorded import RecordedRun
from spbench.report.recorded import load_report as report_in
from spbench.report.recorded import load_run as run_in
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
        recorded: The run as reports and comparisons have it.
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
        """``passed``, ``failed``, ``error`` and so on; ``running`` while it goes on."""
        return self.recorded.summary.verdict

    @property
    def cases(self) -> Mapping[str, CasePart]:
        """The cases by id: status, metrics, checks, limits, as in the report."""
        return self.recorded.cases

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each case and metric."""
        return metric_records(self.recorded)

    def samples(self) -> list[dict[str, Any]]:
        """Return a row for each sample of an iteration."""
        return sample_records(self.recorded)

    def points(self) -> list[dict[str, Any]]:
        """Return a row for each labelled value, such as a link's latency at one message size."""
        return point_records(self.recorded)

    def frame(self, table: Table = "metrics") -> pandas.DataFrame:
        """Return ``metrics``, ``samples`` or ``points`` as a data frame.

        Raises:
            MissingError: pandas is not installed: it comes with the extra ``frames``.
        """
        from spbench.report.frames import make_frame

        return make_frame(self.recorded, table)


def load_run(path: str | os.PathLike[str]) -> RunResults:
    """Return what a run measured.

    Args:
        path: The run's folder, ``.spbench/runs/ID``, or the file of a report.

    Raises:
        UsageError: It is neither, or cannot be read.
    """
    place = Path(path)
    if place.is_dir():
        folder = RunFolder(place)
        if not folder.events.exists() and not folder.report.exists():
            raise UsageError(f"{place} is no folder of a run: name one of .spbench/runs")
        return RunResults(run_in(folder))
    return RunResults(report_in(place))
