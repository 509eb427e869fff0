"""Estimated durations of the cases of shipped suites, compared with measured ones.

    python -m benchmarks.estimates [SUITE ...] [-k EXPR] [--sample] [--home FOLDER] [-v]

Each suite runs twice in a home without earlier runs. The first run is estimated from the work of
its cases, the second one from the first run. A duration includes an equal share of the start of the
job that the case ran in. Other work on the machine changes durations from run to run: repeat the
measurement on a quiet machine. The exit code is 1 if fewer cases than the goals ask for are within
the factor; cases of unknown duration do not count.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.goals import make_argument_parser

from spbench.engine.estimate import estimate_plan
from spbench.engine.plan import Request, plan_run
from spbench.engine.run_estimate import RunEstimate
from spbench.record.number_formatting import format_duration, format_factor, format_percent
from spbench.record.runs.case_durations import CaseTimes, measure_durations
from spbench.record.runs.folder import RunFolder, list_runs

REPOSITORY = Path(__file__).parent.parent
SUITES = ("smoke", "halo", "links", "allreduce", "kvstore", "resnet_sp", "gems")
SAMPLE = ("halo", "links")
SAMPLED = "small or pair or conv"
ROUNDS = ("from the work", "from one earlier run")
FACTORS = (1.5, 5.0)
GOALS = {(0, 5.0): 0.9, (1, 1.5): 0.9}
"""The share of the cases that has to be within a factor, by round and factor."""
SAMPLE_GOALS = {(0, 5.0): 0.8, (1, 1.5): 0.5}
"""The same of a sample, which has few cases and may share its machine with other work."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The estimated and the measured duration of a case in one round, in seconds."""

    suite: str
    case: str
    round: int
    estimated: float
    measured: float

    @property
    def factor(self) -> float:
        """The larger of the two over the smaller one."""
        low, high = sorted((self.estimated, self.measured))
        return high / low


def main() -> int:
    parser = make_argument_parser(__doc__)
    parser.add_argument("suites", nargs="*", help=f"shipped suites (default: {' '.join(SUITES)})")
    parser.add_argument("-k", dest="keyword", help="cases of them, as for spbench run")
    parser.add_argument("--sample", action="store_true", help=f"cases of {' and '.join(SAMPLE)}")
    parser.add_argument("--home", type=Path, help="folder of the runs, kept; must have none yet")
    parser.add_argument("-v", "--verbose", action="store_true", help="each case in each round")
    options = parser.parse_args()
    suites = options.suites or (SAMPLE if options.sample else SUITES)
    keyword = options.keyword or (SAMPLED if options.sample else None)
    with tempfile.TemporaryDirectory() as folder:
        home = options.home or Path(folder)
        if list_runs(home):
            parser.error(f"{home} has runs already: the first estimate is to be without history")
        comparisons = [
            comparison for suite in suites for comparison in compare_suite(suite, keyword, home)
        ]
    if options.verbose:
        print_cases(comparisons)
    return print_shares(comparisons, SAMPLE_GOALS if options.sample else GOALS)


def compare_suite(suite: str, keyword: str | None, home: Path) -> Iterator[Comparison]:
    """Run a suite once per round; yield the comparison of each case with an estimate."""
    path = REPOSITORY / "suites" / f"{suite}.yaml"
    for number, source in enumerate(ROUNDS):
        request = Request(path, home, dict(os.environ), keyword=keyword)
        estimate = estimate_plan(plan_run(request), home)
        folder = run_suite(path, keyword, home)
        measured, total = measure_cases(folder)
        print(
            f"{suite}: {estimate.text or 'no case'}; measured {format_duration(total)} ({source})",
            flush=True,
        )
        yield from compare_cases(suite, number, estimate, measured)


def compare_cases(
    suite: str, number: int, estimate: RunEstimate, measured: Mapping[str, float]
) -> Iterator[Comparison]:
    for name, case in estimate.cases.items():
        if case.seconds is not None and name in measured:
            yield Comparison(suite, name, number, case.seconds, measured[name])


def run_suite(path: Path, keyword: str | None, home: Path) -> RunFolder:
    """Run a suite and return the folder of the run."""
    earlier = {folder.id for folder in list_runs(home)}
    command = [sys.executable, "-m", "spbench", "run", str(path), "--headless", "-q"]
    command += ["--home", str(home), *(["-k", keyword] if keyword else [])]
    # A suite may write files, such as checkpoints, into the working directory.
    with tempfile.TemporaryDirectory() as folder:
        completed = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    runs = [folder for folder in list_runs(home) if folder.id not in earlier]
    if len(runs) != 1:  # a case that fails has no duration, and the others count
        sys.exit(f"estimates: {' '.join(command)}: exit {completed.returncode}\n{completed.stderr}")
    return runs[0]


def measure_cases(folder: RunFolder) -> tuple[dict[str, float], float]:
    """Return the seconds of each case and of the run.

    A case's seconds include its share of its job's start.
    """
    state = folder.replay()
    run = state.run
    assert run is not None
    case_times = []
    for case in state.cases.values():
        started = case.execution.started
        finished = case.execution.finished
        if started is not None and finished is not None:
            launches = tuple(sorted(set(case.measured.jobs.values())))
            case_times.append(CaseTimes(case.id, case.status, started, finished, launches))
    durations = measure_durations(run.started, case_times)
    job_by_case = {case.id: case.job_numbers[0] for case in case_times if case.job_numbers}
    cases_by_job = Counter(job_by_case.values())
    start_seconds_by_job = {
        job_by_case[name]: duration.start_seconds
        for name, duration in durations.items()
        if duration.start_seconds
    }
    seconds_by_case = {
        name: duration.num_launches
        * (
            duration.seconds
            + start_seconds_by_job.get(job_by_case[name], 0.0) / cases_by_job[job_by_case[name]]
        )
        for name, duration in durations.items()
        if name in job_by_case
    }
    return seconds_by_case, (run.finished or run.started) - run.started


def print_cases(comparisons: list[Comparison]) -> None:
    for comparison in comparisons:
        print(
            f"{comparison.suite:10} {comparison.case:48} {ROUNDS[comparison.round]:22} "
            f"{comparison.estimated:8.2f} s  measured {comparison.measured:8.2f} s  "
            f"{format_factor(comparison.factor)}"
        )


def print_shares(comparisons: list[Comparison], goals: Mapping[tuple[int, float], float]) -> int:
    """Print the share of cases within each factor; return 1 if a goal is missed."""
    missed = 0
    for number, source in enumerate(ROUNDS):
        factors = [comparison.factor for comparison in comparisons if comparison.round == number]
        for factor_limit in FACTORS if factors else ():
            share = sum(factor <= factor_limit for factor in factors) / len(factors)
            goal = goals.get((number, factor_limit))
            cases = f"{format_percent(share)} of {len(factors)} cases"
            text = f"{source}: {cases} within {factor_limit:g}x"
            if goal is not None:
                text += f" (goal: {format_percent(goal)})"
                missed += share < goal
            print(text)
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
