"""The runs under a home, and those read last in full: what has not changed is not read again."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from pathlib import Path
from threading import Lock

from spbench.errors import UsageError
from spbench.record.runs.folder import FileStamp, RunFolder, file_stamp
from spbench.record.runs.history import KnownRuns, RunSummary, update_known_runs
from spbench.report.baselines.files import baseline_path, load_baseline, load_baselines
from spbench.report.baselines.making import make_baseline_run
from spbench.report.comparison.compare import compare
from spbench.report.comparison.conditions import describe_machine_differences
from spbench.report.comparison.model import RunComparison
from spbench.report.comparison.past import find_past_launches, no_past_launches
from spbench.report.model import CasePart
from spbench.report.recorded import RecordedRun, load_run
from spbench_core.events.statuses import CaseStatus, RunStatus

MAX_CACHED_RUNS = 256
"""Runs that are kept, without their samples."""


class RunLibrary:
    """Reads runs. `summaries` and `load` take time: call them in threads.

    Args:
        home: The folder of the runs.
        readonly: Whether nothing is to be written, the runs' index neither.
    """

    def __init__(self, home: Path, *, readonly: bool = False) -> None:
        self.home = home
        self._readonly = readonly
        self._summaries: KnownRuns | None = None
        self._loaded: OrderedDict[str, tuple[FileStamp, RecordedRun]] = OrderedDict()
        self._reading = Lock()

    def summaries(self) -> list[RunSummary]:
        """Return all runs in short, the newest first."""
        self._summaries = update_known_runs(self.home, self._summaries, keep=not self._readonly)
        return [summary for _, summary in reversed(self._summaries.values())]

    def compare(self, a: RecordedRun, b: RecordedRun) -> RunComparison:
        """Compare two runs as ``spbench compare`` does; a console that only reads asks no index."""
        past = no_past_launches if self._readonly else find_past_launches(self.home, a, b)
        return compare(a, b, past, mismatch=describe_machine_differences(a, b))

    def compare_with_baseline(self, name: str, b: RecordedRun) -> RunComparison:
        """Compare a run with a baseline.

        Raises:
            UsageError: There is none of that name, or it cannot be read.
        """
        return self.compare(
            make_baseline_run(load_baseline(self.home, name), baseline_path(self.home, name)), b
        )

    def baselines(self) -> list[tuple[str, str]]:
        """Return the names of the home's baselines, each with what it was made of."""
        return [
            (name, str(found) if isinstance(found, UsageError) else f"{found.suite}, {found.run}")
            for name, found in load_baselines(self.home)
        ]

    def load(self, folder: RunFolder) -> RecordedRun:
        """Return a run with its cases, without their samples, measurements and ranks.

        Raises:
            UsageError: It has no report, and its event log cannot be read.
        """
        # One at a time: who waits finds it read, and several threads would keep keys waiting.
        with self._reading:
            stamp = file_stamp(folder.report if folder.report.exists() else folder.events)
            known = self._loaded.pop(folder.id, None)
            if known is None or known[0] != stamp or known[1].summary.verdict == RunStatus.RUNNING:
                run = load_run(folder)
                bare = {id_: _bare(of) for id_, of in run.cases.items()}
                known = (stamp, replace(run, cases=bare))
            self._loaded[folder.id] = known
            while len(self._loaded) > MAX_CACHED_RUNS:
                self._loaded.popitem(last=False)
            return known[1]

    def format_passed(self, run_id: str) -> str:
        """Return ``3/4``, the cases that passed of all; nothing where that is not known yet."""
        short = (self._summaries or {}).get(run_id)
        if short is not None and short[1].counts:
            return short[1].passed
        known = self._loaded.get(run_id)
        if known is None:
            return ""
        cases = known[1].cases.values()
        return f"{sum(case.status == CaseStatus.PASSED for case in cases)}/{len(cases)}"


def find_previous_run(runs: list[RunSummary], run: RunSummary) -> RunSummary | None:
    """Return the last run of the same suite before this one, of runs that are the newest first."""
    ids = [other.id for other in runs]
    older = runs[ids.index(run.id) + 1 :] if run.id in ids else []
    return next((o for o in older if o.suite == run.suite and o.verdict != RunStatus.RUNNING), None)


def _bare(case: CasePart) -> CasePart:
    return case.model_copy(update={"samples": {}, "measurements": [], "ranks": []})
