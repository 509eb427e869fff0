"""Tests of the Python API: loading runs, frames and Parquet."""

import sys

import pytest

import spbench
from spbench.errors import FailedRunError, MissingError, UsageError
from spbench.report.frames import make_frame, write_parquet
from support.sample_events import make_complete_run, record_run
from support.sample_runs import make_case, make_metric, make_run

CASES = make_run(
    make_case("a", {"time_ms": make_metric(2.0, n=3)}, params={"n": 1, "on": True, "sizes": [8]}),
    make_case("b", {}, params={"n": "2x2"}, status="error", reason="it broke"),
)


@pytest.fixture
def folder(tmp_path):
    return record_run(tmp_path / "run", make_complete_run())


def test_loads_a_run_from_its_folder(folder, tmp_path, messages):
    loaded = spbench.load_run(folder.path)
    assert loaded.id == folder.id
    assert loaded.verdict
    assert {row["case"] for row in loaded.rows()} == set(loaded.cases)
    assert loaded.samples()
    with messages.raises(UsageError):
        spbench.load_run(tmp_path)
    with messages.raises(UsageError):
        spbench.load_run(tmp_path / "nothing")


def test_frames_have_the_rows_and_times(folder):
    pytest.importorskip("pandas")
    loaded = spbench.load_run(folder.path)
    frame = loaded.frame()
    assert len(frame) == len(loaded.rows())
    assert str(frame["started"].dtype).endswith("UTC]")
    samples = loaded.frame("samples")
    assert list(samples.columns) == ["run", "case", "metric", "repeat", "iteration", "value"]
    assert len(samples) == len(loaded.samples())
    assert loaded.frame("points") is not None


def test_parquet_round_trips(tmp_path):
    pandas = pytest.importorskip("pandas", reason="pandas is not installed: extra frames")
    write_parquet(CASES, tmp_path / "run.parquet")
    table = pandas.read_parquet(tmp_path / "run.parquet")
    assert list(table["case"]) == ["a", "b"]
    assert table["value"][0] == 2.0
    assert list(table["params.n"]) == ["1", "2x2"]
    assert [path.name for path in tmp_path.iterdir()] == ["run.parquet"]
    with pytest.raises(FailedRunError, match="cannot write"):
        write_parquet(CASES, tmp_path / "nowhere" / "run.parquet")


def test_missing_pandas_names_its_extra(monkeypatch, messages):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with messages.raises(MissingError):
        make_frame(CASES)
