"""Differences of known size, planted into made-up launches: the gate says which it finds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import exp
from random import Random

import pytest

from spbench.report.comparison.past import no_past_launches
from spbench.report.gate import check as gate
from spbench.report.gate.check import CaseGate, check_gate
from spbench.report.gate.check_text import gate_notes
from spbench.report.model import CasePart
from spbench.report.recorded import RecordedRun
from unit.results import case, run, wrong_check


def noisy(id: str, spread: float, launches: int = 5) -> CasePart:
    """A case whose launches lie evenly about the middle one, up to so far above and below."""
    steps = [2 * n / (launches - 1) - 1 for n in range(launches)]
    made: CasePart = case(id, medians={"time_ms": [exp(spread * step) for step in steps]})
    return made


def run_of(*cases: CasePart) -> RecordedRun:
    made: RecordedRun = run(*cases)
    return made


def only(*cases: CasePart) -> CaseGate:
    """The gate of a run's first case."""
    return check_gate(run_of(*cases), resamples=100).cases[0]


@pytest.mark.parametrize(
    ("spread", "smallest"), [(0.01, 0.1), (0.04, 0.1), (0.08, 0.2), (0.15, 0.5), (0.3, None)]
)
def test_the_smallest_slowdown_that_is_found_grows_with_the_noise(
    spread: float, smallest: float | None
) -> None:
    found = only(noisy("a", spread))
    assert (found.smallest, found.launches) == (smallest, 5)
    if smallest is None:
        assert (found.needed, list(found.found)) == (6, [0.5])
        assert found.found[0.5] < gate.POWER
    else:
        assert found.found[smallest] >= gate.POWER
        assert all(share < gate.POWER for each, share in found.found.items() if each < smallest)


def test_fastest_iterations_that_are_steady_let_it_find_less() -> None:
    loud = noisy("a", 0.15)
    steady = noisy("a", 0.01).medians["time_ms"]
    told = only(loud.model_copy(update={"fastest": steady}))
    assert (only(loud).smallest, told.smallest) == (0.5, 0.1)
    assert told.alarms is not None
    assert told.alarms <= 0.05


def test_nothing_planted_is_seldom_called_worse() -> None:
    told = check_gate(run_of(*(noisy(f"c{n}", 0.05) for n in range(4))))
    assert told.alarms is not None
    assert told.alarms <= 0.05
    assert all(one.alarms is not None and one.alarms <= told.alarms for one in told.cases)


def test_a_judge_that_always_cries_wolf_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "_outcome", lambda pair, found: "worse")
    told = check_gate(run_of(noisy("a", 0.8)), resamples=20)
    assert (told.alarms, told.cases[0].alarms, told.cases[0].smallest) == (1.0, 1.0, 0.05)
    warning = "That is more than 10 %: these launches and earlier runs differ too much for a gate"
    assert any(note.startswith(warning) for note in gate_notes(told))
    rare = replace(told, alarms=0.05)
    assert not any(note.startswith(warning) for note in gate_notes(rare))


def test_one_launch_tells_nothing() -> None:
    found = only(case("a", medians={"time_ms": [1.0]}))
    assert (found.launches, found.smallest, found.needed, found.alarms) == (1, None, 4, None)
    assert found.reason == "one launch does not tell how much launches differ"
    assert found.error


def test_one_launch_beside_earlier_runs_finds_what_they_let_it_find() -> None:
    chance = Random(1)
    earlier = [[chance.lognormvariate(0.0, 0.02)] for _ in range(20)]
    told = check_gate(
        run_of(case("a", medians={"time_ms": [1.0]})), lambda id, metric: earlier, resamples=100
    )
    assert (told.cases[0].smallest, told.cases[0].past) == (None, 20)
    assert told.cases[0].needed == 4


def test_a_small_slowdown_is_found_once_earlier_runs_show_how_much_runs_differ() -> None:
    chance = Random(1)
    earlier = [[chance.lognormvariate(0.0, 0.005) for _ in range(5)] for _ in range(5)]
    steady = run_of(noisy("a", 0.005))
    few = check_gate(steady, lambda id, metric: earlier[:4], resamples=100).cases[0]
    enough = check_gate(steady, lambda id, metric: earlier, resamples=100).cases[0]
    assert (few.smallest, enough.smallest) == (0.1, 0.05)


def test_among_many_cases_it_takes_more_launches() -> None:
    few = only(*(noisy(f"c{n}", 0.005) for n in range(12)))
    assert (few.smallest, few.needed) == (None, 6)
    assert few.found[0.5] < gate.POWER
    assert only(*(noisy(f"c{n}", 0.005, launches=6) for n in range(12))).smallest == 0.1


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"status": "failed", "checks": [wrong_check()]}, "check halo failed"),
        ({"status": "error"}, "error"),
        ({"metrics": {"m": 1.0}}, "time_ms was not measured"),
        ({"medians": {"time_ms": [1.0, 0.0]}}, "time_ms of a launch is 0"),
    ],
)
def test_nothing_is_planted_in_a_case_without_a_result(
    changes: dict[str, object], reason: str
) -> None:
    bad, good = check_gate(run_of(case("b", **changes), noisy("a", 0.005)), resamples=20).cases
    assert bad == CaseGate("b", reason=reason)
    assert good.smallest == 0.1


def test_a_planted_error_is_told_with_checks_and_without() -> None:
    passed = wrong_check().model_copy(
        update={"status": "passed", "max_abs_error": 0.0, "ranks_failed": 0}
    )
    told = check_gate(run_of(noisy("a", 0.01), case("b", checks=[passed])), resamples=20)
    assert [one.error for one in told.cases] == [True, True]
    assert told.missed_errors == ()


def test_a_planted_error_that_a_comparison_passes_over_is_missed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("spbench.report.comparison.pairs.explain_unfit", lambda case: None)
    told = check_gate(run_of(noisy("a", 0.01)), resamples=20)
    assert told.missed_errors == ("a",)


def test_equal_seeds_give_equal_answers() -> None:
    def told(seed: int) -> Sequence[CaseGate]:
        return check_gate(run_of(noisy("a", 0.05)), no_past_launches, resamples=50, seed=seed).cases

    assert told(1) == told(1) != told(2)
