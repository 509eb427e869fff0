"""The files of baselines: their names, and what they may hold."""

import json

import pytest

from places import RUNS
from spbench.errors import UsageError
from spbench.record.runs.folder import RunFolder
from spbench.report.baselines import files
from spbench.report.baselines.making import make_baseline, make_baseline_run
from spbench.report.comparison.compare import compare
from spbench.report.recorded import load_run
from unit.results import case, run

MADE, _ = make_baseline("main", run(case("a", {"time_ms": 1.0})))


def test_what_was_saved_is_read(tmp_path):
    assert files.save_baseline(tmp_path, "main", MADE) == tmp_path / "baselines/main.json"
    assert files.load_baseline(tmp_path, "main") == MADE
    assert files.list_baseline_names(tmp_path) == ["main"]
    path = tmp_path / "elsewhere" / "b.json"
    files.save_baseline(tmp_path, str(path), MADE)
    assert files.load_baseline(tmp_path, str(path)) == MADE


@pytest.mark.parametrize("name", ["../x", "a/b", ".x", "", "a b", "\x1b[2J", "a" * 101])
def test_a_name_stays_in_its_folder(tmp_path, name):
    with pytest.raises(UsageError, match="cannot name a baseline: use letters"):
        files.baseline_path(tmp_path, name)


@pytest.mark.parametrize("name", ["last", "last~1", "20260101", "20260101-120000-halo-1f3a"])
def test_a_word_that_names_runs_names_no_baseline(tmp_path, name):
    with pytest.raises(UsageError, match="cannot name a baseline: it names a run"):
        files.baseline_path(tmp_path, name)


def test_an_unknown_name_is_told_with_those_that_there_are(tmp_path):
    files.save_baseline(tmp_path, "main", MADE)
    with pytest.raises(UsageError, match=r"there is no baseline 'mian' .*did you mean main"):
        files.load_baseline(tmp_path, "mian")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "cannot be read"),
        ("[]", "is no baseline of spbench"),
        ('{"schema": "spbench.report/1"}', "is no baseline of spbench: schema"),
        ('{"schema": "spbench.baseline/2"}', "of the format spbench.baseline/2, and this spbench"),
        (json.dumps({"schema": "spbench.baseline/1", "name": "x"}), "is no baseline of spbench"),
    ],
)
def test_a_file_that_is_none_is_a_sentence(tmp_path, text, told):
    path = tmp_path / "b.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=told):
        files.load_baseline(tmp_path, str(path))


def test_what_a_later_version_adds_is_passed_over(tmp_path):
    path = tmp_path / "b.json"
    path.write_text(json.dumps(json.loads(MADE.model_dump_json(by_alias=True)) | {"more": 1}))
    assert files.load_baseline(tmp_path, str(path)) == MADE


def test_what_a_former_version_lacks_is_not_needed(tmp_path):
    content = json.loads(MADE.model_dump_json(by_alias=True))
    for key in ("runs", "spbench", "environment"):
        del content[key]
    path = tmp_path / "b.json"
    path.write_text(json.dumps(content))
    assert files.load_baseline(tmp_path, str(path)).cases == MADE.cases


def test_a_file_that_is_something_else_is_not_removed(tmp_path):
    path = tmp_path / "report.json"
    path.write_text('{"schema": "spbench.report/1"}')
    with pytest.raises(UsageError, match="is no baseline of spbench; it stays"):
        files.remove_baseline(tmp_path, str(path))
    with pytest.raises(UsageError, match="is no baseline of spbench; it stays"):
        files.save_baseline(tmp_path, str(path), MADE)
    assert path.read_text() == '{"schema": "spbench.report/1"}'


def test_a_damaged_baseline_of_the_home_is_removed_or_replaced_by_its_name(tmp_path):
    path = files.save_baseline(tmp_path, "main", MADE)
    path.write_text('{"schema": "spb')
    files.save_baseline(tmp_path, "main", MADE)
    assert files.load_baseline(tmp_path, "main") == MADE
    path.write_text("")
    assert files.remove_baseline(tmp_path, "main") == path
    assert not path.exists()


def test_each_baseline_is_told_also_where_one_is_damaged(tmp_path):
    files.save_baseline(tmp_path, "main", MADE)
    (tmp_path / "baselines/zero.json").write_text("")
    (name, good), (other, bad) = files.load_baselines(tmp_path)
    assert (name, good, other) == ("main", MADE, "zero")
    assert isinstance(bad, UsageError)


def test_the_first_baseline_that_was_ever_written_is_read_and_compared(tmp_path):
    path = RUNS.parent / "baselines" / "schema-1.json"
    first = make_baseline_run(files.load_baseline(tmp_path, str(path)), path)
    compared = compare(first, load_run(RunFolder(RUNS / "schema-1")))
    assert {row.case for row in compared.rows} == set(first.cases)
    assert all(row.ratio == 1 for row in compared.rows if row.ratio)
