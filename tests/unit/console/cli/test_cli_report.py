"""Tests of `spbench report`, and of the reports that `spbench run` writes."""

import json
from xml.etree import ElementTree

import pytest

from spbench.report.build import build_report
from spbench.report.formats.writing import FORMATS
from support.paths import SUITES
from support.sample_events import make_complete_run, record_run

HALO = str(SUITES / "halo.yaml")


@pytest.mark.parametrize("kind", FORMATS)
def test_file_and_stdout_have_the_same_report(spbench, home, tmp_path, kind):
    record_run(home, make_complete_run())
    status, out, err = spbench("report", "last", "--format", kind)
    assert (status, err) == (0, "")
    path = tmp_path / "new" / f"report.{kind}"
    assert spbench("report", "--format", kind, "-o", str(path)) == (0, "", "")
    assert path.read_text() == out
    assert [file.name for file in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("x.html", "html"),
        ("x.HTM", "html"),
        ("x.csv", "csv"),
        ("x.xml", "junit"),
        ("x.prom", "openmetrics"),
        ("x.json", "md"),
        ("x", "md"),
    ],
)
def test_suffix_of_the_output_selects_the_format(spbench, home, tmp_path, name, kind):
    record_run(home, make_complete_run())
    path = tmp_path / name
    assert spbench("report", "last", "-o", str(path)) == (0, "", "")
    assert path.read_text() == spbench("report", "last", "--format", kind).out


def test_explicit_format_overrides_the_suffix(spbench, home, tmp_path):
    record_run(home, make_complete_run())
    path = tmp_path / "x.html"
    assert spbench("report", "--format", "csv", "-o", str(path)) == (0, "", "")
    assert path.read_text() == spbench("report", "--format", "csv").out


def test_report_accepts_a_report_file(spbench, home, tmp_path):
    folder = record_run(home, make_complete_run())
    copy = tmp_path / "copy.json"
    copy.write_bytes(folder.report.read_bytes()) if folder.report.exists() else None

    copy.write_text(json.dumps(build_report(folder.replay())))
    assert spbench("report", str(copy), "--format", "junit")[0] == 0


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--format", "junti"], "there is no format 'junti' (did you mean junit?)"),
        (["last~3"], "none of them last~3"),
        (["--output", "."], "--output .: cannot write to a folder"),
    ],
)
def test_report_rejects_invalid_options(spbench, home, args, message):
    record_run(home, make_complete_run())
    status, out, err = spbench("report", *args)
    assert (status, out) == (2, "")
    assert message in err


def test_rejected_run_writes_its_reports(spbench, tmp_path, messages):
    path = tmp_path / "junit.xml"
    status, _, err = spbench("run", HALO, "-k", "nothing", "--junit", str(path))
    assert (status, err.count("\n")) == (5, 1)
    top = ElementTree.parse(path).getroot()
    messages.check(top.find(".//testcase/error").text)


def test_run_with_unknown_arguments_writes_its_reports(spbench, tmp_path):
    path = tmp_path / "junit.xml"
    status, *_ = spbench("run", HALO, "--junit", str(path), "--bogus")
    assert status == 2
    assert "--bogus" in ElementTree.parse(path).getroot().find(".//testcase/error").text


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--junit", "-"], "--junit -: the run's lines go to stdout; name a file"),
        (["--junit", "."], "--junit .: cannot write to a folder"),
        (["--junit", "x.xml", "--dry-run"], "--dry-run runs nothing that --junit could report"),
    ],
)
def test_unwritable_report_prevents_the_run(spbench, home, tmp_path, monkeypatch, args, message):
    monkeypatch.chdir(tmp_path)
    status, out, err = spbench("run", HALO, *args)
    assert (status, out) == (2, "")
    assert message in err
    assert not home.exists()
