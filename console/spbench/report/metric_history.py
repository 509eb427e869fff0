"""The history of a metric: a case's medians over runs on the same machines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from spbench.errors import NothingSelected
from spbench.record.runs.folder import RunFolder, find_run
from spbench.record.runs.index import PastLaunch, find_past_launches
from spbench.report.comparison.compare import TOLERANCE
from spbench.report.comparison.model import Outcome
from spbench.report.recorded import load_run
from spbench.stats.change_points import ENOUGH_RUNS, ChangePoint, find_steps
from spbench.stats.summary import median

DEFAULT_RUNS = 200
"""The default number of newest runs in a history."""
MAX_RUNS = 500
"""The largest number of runs, because the time to find steps grows faster than their number."""


@dataclass(frozen=True, slots=True)
class PastRun:
    """A run's median of a metric over its launches, and their number."""

    run: str
    value: float
    launches: int


@dataclass(frozen=True, slots=True)
class MetricHistory:
    """A metric of a case over runs, the oldest first.

    Attributes:
        machines: The common fingerprint of the runs' machines.
        other_machines: The number of excluded runs on other machines.
        other_work: The number of excluded runs with other work in the case, such as other
            parameters, than the newest run.
        earlier_runs: The number of excluded earlier runs on the same machines.
        steps: The steps of the median; their indices are positions in ``runs``.
    """

    case: str
    metric: str
    unit: str
    better: str
    machines: Mapping[str, Any]
    runs: tuple[PastRun, ...]
    other_machines: int
    other_work: int
    earlier_runs: int
    steps: tuple[ChangePoint, ...]

    @property
    def why_no_steps(self) -> str | None:
        """The reason why no steps could be found, if there is one."""
        if not all(_has_ratios(run.value) for run in self.runs):
            return "no steps are looked for, since a median is not above 0"
        if not self.steps and len(self.runs) < ENOUGH_RUNS:
            return (
                f"too few runs to tell a step: {len(self.runs)}, and it takes about {ENOUGH_RUNS}"
            )
        return None

    def outcome(self, step: ChangePoint) -> str:
        """Return ``better`` or ``worse``, or ``higher`` or ``lower`` if neither is better."""
        higher = step.ratio > 1
        if self.better not in ("lower", "higher"):
            return "higher" if higher else "lower"
        return Outcome.BETTER if higher == (self.better == "higher") else Outcome.WORSE


def _has_ratios(run_median: float) -> bool:
    return run_median > 0


def load_history(
    home: Path, case: str, metric: str, machines: str | None = None, newest: int = DEFAULT_RUNS
) -> MetricHistory:
    """Return the history of a metric on the machines of its newest run, or on others.

    Args:
        home: The folder of the runs.
        case: The case's id.
        metric: The metric's name.
        machines: The id of a fingerprint; None: that of the newest run that has the metric.
        newest: The number of newest runs in the history.

    Raises:
        NothingSelected: No passed run on these machines has the metric.
    """
    launches = find_past_launches(home, case, metric)
    if not launches:
        raise NothingSelected(f"no run has passed a case {case!r} with the metric {metric!r}")
    fingerprint = machines or launches[-1].fingerprint
    launches_on_machines = [launch for launch in launches if launch.fingerprint == fingerprint]
    if not launches_on_machines:
        other_fingerprints = ", ".join(sorted({str(launch.fingerprint) for launch in launches}))
        raise NothingSelected(
            f"no run of {case!r} was made on the machines {fingerprint}; on {other_fingerprints}"
        )
    launches_of_same_work = [
        launch for launch in launches_on_machines if launch.work == launches_on_machines[-1].work
    ]
    runs_of_same_work = _group_by_run(launches_of_same_work)
    runs = runs_of_same_work[-newest:]

    facts = _read_metric_facts(find_run(home, runs[-1].run), case, metric)
    run_medians = [run.value for run in runs]
    run_count = len({launch.run for launch in launches})
    run_count_on_machines = len({launch.run for launch in launches_on_machines})
    return MetricHistory(
        case=case,
        metric=metric,
        unit=facts.unit,
        better=facts.better,
        machines=facts.machines,
        runs=runs,
        other_machines=run_count - run_count_on_machines,
        other_work=run_count_on_machines - len(runs_of_same_work),
        earlier_runs=len(runs_of_same_work) - len(runs),
        steps=tuple(
            find_steps(run_medians, TOLERANCE) if all(map(_has_ratios, run_medians)) else ()
        ),
    )


def _group_by_run(launches: list[PastLaunch]) -> tuple[PastRun, ...]:
    launch_medians_by_run: dict[str, list[float]] = {}
    for launch in launches:
        launch_medians_by_run.setdefault(launch.run, []).append(launch.median)
    return tuple(
        PastRun(run, median(launch_medians), len(launch_medians))
        for run, launch_medians in launch_medians_by_run.items()
    )


class _MetricFacts(NamedTuple):
    """The unit and better direction of a metric, and the machines of its run."""

    unit: str
    better: str
    machines: Mapping[str, Any]


def _read_metric_facts(folder: RunFolder, case: str, metric: str) -> _MetricFacts:
    """Return the facts from a recorded run."""
    run = load_run(folder)
    metric_part = run.cases[case].metrics.get(metric) if case in run.cases else None
    if metric_part is None:
        return _MetricFacts("", "none", run.fingerprint)
    return _MetricFacts(metric_part.unit, metric_part.better, run.fingerprint)
