"""The gate check: which known slowdowns of synthetic launches a gate finds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import exp
from random import Random

import pytest

from spbench.report.comparison.conditions import no_past_launches
from spbench.report.gate import check as gate
from spbench.report.gate.check import CaseGate, check_gate
from spbench.report.gate.check_text import gate_notes
from spbench.report.model import CasePart
from spbench.report.recorded import RecordedRun
from support.sample_runs import make_case, make_failed_check, make_run


def noisy_case(id: str, spread: float, launches: int = 5) -> CasePart:
    """Return a case with log times of launches evenly from -spread to +spread."""
    steps = [2 * n / (launches - 1) - 1 for n in range(launches)]
    part: CasePart = make_case(id, medians={"time_ms": [exp(spread * step) for step in steps]})
    return part


def recorded_run(*cases: CasePart) -> RecordedRun:
    recorded: RecordedRun = make_run(*cases)
    return recorded


def check_first_case(*cases: CasePart) -> CaseGate:
    """Return the gate of the first case of a run."""
    return check_gate(recorded_run(*cases), resamples=100).cases[0]


@pytest.mark.parametrize(
    ("spread", "smallest"), [(0.01, 0.1), (0.04, 0.1), (0.08, 0.2), (0.15, 0.5), (0.3, None)]
)
def test_smallest_detected_slowdown_grows_with_the_noise(
    spread: float, smallest: float | None
) -> None:
    gate_of_case = check_first_case(noisy_case("a", spread))
    assert (gate_of_case.smallest, gate_of_case.launches) == (smallest, 5)
    if smallest is None:
        assert (gate_of_case.needed, list(gate_of_case.found)) == (6, [0.5])
        assert gate_of_case.found[0.5] < gate.POWER
    else:
        assert gate_of_case.found[smallest] >= gate.POWER
        assert all(
            share < gate.POWER
            for slowdown, share in gate_of_case.found.items()
            if slowdown < smallest
        )


def test_steady_fastest_iterations_detect_smaller_slowdowns() -> None:
    noisy_part = noisy_case("a", 0.15)
    steady = noisy_case("a", 0.01).medians["time_ms"]
    gate_of_case = check_first_case(noisy_part.model_copy(update={"fastest": steady}))
    assert (check_first_case(noisy_part).smallest, gate_of_case.smallest) == (0.5, 0.1)
    assert gate_of_case.alarms is not None
    assert gate_of_case.alarms <= 0.05


def test_false_alarms_are_rare_without_a_slowdown() -> None:
    checked = check_gate(recorded_run(*(noisy_case(f"c{n}", 0.05) for n in range(4))))
    assert checked.alarms is not None
    assert checked.alarms <= 0.05
    assert all(
        case_gate.alarms is not None and case_gate.alarms <= checked.alarms
        for case_gate in checked.cases
    )


def test_warns_about_too_many_false_alarms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "_judge_only_row", lambda pair, slowdown: "worse")
    checked = check_gate(recorded_run(noisy_case("a", 0.8)), resamples=20)
    assert (checked.alarms, checked.cases[0].alarms, checked.cases[0].smallest) == (1.0, 1.0, 0.05)
    warning = "That is more than 10 %: these launches and earlier runs differ too much for a gate"
    assert any(note.startswith(warning) for note in gate_notes(checked))
    rare = replace(checked, alarms=0.05)
    assert not any(note.startswith(warning) for note in gate_notes(rare))


def test_single_launch_detects_nothing(messages) -> None:
    gate_of_case = check_first_case(make_case("a", medians={"time_ms": [1.0]}))
    assert (
        gate_of_case.launches,
        gate_of_case.smallest,
        gate_of_case.needed,
        gate_of_case.alarms,
    ) == (1, None, 4, None)
    messages.check(gate_of_case.reason)
    assert gate_of_case.error


def test_single_launch_with_earlier_runs_needs_more_launches() -> None:
    random_source = Random(1)
    earlier = [[random_source.lognormvariate(0.0, 0.02)] for _ in range(20)]
    checked = check_gate(
        recorded_run(make_case("a", medians={"time_ms": [1.0]})),
        lambda id, metric: earlier,
        resamples=100,
    )
    assert (checked.cases[0].smallest, checked.cases[0].past) == (None, 20)
    assert checked.cases[0].needed == 4


def test_five_earlier_runs_detect_a_smaller_slowdown() -> None:
    random_source = Random(1)
    earlier = [[random_source.lognormvariate(0.0, 0.005) for _ in range(5)] for _ in range(5)]
    steady = recorded_run(noisy_case("a", 0.005))
    few = check_gate(steady, lambda id, metric: earlier[:4], resamples=100).cases[0]
    enough = check_gate(steady, lambda id, metric: earlier, resamples=100).cases[0]
    assert (few.smallest, enough.smallest) == (0.1, 0.05)


@pytest.mark.slow
def test_many_cases_need_more_launches() -> None:
    few = check_first_case(*(noisy_case(f"c{n}", 0.005) for n in range(12)))
    assert (few.smallest, few.needed) == (None, 6)
    assert few.found[0.5] < gate.POWER
    assert (
        check_first_case(*(noisy_case(f"c{n}", 0.005, launches=6) for n in range(12))).smallest
        == 0.1
    )


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"status": "failed", "checks": [make_failed_check()]}, "check halo failed"),
        ({"status": "error"}, "error"),
        ({"metrics": {"m": 1.0}}, "time_ms was not measured"),
        ({"medians": {"time_ms": [1.0, 0.0]}}, "time_ms of a launch is 0"),
    ],
)
def test_case_without_a_result_is_not_checked(changes: dict[str, object], reason: str) -> None:
    bad, good = check_gate(
        recorded_run(make_case("b", **changes), noisy_case("a", 0.005)), resamples=20
    ).cases
    assert bad == CaseGate("b", reason=reason)
    assert good.smallest == 0.1


def test_detects_an_injected_error_with_and_without_checks() -> None:
    passed = make_failed_check().model_copy(
        update={"status": "passed", "max_abs_error": 0.0, "ranks_failed": 0}
    )
    checked = check_gate(
        recorded_run(noisy_case("a", 0.01), make_case("b", checks=[passed])), resamples=20
    )
    assert [case_gate.error for case_gate in checked.cases] == [True, True]
    assert checked.missed_errors == ()


def test_reports_an_injected_error_that_a_comparison_misses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("spbench.report.comparison.pairs.explain_unfit", lambda case: None)
    checked = check_gate(recorded_run(noisy_case("a", 0.01)), resamples=20)
    assert checked.missed_errors == ("a",)


def test_equal_seeds_give_equal_results() -> None:
    def check(seed: int) -> Sequence[CaseGate]:
        return check_gate(
            recorded_run(noisy_case("a", 0.05)), no_past_launches, resamples=50, seed=seed
        ).cases

    assert check(1) == check(1) != check(2)
