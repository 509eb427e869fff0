"""The history of a metric: a case's medians over the runs of one set of machines, and its steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spbench.errors import NothingSelected
from spbench.record.runs.folder import RunFolder, find_run
from spbench.record.runs.index import PastLaunch, find_past_launches
from spbench.report.comparison.compare import TOLERANCE
from spbench.report.comparison.model import Outcome
from spbench.report.recorded import load_run
from spbench.stats.change_points import ENOUGH_RUNS, ChangePoint, find_steps
from spbench.stats.summary import median

DEFAULT_RUNS = 200
"""The newest runs that a history is of, unless another number is asked for."""
MOST_RUNS = 500
"""The most that may be asked for: looking for steps takes longer by more than their number."""


@dataclass(frozen=True, slots=True)
class PastRun:
    """A run's median of a metric over its launches, and how many these were."""

    run: str
    value: float
    launches: int


@dataclass(frozen=True, slots=True)
class MetricHistory:
    """A metric of a case over runs, the oldest first.

    Attributes:
        machines: The fingerprint of the machines that the runs have in common.
        elsewhere: The number of runs on other machines, which are left out.
        otherwise: The number of runs there whose case of that name did other work than the
            newest one's: other parameters, say.
        earlier: The number of runs before these on the same machines, which are left out.
        steps: The runs from which on it is higher or lower; places in ``runs``.
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
        """Why nothing is said of steps, where none is found and none could be."""
        if not all(_has_ratios(run.value) for run in self.runs):
            return "no steps are looked for, since a median is not above 0"
        if not self.steps and len(self.runs) < ENOUGH_RUNS:
            return (
                f"too few runs to tell a step: {len(self.runs)}, and it takes about {ENOUGH_RUNS}"
            )
        return None

    def outcome(self, step: ChangePoint) -> str:
        """Return ``better`` or ``worse``; ``higher`` or ``lower`` where neither way is better."""
        higher = step.ratio > 1
        if self.better not in ("lower", "higher"):
            return "higher" if higher else "lower"
        return Outcome.BETTER if higher == (self.better == "higher") else Outcome.WORSE


def _has_ratios(value: float) -> bool:
    return value > 0


def load_history(
    home: Path, case: str, metric: str, machines: str | None = None, newest: int = DEFAULT_RUNS
) -> MetricHistory:
    """Return the history of a metric on the machines of its newest run, or on others.

    Args:
        home: The folder of the runs.
        case: The case's id.
        metric: The metric's name.
        machines: The id of a fingerprint; None: that of the newest run that has the metric.
        newest: How many runs it is of.

    Raises:
        NothingSelected: No run that passed has it there.
    """
    found = find_past_launches(home, case, metric)
    if not found:
        raise NothingSelected(f"no run has passed a case {case!r} with the metric {metric!r}")
    chosen = machines or found[-1].fingerprint
    here = [launch for launch in found if launch.fingerprint == chosen]
    if not here:
        known = ", ".join(sorted({str(launch.fingerprint) for launch in found}))
        raise NothingSelected(f"no run of {case!r} was made on the machines {chosen}; on {known}")
    of_machines = len({launch.run for launch in here})
    here = [launch for launch in here if launch.work == here[-1].work]
    all_runs = _by_run(here)
    runs = all_runs[-newest:]
    unit, better, parts = _about(find_run(home, runs[-1].run), case, metric)
    values = [run.value for run in runs]
    return MetricHistory(
        case,
        metric,
        unit,
        better,
        parts,
        runs,
        len({launch.run for launch in found}) - of_machines,
        of_machines - len(all_runs),
        len(all_runs) - len(runs),
        tuple(find_steps(values, TOLERANCE) if all(map(_has_ratios, values)) else ()),
    )


def _by_run(launches: list[PastLaunch]) -> tuple[PastRun, ...]:
    medians: dict[str, list[float]] = {}
    for launch in launches:
        medians.setdefault(launch.run, []).append(launch.median)
    return tuple(PastRun(run, median(of), len(of)) for run, of in medians.items())


def _about(folder: RunFolder, case: str, metric: str) -> tuple[str, str, Mapping[str, Any]]:
    """Return unit, direction and machines, as a run tells them."""
    run = load_run(folder)
    parts = run.environment.get("fingerprint")
    known = parts if isinstance(parts, Mapping) else {}
    of = run.cases[case].metrics.get(metric) if case in run.cases else None
    return (of.unit, of.better, known) if of else ("", "none", known)
