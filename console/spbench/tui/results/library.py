"""The recorded runs in a home, with a cache of recently loaded runs."""

from __future__ import annotations

import asyncio
import math
import os
from array import array
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from spbench.errors import SpbenchError, UsageError
from spbench.record.runs.folder import NO_FILE, FileStamp, RunFolder, file_stamp
from spbench.record.runs.history import (
    KnownRuns,
    RunSummary,
    read_summary,
    update_known_runs,
)
from spbench.record.runs.playback import find_demo_run
from spbench.report.baselines.creation import make_baseline_run
from spbench.report.baselines.files import (
    baseline_path,
    list_baseline_names,
    load_baseline,
    load_baselines,
)
from spbench.report.baselines.model import BaselineFile
from spbench.report.comparison.compare import compare
from spbench.report.comparison.conditions import (
    describe_machine_differences,
    make_past_lookup,
    no_past_launches,
)
from spbench.report.comparison.model import HEADLINE, RunComparison
from spbench.report.model import CasePart
from spbench.report.previous_times import explain_other_conditions, find_previous_run
from spbench.report.recorded import RecordedRun, load_run
from spbench.stats.difference import compute_min_launches
from spbench.tui.results.compared_sides import (
    SideA,
    choose_side,
    find_needed_launches,
)
from spbench_core.events.statuses import CaseStatus, RunStatus

MAX_CACHED_RUNS = 256
"""Largest number of runs in the cache; they are without samples."""
MAX_CACHED_TIMES = 3
"""Largest number of runs with the times of their iterations in the cache."""
MAX_REPORT_BYTES = 1 << 20
"""Largest report, in bytes, that is read in advance; larger ones would delay key presses."""

IterationTimes = Mapping[str, "array[float]"]
"""The times of the iterations in ms, of the slowest rank each, by case."""


class OwnBaselineError(UsageError):
    """A run was to be compared with the baseline that was made of it."""


class BaselineOrigin(NamedTuple):
    """A baseline with its suite and run, and its origin or error as text."""

    name: str
    suite: str
    text: str
    run: str = ""
    has_launches: bool = False


def _make_origin(name: str, baseline: BaselineFile, path: Path) -> BaselineOrigin:
    needed = find_needed_launches(make_baseline_run(baseline, path).cases.values())
    parts = [part for part in (baseline.suite, baseline.run) if part != name]
    if needed is not None:
        parts.append(f"fewer than {needed} launches")
    return BaselineOrigin(name, baseline.suite, ", ".join(parts), baseline.run, needed is None)


class RunLibrary:
    """The recorded runs. `summaries` and `load` take time: call them in threads.

    Args:
        home: The folder of the runs.
        readonly: Whether nothing may be written, not even the index of runs.
        max_cached_runs: The largest number of runs in the cache.

    Attributes:
        demo: The demo run, if it is among the runs.
    """

    def __init__(
        self, home: Path, *, readonly: bool = False, max_cached_runs: int = MAX_CACHED_RUNS
    ) -> None:
        self.home = home
        self._max_cached_runs = max_cached_runs
        self._readonly = readonly
        self.demo: RunSummary | None = None
        self._summaries: KnownRuns | None = None
        self._loaded: OrderedDict[str, tuple[FileStamp, RecordedRun]] = OrderedDict()
        self._times: OrderedDict[str, IterationTimes] = OrderedDict()
        self._load_lock = Lock()
        self._baseline_stamps: tuple[tuple[str, FileStamp], ...] = ()
        self._baseline_names: dict[str, str] = {}
        self.max_cached_times = MAX_CACHED_TIMES

    def summaries(self) -> list[RunSummary]:
        """Return summaries of all runs, the newest first."""
        self._summaries = update_known_runs(self.home, self._summaries, keep=not self._readonly)
        runs = [summary for _, summary in reversed(self._summaries.values())]
        if self.demo is not None:
            started = self.demo.started or 0.0
            older = (index for index, run in enumerate(runs) if (run.started or 0.0) < started)
            runs.insert(next(older, len(runs)), self.demo)
        return runs

    def show_demo(self) -> None:
        """Add the demo run, a part of spbench that does not change, to the runs."""
        if self.demo is None:
            self.demo = read_summary(find_demo_run())

    def is_demo(self, run: RunSummary) -> bool:
        """Return whether a run is the demo run, which is not in the home."""
        return self.demo is not None and run.folder == self.demo.folder

    def compare(self, a: RecordedRun, b: RecordedRun) -> RunComparison:
        """Compare two runs like ``spbench compare``; if readonly, without past launches."""
        past_launches = no_past_launches if self._readonly else make_past_lookup(self.home, a, b)
        return compare(a, b, past_launches, mismatch=describe_machine_differences(a, b))

    def compare_with_baseline(self, name: str, b: RecordedRun) -> RunComparison:
        """Compare a run with a baseline.

        Raises:
            UsageError: The baseline does not exist or cannot be read.
            OwnBaselineError: The baseline was made of only this run.
        """
        baseline = make_baseline_run(load_baseline(self.home, name), baseline_path(self.home, name))
        if set(baseline.made_of) == {b.summary.id}:
            raise OwnBaselineError(
                f"The baseline {name} was made of the run under the cursor. Move to another run, "
                "or press R to run it again and compare the new run."
            )
        return self.compare(baseline, b)

    def find_run_of_baseline(self, name: str, runs: Sequence[RunSummary]) -> RunSummary | None:
        """Return the only run of a baseline; None if it has several, or was deleted."""
        baseline = load_baseline(self.home, name)
        ids = {baseline.run, *baseline.runs}
        return next((run for run in runs if ids == {run.id}), None)

    def choose_side(self, runs: Sequence[RunSummary], run: RecordedRun) -> SideA | None:
        """Return the earlier run or the baseline to compare a run with; None without any.

        Args:
            runs: All runs, the newest first.
            run: The run under the cursor.
        """
        needed = compute_min_launches(max(1, len(run.cases)))
        has_enough = find_needed_launches(run.cases.values()) is None
        previous = find_previous_run(
            self.home,
            runs,
            run.summary,
            run.cases,
            self.load,
            min_launches=needed if has_enough else 1,
        )
        is_clean = previous is not None and not explain_other_conditions(previous, run.summary)
        baseline = None if is_clean else self._find_baseline(run)
        return choose_side(previous, run.summary, baseline)

    def _find_baseline(self, run: RecordedRun) -> str | None:
        """Return the newest baseline that a run can be compared with."""
        names_by_run = {}
        for name, baseline in load_baselines(self.home):
            if isinstance(baseline, UsageError) or baseline.suite != run.summary.suite:
                continue
            a = make_baseline_run(baseline, baseline_path(self.home, name))
            is_same_run = set(a.made_of) == {run.summary.id}
            if (
                not is_same_run
                and a.cases.keys() & run.cases.keys()
                and not describe_machine_differences(a, run)
            ):
                names_by_run[baseline.run] = name
        return names_by_run[max(names_by_run)] if names_by_run else None

    def name_baselines(self) -> dict[str, str]:
        """Return the names of baselines by the runs that they were made of."""
        stamps = tuple(
            (name, file_stamp(baseline_path(self.home, name)))
            for name in list_baseline_names(self.home)
        )
        if stamps != self._baseline_stamps:  # baselines may be large
            names: dict[str, list[str]] = {}
            for name, baseline in load_baselines(self.home):
                if not isinstance(baseline, UsageError):
                    names.setdefault(baseline.run, []).append(name)
            self._baseline_names = {run: ", ".join(listed) for run, listed in names.items()}
            self._baseline_stamps = stamps
        return self._baseline_names

    def baselines(self) -> list[BaselineOrigin]:
        """Return the origins of all baselines."""
        return [
            BaselineOrigin(name, "", str(baseline))
            if isinstance(baseline, UsageError)
            else _make_origin(name, baseline, baseline_path(self.home, name))
            for name, baseline in load_baselines(self.home)
        ]

    def load(self, folder: RunFolder) -> RecordedRun:
        """Return a run with its cases, without their samples, measurements and ranks.

        Raises:
            UsageError: The run has no report, and its event log cannot be read.
        """
        # One run at a time: waiting threads find it in the cache, and several threads at once
        # would delay key presses.
        with self._load_lock:
            return self._load(folder)

    def load_times(self, folder: RunFolder) -> IterationTimes:
        """Return the times of the iterations of each case of a run.

        Raises:
            UsageError: The run has no report, and its event log cannot be read.
        """
        with self._load_lock:
            self._load(folder)
            if folder.id not in self._times:
                self._loaded.pop(folder.id, None)
                self._load(folder)
            self._times.move_to_end(folder.id)
            return self._times[folder.id]

    def _load(self, folder: RunFolder) -> RecordedRun:
        if not os.path.isdir(folder.path):  # Path.is_dir raises for a folder without rights
            raise UsageError(f"run {folder.id}: its folder was deleted")
        stamp = file_stamp(folder.report)
        if stamp == NO_FILE:
            stamp = file_stamp(folder.events)
        cached = self._loaded.pop(folder.id, None)
        is_changed = cached is None or cached[0] != stamp
        if cached is None or is_changed or cached[1].summary.status == RunStatus.RUNNING:
            run = load_run(folder)
            self._times.pop(folder.id, None)
            self._times[folder.id] = {id_: _list_times(case) for id_, case in run.cases.items()}
            cases = {id_: _drop_samples(case) for id_, case in run.cases.items()}
            cached = (stamp, replace(run, cases=cases))
        self._loaded[folder.id] = cached
        while len(self._loaded) > self._max_cached_runs:
            self._loaded.popitem(last=False)
        while len(self._times) > self.max_cached_times:
            self._times.popitem(last=False)
        return cached[1]

    def describe_status(self, run: RunSummary) -> str:
        """Return the status of a run for people; that of an older run once it is loaded."""
        cached = self._loaded.get(run.id)
        loaded_outcome = None if cached is None else cached[1].summary.fault_outcome
        return loaded_outcome or run.status_text

    def count_passed(self, run_id: str) -> tuple[int, int] | None:
        """Return the numbers of passed and of all cases of a run; None if unknown."""
        if self.demo is not None and run_id == self.demo.id:
            return self.demo.count_passed()
        stamped_run = (self._summaries or {}).get(run_id)
        counts = None if stamped_run is None else stamped_run[1].count_passed()
        cached = self._loaded.get(run_id)
        if counts is not None or cached is None:
            return counts
        cases = cached[1].cases.values()
        return sum(case.status == CaseStatus.PASSED for case in cases), len(cases)


def _list_times(case: CasePart) -> array[float]:
    return array("d", filter(math.isfinite, chain.from_iterable(case.samples.get(HEADLINE, ()))))


def _drop_samples(case: CasePart) -> CasePart:
    return case.model_copy(update={"samples": {}, "measurements": [], "ranks": []})


class CaseCounter:
    """Reads the runs in view, so that their rows show passed cases and found faults.

    Each run is read at most once, even if it cannot be read.
    """

    def __init__(self, library: RunLibrary) -> None:
        self._library = library
        self._tried: set[str] = set()

    async def count(
        self, runs: Iterable[RunSummary], in_view: Iterable[Hashable], show: Callable[[], None]
    ) -> None:
        """Read the ended runs in view if their rows need it, and call ``show`` after each."""
        keys = set(in_view)
        for run in runs:
            may_be_found = run.faults and run.status != RunStatus.PASSED
            unknown = not run.counts or (may_be_found and run.fault_outcome is None)
            has_ended = run.status != RunStatus.RUNNING
            if run.id in keys and unknown and has_ended and run.id not in self._tried:
                self._tried.add(run.id)
                await asyncio.to_thread(self._read, run)
                show()

    def _read(self, run: RunSummary) -> None:
        try:
            if run.folder.report.stat().st_size <= MAX_REPORT_BYTES:
                self._library.load(run.folder)
        except (OSError, SpbenchError):
            return  # the row stays empty; opening the run shows the error
