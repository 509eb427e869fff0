"""Check a gate with known slowdowns and errors, planted into recorded launches.

Each resample draws the launches of two runs of the same code from the recorded launches. It plants
a slowdown in one case of the second run. The code of `compare` judges it with the other cases.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from random import Random

from spbench.launch.survey.progress import Progress, ignore_progress, iterate_with_progress
from spbench.report.comparison.compare import collect_p_values, find_different, judge_pair
from spbench.report.comparison.conditions import PastLaunches, no_past_launches
from spbench.report.comparison.judgement import explain_unfit
from spbench.report.comparison.model import HEADLINE, CasePair, Outcome
from spbench.report.comparison.pairs import launch_medians, pair_cases
from spbench.report.model import CasePart, CheckPart
from spbench.report.recorded import RecordedRun
from spbench.stats.difference import compute_min_launches
from spbench.stats.launch_noise import Launches, Noise, estimate_noise
from spbench_core.events.statuses import CaseStatus, CheckOutcome

SLOWDOWNS = (0.05, 0.10, 0.20, 0.50)
"""The planted slowdowns, as shares of the time."""
POWER = 0.8
"""The share of resamples in which a slowdown must be found to count as found."""
RESAMPLES = 200
FIRST_RESAMPLES = 40
"""The number of resamples after which clear results need no further ones."""
MORE_LAUNCHES = (4, 5, 6, 8, 10, 12, 16, 24, 32)
"""The launches per side that are tried if those of the run do not suffice."""


@dataclass(frozen=True, slots=True)
class CaseGate:
    """The findings of the gate in one case.

    Attributes:
        launches: The launches of the run, which are those of each side of a comparison.
        past: The number of earlier runs on the same machines with launches that are drawn, too.
        found: The share of resamples in which a planted slowdown was called worse, by slowdown:
            from the smallest to the first that is found often enough, or only the largest.
        alarms: The share of resamples in which it was called worse with nothing planted.
        needed: The launches per side that would find the largest slowdown, if it is not found;
            None if no tried number would.
        error: Whether a comparison reports a planted failed check; None: there is no planted check.
        reason: The reason why no slowdown could be planted.
    """

    case: str
    launches: int = 0
    past: int = 0
    found: Mapping[float, float] = field(default_factory=dict)
    alarms: float | None = None
    needed: int | None = None
    error: bool | None = None
    reason: str | None = None

    @property
    def smallest(self) -> float | None:
        """The smallest slowdown that is found, if any."""
        return next((slowdown for slowdown, share in self.found.items() if share >= POWER), None)


@dataclass(frozen=True, slots=True)
class GateCheck:
    """The findings of the gate in each case of a run.

    ``alarms`` is the share of resamples in which any case was called worse with nothing planted.
    """

    run: str
    resamples: int
    seed: int
    cases: tuple[CaseGate, ...]
    alarms: float | None

    @property
    def missed_errors(self) -> tuple[str, ...]:
        """The cases in which a planted error was not reported."""
        return tuple(case.case for case in self.cases if case.error is False)


def check_gate(
    run: RecordedRun,
    past_launches: PastLaunches = no_past_launches,
    *,
    resamples: int = RESAMPLES,
    seed: int = 1,
    progress: Progress = ignore_progress,
) -> GateCheck:
    """Plant known differences into the launches of a run, and return those found.

    Args:
        run: The run from which launches are drawn.
        past_launches: The launches of earlier runs on the same machines.
        resamples: The number of comparisons for each slowdown.
        seed: The seed of the draws; equal seeds give equal results.
        progress: Receives a line per second on the progress.
    """
    usable = [case for case in run.cases.values() if _explain_unusable(case) is None]
    sources = {}
    for case in usable:
        if (source := _make_source(case, past_launches)) is not None:
            sources[case.id] = source
    trials = _Trials(sources, resamples, seed, progress)
    cases = [
        trials.check_case(case.id)
        if case.id in sources
        else _make_unchecked_case(case, len(usable))
        for case in iterate_with_progress(run.cases.values(), "planting slowdowns: case", progress)
    ]
    return GateCheck(run.summary.id, resamples, seed, tuple(cases), trials.alarms)


def _explain_unusable(case: CasePart) -> str | None:
    """Return the reason why nothing can be planted in a case, if there is one."""
    if reason := explain_unfit(case):
        return reason
    if HEADLINE not in case.metrics:
        return f"{HEADLINE} was not measured"
    return None if min(launch_medians(case, HEADLINE)) > 0 else f"{HEADLINE} of a launch is 0"


def _make_unchecked_case(case: CasePart, tests: int) -> CaseGate:
    """Return the findings for a case without known noise, with the reason."""
    if reason := _explain_unusable(case):
        return CaseGate(case.id, reason=reason)
    return CaseGate(
        case.id,
        launches=1,
        needed=compute_min_launches(tests),
        error=finds_error(case),
        reason="one launch does not tell how much launches differ",
    )


def finds_error(case: CasePart) -> bool:
    """Return whether comparing a case with itself finds a planted failed check."""
    planted = _fail_check(case)
    pair = pair_cases(case, planted, no_past_launches)
    rows = judge_pair(pair, find_different(collect_p_values([pair]))).rows
    reason = f"check {planted.checks[0].name} failed in b"
    return pair.broken and all(row.outcome is None and row.reason == reason for row in rows)


def _fail_check(case: CasePart) -> CasePart:
    """Return a case with a first check that failed on one rank."""
    check = case.checks[0] if case.checks else None
    failed = CheckPart(
        name=check.name if check else "planted",
        status=CheckOutcome.FAILED,
        max_abs_error=None if check is None else 2 * check.tolerance + 1,
        tolerance=check.tolerance if check else 0.0,
        ranks_passed=case.np - 1,
        ranks_failed=1,
        detail="planted",
    )
    changes = {
        "status": CaseStatus.FAILED,
        "reason": "planted",
        "checks": [failed, *case.checks[1:]],
    }
    return case.model_copy(update=changes)


@dataclass(frozen=True, slots=True)
class _Source:
    """A case from which launches are drawn.

    Attributes:
        part: The case with its time as the only metric.
        noise: The noise of its launches.
        launches: The number of its launches.
        past_runs: The launches of earlier runs.
        finds_error: Whether a comparison finds a planted failed check.
        has_fastest: Whether the fastest iterations of its launches are known.
    """

    part: CasePart
    noise: Noise
    launches: int
    past_runs: list[list[float]]
    finds_error: bool
    has_fastest: bool

    def draw_sides(self, rng: Random, launches: int) -> _Sides:
        """Draw the launches of two runs."""
        return self.noise.draw(rng, launches), self.noise.draw(rng, launches)

    def make_pair(self, sides: _Sides, slowdown: float = 0.0) -> CasePair:
        """Return the case in two runs with these launches, slowed down in the second."""
        a, b = sides
        case_a = self._with_launches(a)
        case_b = self._with_launches(b.slow_down(slowdown))
        return pair_cases(case_a, case_b, self._get_past_launches)

    def _get_past_launches(self, case: str, metric: str) -> list[list[float]]:
        return self.past_runs

    def _with_launches(self, launches: Launches) -> CasePart:
        medians = {HEADLINE: launches.medians}
        fastest = launches.fastest if self.has_fastest else []
        return self.part.model_copy(update={"medians": medians, "fastest": fastest})


_Sides = tuple[Launches, Launches]


def _make_source(case: CasePart, past_launches: PastLaunches) -> _Source | None:
    """Return the source of a case's launches; None if only one launch is known."""
    launches = launch_medians(case, HEADLINE)
    past_runs = [list(run) for run in past_launches(case.id, HEADLINE) if run and min(run) > 0]
    has_fastest = len(case.fastest) == len(launches) and min(case.fastest) > 0
    noise = estimate_noise([launches, *past_runs], case.fastest if has_fastest else None)
    if noise is None:
        return None
    case_with_time = case.model_copy(update={"metrics": {HEADLINE: case.metrics[HEADLINE]}})
    return _Source(case_with_time, noise, len(launches), past_runs, finds_error(case), has_fastest)


@dataclass(frozen=True, slots=True)
class _Resample:
    """Two runs of the same code: launches, p-values and outcomes by case."""

    sides: Mapping[str, _Sides]
    p_values: Mapping[str, float]
    outcomes: Mapping[str, Outcome | None]


class _Trials:
    """Resamples of all cases of a run, into which slowdowns are planted."""

    def __init__(
        self, sources: Mapping[str, _Source], resamples: int, seed: int, progress: Progress
    ) -> None:
        self._sources = sources
        self._seed = seed
        rng = Random(seed)
        resample_numbers = range(resamples if sources else 0)
        self._resamples = [
            self._draw_resample(rng)
            for _ in iterate_with_progress(resample_numbers, "resample", progress)
        ]

    @property
    def alarms(self) -> float | None:
        """The share of resamples in which any case is called worse; None without any."""
        if not self._resamples:
            return None
        return _compute_share(
            Outcome.WORSE in resample.outcomes.values() for resample in self._resamples
        )

    def check_case(self, case: str) -> CaseGate:
        """Plant each slowdown in a case until one is found."""
        source = self._sources[case]
        power_by_slowdown = self._find_slowdowns(case)
        power_of_largest = power_by_slowdown.get(SLOWDOWNS[-1], 1.0)
        return CaseGate(
            case,
            launches=source.launches,
            past=len(source.past_runs),
            found=power_by_slowdown,
            alarms=_compute_share(
                resample.outcomes[case] == Outcome.WORSE for resample in self._resamples
            ),
            needed=None if power_of_largest >= POWER else self._count_needed_launches(case),
            error=source.finds_error,
        )

    def _find_slowdowns(self, case: str) -> dict[float, float]:
        """Return the power by slowdown, up to the first that is found."""
        largest = SLOWDOWNS[-1]
        power_of_largest = self._compute_power(case, largest)
        if power_of_largest < POWER:
            return {largest: power_of_largest}
        power_by_slowdown: dict[float, float] = {}
        for slowdown in SLOWDOWNS[:-1]:
            power_by_slowdown[slowdown] = self._compute_power(case, slowdown)
            if power_by_slowdown[slowdown] >= POWER:
                return power_by_slowdown
        return power_by_slowdown | {largest: power_of_largest}

    def _compute_power(self, case: str, slowdown: float) -> float:
        """Return the share of resamples that find a slowdown.

        If the first `FIRST_RESAMPLES` resamples give a clear result, only they count.
        """
        first_found = [
            self._is_worse(case, resample, slowdown)
            for resample in self._resamples[:FIRST_RESAMPLES]
        ]
        if all(first_found) or sum(first_found) <= len(first_found) / 2:
            return _compute_share(first_found)
        other_found = [
            self._is_worse(case, resample, slowdown)
            for resample in self._resamples[FIRST_RESAMPLES:]
        ]
        return _compute_share(first_found + other_found)

    def _count_needed_launches(self, case: str) -> int | None:
        """Return the launches per side that find the largest slowdown, if any."""
        source = self._sources[case]
        rng = Random(self._seed)
        for launches in MORE_LAUNCHES:
            if launches > source.launches and self._suffices(case, source, rng, launches):
                return launches
        return None

    def _suffices(self, case: str, source: _Source, rng: Random, launches: int) -> bool:
        missed = 0
        first_resamples = self._resamples[:FIRST_RESAMPLES]
        for resample in first_resamples:
            sides = source.draw_sides(rng, launches)
            missed += not self._is_worse(case, resample, SLOWDOWNS[-1], sides)
            if missed > (1 - POWER) * len(first_resamples):
                return False
        return True

    def _is_worse(
        self, case: str, resample: _Resample, slowdown: float, sides: _Sides | None = None
    ) -> bool:
        """Return whether a slowdown in one case is called worse, among all cases."""
        pair = self._sources[case].make_pair(sides or resample.sides[case], slowdown)
        p_values = {**resample.p_values, **collect_p_values([pair])}
        return _judge_only_row(pair, find_different(p_values)) == Outcome.WORSE

    def _draw_resample(self, rng: Random) -> _Resample:
        sources = self._sources.items()
        sides_by_case = {case: source.draw_sides(rng, source.launches) for case, source in sources}
        pairs = [source.make_pair(sides_by_case[case]) for case, source in sources]
        p_values = collect_p_values(pairs)
        is_different = find_different(p_values)
        return _Resample(
            sides_by_case,
            p_values,
            {pair.id: _judge_only_row(pair, is_different) for pair in pairs},
        )


def _judge_only_row(case_pair: CasePair, is_different: Mapping[str, bool]) -> Outcome | None:
    (row,) = judge_pair(case_pair, is_different).rows
    return row.outcome


def _compute_share(flags: Iterable[bool]) -> float:
    all_flags = list(flags)
    return sum(all_flags) / len(all_flags)
