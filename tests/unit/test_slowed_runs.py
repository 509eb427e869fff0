"""The controls of a comparison with slowed runs: counts, bounds and exit codes."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.rates import upper_bound
from benchmarks.slowed_runs import Control
from benchmarks.trial_log import TrialLog
from scipy.stats import beta

from benchmarks import slowed_runs
from spbench.report.recorded import RecordedRun
from support.sample_runs import make_case, make_run


@pytest.mark.parametrize(("count", "trials"), [(0, 200), (0, 50), (1, 50), (7, 20), (20, 20)])
def test_bound_of_a_rate_is_that_of_clopper_and_pearson(count: int, trials: int) -> None:
    expected = 1.0 if count == trials else beta.ppf(0.95, count + 1, trials - count)
    assert upper_bound(count, trials) == pytest.approx(expected)


def make_pair(factor: float, noisy: str | None = None) -> tuple[RecordedRun, RecordedRun]:
    """Return both sides of a comparison, with twenty launches each."""
    plain = [1.0 + n / 100 for n in range(20)]
    sides = [
        make_run(make_case("both", medians={"time_ms": times}, fastest=times, noisy=noisy))
        for times in (plain, [factor * time for time in plain])
    ]
    return sides[0], sides[1]


@pytest.mark.parametrize(
    ("fault_factor", "measured_factor", "code"),
    [(10.0, 10.0, 0), (10.0, 1.0, 1), (1.0, 1.0, 0), (1.0, 10.0, 1)],
)
def test_missed_slowdown_or_false_alarm_exits_with_1(
    fault_factor: float,
    measured_factor: float,
    code: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(slowed_runs, "_measure", lambda *args: make_pair(measured_factor))
    log = TrialLog(tmp_path / "log.jsonl")
    controls = [Control(fault_factor, 1, 40)]
    assert slowed_runs._check_controls(controls, log, sample=False) == code
    without, with_history = capsys.readouterr().out.splitlines()[-2:]
    assert without.split()[-2 if code else -1] == ("NOT" if code else "met")
    # No pair of the first run has a history.
    assert [" 40 " in without, " 20 " in with_history] == [True, True]
    assert len(log.lines) == 40


def test_control_with_noisy_pairs_only_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(slowed_runs, "_measure", lambda *args: make_pair(10.0, "other work"))
    log = TrialLog(tmp_path / "log.jsonl")
    assert slowed_runs._check_controls([Control(10, 1, 20)], log, sample=False) == 1
    assert len(log.lines) == 40
    assert slowed_runs._check_controls([Control(10, 1, 20)], log, sample=True) == 0
    assert len(log.lines) == 60
    assert capsys.readouterr().out.count("nothing judged") == 4
