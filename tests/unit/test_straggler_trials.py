"""The command that injects slow ranks: outcomes of trials, and their bound."""

import pytest
from benchmarks.rates import upper_bound
from benchmarks.stragglers import Setting, judge_case

from benchmarks import stragglers


def make_case(*ranks, reason="fault found, as planted: rank 1", cause=True):
    return {"stragglers": [{"rank": rank, "cause": cause} for rank in ranks], "reason": reason}


@pytest.mark.parametrize(
    ("case", "setting", "outcome"),
    [
        (make_case(1), Setting(2, 2), "right"),
        (make_case(0), Setting(2, 2), "wrong"),
        (make_case(1, 0), Setting(2, 2), "wrong"),
        (make_case(1, cause=False), Setting(2, 2), "wrong"),
        (make_case(1, reason="nothing noticed the fault"), Setting(2, 2), "wrong"),
        (make_case(), Setting(2, 2), "none"),
        (make_case(), Setting(2, 1), "none"),
        (make_case(1), Setting(2, 1), "wrong"),
    ],
)
def test_trial_is_right_if_only_the_slow_rank_is_reported(case, setting, outcome):
    assert judge_case(case, setting) == outcome


@pytest.mark.parametrize(
    ("count", "trials", "bound"), [(0, 50, 0.0582), (0, 1, 0.95), (2, 50, 0.1206), (1, 1, 1.0)]
)
def test_upper_bound_is_exact(count, trials, bound):
    assert upper_bound(count, trials) == pytest.approx(bound, abs=1e-4)


@pytest.mark.parametrize(("missed", "code"), [(False, 0), (True, 1)])
def test_missed_rank_exits_with_1(missed, code, monkeypatch, tmp_path, capsys):
    settings = []

    def try_setting(setting, iterations):
        settings.append(setting)
        return "none" if missed else setting.expected, []

    monkeypatch.setattr(stragglers, "try_setting", try_setting)
    arguments = ["--log", str(tmp_path / "log"), "--trials", "3", "--quiet-trials", "4"]
    assert stragglers.main(arguments) == code
    assert len(settings) == 3 * 4 + 4 + 2
    assert stragglers.main(arguments) == code  # the outcomes are known
    assert len(settings) == 3 * 4 + 4 + 2
    row = next(line for line in capsys.readouterr().out.splitlines() if "slow=1.5 on" in line)
    assert row.startswith("  1")
    assert stragglers.main(["--sample"]) == code


@pytest.mark.parametrize(("misses", "code"), [(2, 0), (3, 1)])
def test_sample_repeats_a_missed_setting_up_to_3_times(misses, code, monkeypatch):
    settings = []

    def try_setting(setting, iterations):
        settings.append(setting)
        return "none" if settings.count(setting) <= misses else setting.expected, []

    monkeypatch.setattr(stragglers, "try_setting", try_setting)
    assert stragglers.main(["--sample"]) == code
    assert [settings.count(setting) for setting in stragglers.SETTINGS] == [1, 3, 3, 3, 1, 3]
