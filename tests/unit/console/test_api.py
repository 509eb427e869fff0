import sys

import pytest

import spbench
from spbench.errors import FailedRunError, MissingError, UsageError
from spbench.report.frames import make_frame, write_parquet
from unit.events import recorded, whole_run
from unit.results import case, figure, run

CASES = run(
    case("a", {"time_ms": figure(2.0, n=3)}, params={"n": 1, "on": True, "sizes": [8]}),
    case("b", {}, params={"n": "2x2"}, status="error", reason="it broke"),
)


@pytest.fixture
def folder(tmp_path):
    return recorded(tmp_path / "run", whole_run())


def test_a_run_is_read_by_its_folder_and_a_report_by_its_file(folder, tmp_path):
    found = spbench.load_run(folder.path)
    assert found.id == folder.id
    assert found.verdict
    assert {row["case"] for row in found.rows()} == set(found.cases)
    assert found.samples()
    with pytest.raises(UsageError, match="is no folder of a run"):
        spbench.load_run(tmp_path)
    with pytest.raises(UsageError, match="is no report"):
        spbench.load_run(tmp_path / "nothing")


def test_frames_have_the_rows_and_times_of_a_kind(folder):
    pytest.importorskip("pandas")
    found = spbench.load_run(folder.path)
    frame = found.frame()
    assert len(frame) == len(found.rows())
    assert str(frame["started"].dtype).endswith("UTC]")
    samples = found.frame("samples")
    assert list(samples.columns) == ["run", "case", "metric", "repeat", "iteration", "value"]
    assert len(samples) == len(found.samples())
    assert found.frame("points") is not None


def test_parquet_gives_back_what_was_written(tmp_path):
    pandas = pytest.importorskip("pandas", reason="pandas is not installed: extra frames")
    write_parquet(CASES, tmp_path / "run.parquet")
    read = pandas.read_parquet(tmp_path / "run.parquet")
    assert list(read["case"]) == ["a", "b"]
    assert read["value"][0] == 2.0
    assert list(read["params.n"]) == ["1", "2x2"]
    assert [path.name for path in tmp_path.iterdir()] == ["run.parquet"]
    with pytest.raises(FailedRunError, match="cannot write"):
        write_parquet(CASES, tmp_path / "nowhere" / "run.parquet")


def test_without_pandas_its_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingError, match=r"pip install 'spbench\[frames\]'"):
        make_frame(CASES)
