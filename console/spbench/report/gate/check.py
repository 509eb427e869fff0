"""A gate tested by known differences: slowdowns and an error, planted into recorded launches.

Each resample draws the launches of two runs of one code from those that were recorded, and plants
a slowdown in one case of the second; `compare`'s own code judges it, together with the other cases.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import TypeVar

from spbench.launch.survey.progress import INTERVAL, Progress, ignore_progress
from spbench.report.comparison.compare import collect_chances, find_different, judge_pair
from spbench.report.comparison.judgement import explain_unfit
from spbench.report.comparison.model import HEADLINE, CasePair, Outcome
from spbench.report.comparison.pairs import launch_medians, pair_cases
from spbench.report.comparison.past import PastLaunches, no_past_launches
from spbench.report.model import CasePart, CheckPart
from spbench.report.recorded import RecordedRun
from spbench.stats.difference import least_launches
from spbench.stats.launch_noise import Launches, Noise, estimate_noise
from spbench_core.events.statuses import CaseStatus, CheckOutcome

_Thing = TypeVar("_Thing")
SLOWDOWNS = (0.05, 0.10, 0.20, 0.50)
POWER = 0.8
"""A slowdown counts as found where it is found in this share of resamples."""
RESAMPLES = 200
FIRST = 40
"""After so many of them it is looked whether the others can change anything."""
MORE_LAUNCHES = (4, 5, 6, 8, 10, 12, 16, 24, 32)
"""The launches a side that are tried where those of the run tell too little."""


@dataclass(frozen=True, slots=True)
class CaseGate:
    """The findings of the gate in one case.

    Attributes:
        launches: The launches of the run, a side of each comparison.
        past: The number of earlier runs on the same machines that are drawn from, too.
        found: The share of resamples in which a planted slowdown was called worse, by slowdown:
            from the smallest to the first that is found often enough, or the largest alone.
        alarms: The share in which it was called worse with nothing planted.
        needed: The launches a side that would find the largest slowdown, where it is not found;
            None where none that was tried would.
        error: Whether a comparison tells a failed check that was planted; None: none was.
        reason: Why no slowdown could be planted.
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
        """The smallest slowdown that is found; None where none is."""
        return next((each for each, share in self.found.items() if share >= POWER), None)


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
        """The cases in which a planted error was not told."""
        return tuple(one.case for one in self.cases if one.error is False)


def check_gate(
    run: RecordedRun,
    past: PastLaunches = no_past_launches,
    *,
    resamples: int = RESAMPLES,
    seed: int = 1,
    progress: Progress = ignore_progress,
) -> GateCheck:
    """Plant known differences into the launches of a run, and say which of them are found.

    Args:
        run: The run whose launches are drawn from.
        past: The launches of earlier runs on the same machines.
        resamples: The number of comparisons for each slowdown.
        seed: The seed of the draws; equal seeds give equal answers.
        progress: Receives a line per second on the progress.
    """
    fit = [case for case in run.cases.values() if _unfit(case) is None]
    sources = {case.id: source for case in fit if (source := _source(case, past)) is not None}
    trials = _Trials(sources, resamples, seed, progress)
    every = _told(run.cases.values(), "planting slowdowns: case", progress)
    cases = [
        trials.gate_of(case.id) if case.id in sources else _unknown(case, len(fit))
        for case in every
    ]
    return GateCheck(run.summary.id, resamples, seed, tuple(cases), trials.alarms)


def _unfit(case: CasePart) -> str | None:
    """Say why nothing can be planted in a case."""
    if why := explain_unfit(case):
        return why
    if HEADLINE not in case.metrics:
        return f"{HEADLINE} was not measured"
    return None if min(launch_medians(case, HEADLINE)) > 0 else f"{HEADLINE} of a launch is 0"


def _unknown(case: CasePart, together: int) -> CaseGate:
    """Return the gate of a case whose noise is not known, and why."""
    if reason := _unfit(case):
        return CaseGate(case.id, reason=reason)
    return CaseGate(
        case.id,
        launches=1,
        needed=least_launches(together),
        error=finds_error(case),
        reason="one launch does not tell how much launches differ",
    )


# A known error


def finds_error(case: CasePart) -> bool:
    """Return whether a comparison of a case with itself finds a planted failed check."""
    planted = _with_failed_check(case)
    pair = pair_cases(case, planted, no_past_launches)
    rows = judge_pair(pair, find_different(collect_chances([pair]))).rows
    reason = f"check {planted.checks[0].name} failed in b"
    return pair.broken and all(row.outcome is None and row.reason == reason for row in rows)


def _with_failed_check(case: CasePart) -> CasePart:
    """Return a case whose first check found an error, on one rank."""
    was = case.checks[0] if case.checks else None
    failed = CheckPart(
        name=was.name if was else "planted",
        status=CheckOutcome.FAILED,
        max_abs_error=None if was is None else 2 * was.tolerance + 1,
        tolerance=was.tolerance if was else 0.0,
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


# Known slowdowns


@dataclass(frozen=True, slots=True)
class _Source:
    """A case that launches are drawn for: with its time alone, and what is known of that.

    ``fastest`` says whether the fastest iterations of its launches are known.
    """

    part: CasePart
    noise: Noise
    launches: int
    earlier: list[list[float]]
    error: bool
    fastest: bool

    def known(self, case: str, metric: str) -> list[list[float]]:
        """Return the launches of earlier runs, as a comparison asks for them."""
        return self.earlier

    def sides(self, chance: Random, launches: int) -> _Sides:
        """Draw the launches of two runs."""
        return self.noise.draw(chance, launches), self.noise.draw(chance, launches)

    def pair(self, sides: _Sides, slowdown: float = 0.0) -> CasePair:
        """Return two runs of the case with these launches, those of the second slowed down."""
        a, b = sides
        return pair_cases(self._with(a), self._with(b.slow_down(slowdown)), self.known)

    def _with(self, launches: Launches) -> CasePart:
        medians = {HEADLINE: launches.medians}
        fastest = launches.fastest if self.fastest else []
        return self.part.model_copy(update={"medians": medians, "fastest": fastest})


_Sides = tuple[Launches, Launches]


def _source(case: CasePart, past: PastLaunches) -> _Source | None:
    """Return what launches of a case are drawn from; None where only one is known."""
    launches = launch_medians(case, HEADLINE)
    earlier = [list(run) for run in past(case.id, HEADLINE) if run and min(run) > 0]
    fastest = len(case.fastest) == len(launches) and min(case.fastest) > 0
    noise = estimate_noise([launches, *earlier], case.fastest if fastest else None)
    if noise is None:
        return None
    alone = case.model_copy(update={"metrics": {HEADLINE: case.metrics[HEADLINE]}})
    return _Source(alone, noise, len(launches), earlier, finds_error(case), fastest)


@dataclass(frozen=True, slots=True)
class _Resample:
    """Two runs of one code: their launches by case, and what a comparison says of each."""

    sides: Mapping[str, _Sides]
    chances: Mapping[str, float]
    outcomes: Mapping[str, Outcome | None]


class _Trials:
    """Resamples of all cases of a run, and what is found of a slowdown in one of them."""

    def __init__(
        self, sources: Mapping[str, _Source], resamples: int, seed: int, say: Progress
    ) -> None:
        self._sources = sources
        self._seed = seed
        chance = Random(seed)
        numbers = range(resamples if sources else 0)
        self._resamples = [self._drawn(chance) for _ in _told(numbers, "resample", say)]

    @property
    def alarms(self) -> float | None:
        """The share of resamples in which any case was called worse; None without any."""
        if not self._resamples:
            return None
        return _share(Outcome.WORSE in one.outcomes.values() for one in self._resamples)

    def gate_of(self, case: str) -> CaseGate:
        """Plant each slowdown in a case until one is found."""
        source = self._sources[case]
        found = self._found(case)
        largest = found.get(SLOWDOWNS[-1], 1.0)
        return CaseGate(
            case,
            source.launches,
            len(source.earlier),
            found,
            _share(one.outcomes[case] == Outcome.WORSE for one in self._resamples),
            None if largest >= POWER else self._needed(case),
            source.error,
        )

    def _found(self, case: str) -> dict[float, float]:
        largest = {SLOWDOWNS[-1]: self._power(case, SLOWDOWNS[-1])}
        if largest[SLOWDOWNS[-1]] < POWER:
            return largest
        found: dict[float, float] = {}
        for slowdown in SLOWDOWNS[:-1]:
            found[slowdown] = self._power(case, slowdown)
            if found[slowdown] >= POWER:
                return found
        return found | largest

    def _power(self, case: str, slowdown: float) -> float:
        """Return the share of resamples that find a slowdown; of the first where that is clear."""
        said = [self._worse(case, one, slowdown) for one in self._resamples[:FIRST]]
        if not all(said) and sum(said) > len(said) / 2:
            said += [self._worse(case, one, slowdown) for one in self._resamples[FIRST:]]
        return _share(said)

    def _needed(self, case: str) -> int | None:
        """Return the launches a side that find the largest slowdown, of those that are tried."""
        source = self._sources[case]
        chance = Random(self._seed)
        for launches in MORE_LAUNCHES:
            if launches > source.launches and self._enough(case, source, chance, launches):
                return launches
        return None

    def _enough(self, case: str, source: _Source, chance: Random, launches: int) -> bool:
        missed = 0
        first = self._resamples[:FIRST]
        for one in first:
            sides = source.sides(chance, launches)
            missed += not self._worse(case, one, SLOWDOWNS[-1], sides)
            if missed > (1 - POWER) * len(first):
                return False
        return True

    def _worse(
        self, case: str, one: _Resample, slowdown: float, sides: _Sides | None = None
    ) -> bool:
        """Say whether a slowdown is called worse, beside the other cases as they were drawn."""
        pair = self._sources[case].pair(sides or one.sides[case], slowdown)
        return (
            _outcome(pair, find_different({**one.chances, **collect_chances([pair])}))
            == Outcome.WORSE
        )

    def _drawn(self, chance: Random) -> _Resample:
        sources = self._sources.items()
        sides = {case: source.sides(chance, source.launches) for case, source in sources}
        pairs = [source.pair(sides[case]) for case, source in sources]
        told = collect_chances(pairs)
        found = find_different(told)
        return _Resample(sides, told, {pair.id: _outcome(pair, found) for pair in pairs})


def _told(things: Collection[_Thing], doing: str, say: Progress) -> Iterator[_Thing]:
    """Yield things one by one, and say once a second which of them it is."""
    told = time.monotonic()
    for number, thing in enumerate(things, 1):
        if time.monotonic() - told >= INTERVAL:
            told = time.monotonic()
            say(f"{doing} {number} of {len(things)}")
        yield thing


def _outcome(pair: CasePair, found: Mapping[str, bool]) -> Outcome | None:
    (row,) = judge_pair(pair, found).rows
    return row.outcome


def _share(said: Iterable[bool]) -> float:
    told = list(said)
    return sum(told) / len(told)
