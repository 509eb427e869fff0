"""Launches of earlier runs on the same machines, for comparisons."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spbench.report.comparison.compare import compare
from spbench.report.comparison.conditions import make_past_lookup
from spbench.report.recorded import RecordedRun
from support.sample_runs import make_case, make_run


def make_past_run(machines: str, id: str, time: float = 1.0) -> RecordedRun:
    base: RecordedRun = make_run(make_case("a", {"time_ms": time}), id=id)
    return replace(base, environment={"fingerprint": {"id": machines}})


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Write eight runs of one launch each, 1 % apart, and one on other machines."""
    for number in range(8):
        write_run(tmp_path, f"20260101-00000{number}-x-0000", "m1", 1.0 + number / 100)
    write_run(tmp_path, "20260101-000009-x-0000", "m2", 9.0)
    return tmp_path


def write_run(home: Path, id: str, machines: str, time: float, **changes: Any) -> None:
    folder = home / "runs" / id
    folder.mkdir(parents=True)
    part = make_case("a", {"time_ms": time}, launches=[1], medians={"time_ms": [time]}, **changes)
    environment = {"fingerprint": {"id": machines}}
    report = {"schema": "spbench.report/1", "environment": environment}
    text = json.dumps(report | {"cases": [part.model_dump(mode="json")]})
    (folder / "report.json").write_text(text)
    (folder / "events.jsonl").touch()
    (folder / "run.json").write_text(json.dumps({"id": id, "verdict": "passed"}))


def test_past_launches_are_of_other_runs_on_the_same_machines(home: Path) -> None:
    a = make_past_run("m1", "20260101-000000-x-0000")
    b = make_past_run("m1", "another")
    launches = make_past_lookup(home, a, b)
    assert list(launches("a", "time_ms")) == [[1.0 + number / 100] for number in range(1, 8)]
    assert list(launches("a", "skew")) == list(launches("b", "time_ms")) == []


def test_case_with_different_work_has_no_past_launches(home: Path) -> None:
    a = make_past_run("m1", "x")
    b = make_past_run("m1", "y")
    before = list(make_past_lookup(home, a, b)("a", "time_ms"))
    write_run(home, "20260102-000001-y-0000", "m1", 50.0, params={"halo_len": 7})
    write_run(home, "20260102-000002-y-0000", "m1", 50.0, np=8)
    write_run(home, "20260102-000003-y-0000", "m1", 50.0, benchmark="other.one")
    assert list(make_past_lookup(home, a, b)("a", "time_ms")) == before
    write_run(home, "20260102-000004-y-0000", "m1", 1.5, params={"halo_len": 1, "seed": 7})
    assert list(make_past_lookup(home, a, b)("a", "time_ms")) == [*before, [1.5]]


def test_ignores_runs_later_than_both(home: Path) -> None:
    a, b = (make_past_run("m1", f"20260101-00000{number}-x-0000") for number in (1, 4))
    baseline = replace(make_past_run("m1", "main"), made_of=(a.summary.id,))
    for first, second in ((a, b), (b, a), (baseline, b)):
        launches = make_past_lookup(home, first, second)
        assert list(launches("a", "time_ms")) == [[1.0], [1.02], [1.03]]


def test_run_with_an_injected_fault_has_no_past_launches(home: Path) -> None:
    a = make_past_run("m1", "x")
    b = make_past_run("m1", "y")
    slowed = replace(b, summary=replace(b.summary, argv=("run", "x.yaml", "--inject", "slow=1.1")))
    assert list(make_past_lookup(home, slowed, a)("a", "time_ms")) == []
    assert list(make_past_lookup(home, a, slowed)("a", "time_ms"))


@pytest.mark.parametrize("machines", [("m1", "m2"), ("m3", "m3"), ("", "")])
def test_different_machines_have_no_past_launches(home: Path, machines: tuple[str, str]) -> None:
    launches = make_past_lookup(
        home, make_past_run(machines[0], "x"), make_past_run(machines[1], "y")
    )
    assert list(launches("a", "time_ms")) == []


def test_variation_of_earlier_runs_judges_single_launches(home: Path, messages) -> None:
    a = make_past_run("m1", "x", 1.0)
    b = make_past_run("m1", "y", 1.6)
    [row] = compare(a, b, make_past_lookup(home, a, b)).rows
    assert (row.outcome, row.by_factor) == ("worse", True)
    messages.check(row.reason)
    [row] = compare(a, make_past_run("m1", "z", 1.05), make_past_lookup(home, a, b)).rows
    assert row.outcome == "not enough samples"
