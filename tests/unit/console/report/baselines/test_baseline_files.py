"""Files of baselines: names, contents and damage."""

import json

import pytest

from spbench.errors import UsageError
from spbench.record.runs.folder import RunFolder
from spbench.report.baselines import files
from spbench.report.baselines.creation import make_baseline, make_baseline_run
from spbench.report.comparison.compare import compare
from spbench.report.recorded import load_run
from support.paths import RECORDED_RUNS
from support.sample_runs import make_case, make_run

BASELINE, _ = make_baseline("main", make_run(make_case("a", {"time_ms": 1.0})))


def test_saved_baseline_can_be_loaded(tmp_path):
    assert files.save_baseline(tmp_path, "main", BASELINE) == tmp_path / "baselines/main.json"
    assert files.load_baseline(tmp_path, "main") == BASELINE
    assert files.list_baseline_names(tmp_path) == ["main"]
    path = tmp_path / "elsewhere" / "b.json"
    files.save_baseline(tmp_path, str(path), BASELINE)
    assert files.load_baseline(tmp_path, str(path)) == BASELINE


@pytest.mark.parametrize("name", ["../x", "a/b", ".x", "", "a b", "\x1b[2J", "a" * 101])
def test_rejects_an_invalid_baseline_name(tmp_path, name, messages):
    with messages.raises(UsageError):
        files.baseline_path(tmp_path, name)


@pytest.mark.parametrize("name", ["last", "last~1", "20260101", "20260101-120000-halo-1f3a"])
def test_rejects_a_baseline_name_that_names_a_run(tmp_path, name, messages):
    with messages.raises(UsageError):
        files.baseline_path(tmp_path, name)


def test_unknown_name_suggests_an_existing_one(tmp_path, messages):
    files.save_baseline(tmp_path, "main", BASELINE)
    with messages.raises(UsageError):
        files.load_baseline(tmp_path, "mian")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "cannot be read"),
        ("[]", "is no baseline of spbench"),
        ('{"schema": "spbench.report/1"}', "is no baseline of spbench: schema"),
        ('{"schema": "spbench.baseline/2"}', "of the format spbench.baseline/2, and this spbench"),
        (json.dumps({"schema": "spbench.baseline/1", "name": "x"}), "is no baseline of spbench"),
    ],
)
def test_rejects_a_file_that_is_not_a_baseline(tmp_path, text, message):
    path = tmp_path / "b.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=message):
        files.load_baseline(tmp_path, str(path))


def test_ignores_fields_of_a_later_version(tmp_path):
    path = tmp_path / "b.json"
    path.write_text(json.dumps(json.loads(BASELINE.model_dump_json(by_alias=True)) | {"more": 1}))
    assert files.load_baseline(tmp_path, str(path)) == BASELINE


def test_accepts_missing_fields_of_an_earlier_version(tmp_path):
    content = json.loads(BASELINE.model_dump_json(by_alias=True))
    for key in ("runs", "spbench", "environment"):
        del content[key]
    path = tmp_path / "b.json"
    path.write_text(json.dumps(content))
    assert files.load_baseline(tmp_path, str(path)).cases == BASELINE.cases


def test_does_not_remove_or_overwrite_another_file(tmp_path, messages):
    path = tmp_path / "report.json"
    path.write_text('{"schema": "spbench.report/1"}')
    with messages.raises(UsageError):
        files.remove_baseline(tmp_path, str(path))
    with messages.raises(UsageError):
        files.save_baseline(tmp_path, str(path), BASELINE)
    assert path.read_text() == '{"schema": "spbench.report/1"}'


def test_damaged_baseline_can_be_removed_or_replaced_by_name(tmp_path):
    path = files.save_baseline(tmp_path, "main", BASELINE)
    path.write_text('{"schema": "spb')
    files.save_baseline(tmp_path, "main", BASELINE)
    assert files.load_baseline(tmp_path, "main") == BASELINE
    path.write_text("")
    assert files.remove_baseline(tmp_path, "main") == path
    assert not path.exists()


def test_lists_all_baselines_if_one_is_damaged(tmp_path):
    files.save_baseline(tmp_path, "main", BASELINE)
    (tmp_path / "baselines/zero.json").write_text("")
    (name, good), (other, bad) = files.load_baselines(tmp_path)
    assert (name, good, other) == ("main", BASELINE, "zero")
    assert isinstance(bad, UsageError)


def test_first_baseline_format_can_be_read_and_compared(tmp_path):
    path = RECORDED_RUNS.parent / "baselines" / "schema-1.json"
    first = make_baseline_run(files.load_baseline(tmp_path, str(path)), path)
    comparison = compare(first, load_run(RunFolder(RECORDED_RUNS / "schema-1")))
    assert {row.case for row in comparison.rows} == set(first.cases)
    assert all(row.ratio == 1 for row in comparison.rows if row.ratio)
