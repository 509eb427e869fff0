"""`spbench report`, and the reports that `spbench run` writes at its end."""

import json
from xml.etree import ElementTree

import pytest

from places import SUITES
from spbench.report.build import build_report
from spbench.report.formats.writing import FORMATS
from unit.events import recorded, whole_run

HALO = str(SUITES / "halo.yaml")


@pytest.mark.parametrize("kind", FORMATS)
def test_a_report_goes_to_a_file_as_to_stdout(spbench, home, tmp_path, kind):
    recorded(home, whole_run())
    status, told, err = spbench("report", "last", "--format", kind)
    assert (status, err) == (0, "")
    path = tmp_path / "new" / f"report.{kind}"
    assert spbench("report", "--format", kind, "-o", str(path)) == (0, "", "")
    assert path.read_text() == told
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
def test_takes_the_format_from_the_suffix_of_the_output(spbench, home, tmp_path, name, kind):
    recorded(home, whole_run())
    path = tmp_path / name
    assert spbench("report", "last", "-o", str(path)) == (0, "", "")
    assert path.read_text() == spbench("report", "last", "--format", kind).out


def test_an_explicit_format_wins_over_the_suffix(spbench, home, tmp_path):
    recorded(home, whole_run())
    path = tmp_path / "x.html"
    assert spbench("report", "--format", "csv", "-o", str(path)) == (0, "", "")
    assert path.read_text() == spbench("report", "--format", "csv").out


def test_a_report_is_made_of_a_reports_file_too(spbench, home, tmp_path):
    folder = recorded(home, whole_run())
    copy = tmp_path / "copy.json"
    copy.write_bytes(folder.report.read_bytes()) if folder.report.exists() else None

    copy.write_text(json.dumps(build_report(folder.replay())))
    assert spbench("report", str(copy), "--format", "junit")[0] == 0


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--format", "junti"], "there is no format 'junti' (did you mean junit?)"),
        (["last~3"], "none of them last~3"),
        (["--output", "."], "--output .: cannot write to a folder"),
    ],
)
def test_a_report_of_wrong_words_is_refused(spbench, home, words, named):
    recorded(home, whole_run())
    status, out, err = spbench("report", *words)
    assert (status, out) == (2, "")
    assert named in err


def test_a_run_that_is_refused_leaves_its_reports(spbench, tmp_path):
    path = tmp_path / "junit.xml"
    status, _, err = spbench("run", HALO, "-k", "nothing", "--junit", str(path))
    assert (status, err.count("\n")) == (5, 1)
    top = ElementTree.parse(path).getroot()
    assert "selects none of the 12 cases" in top.find(".//testcase/error").text


def test_a_run_of_unknown_words_leaves_its_reports(spbench, tmp_path):
    path = tmp_path / "junit.xml"
    status, *_ = spbench("run", HALO, "--junit", str(path), "--bogus")
    assert status == 2
    assert "--bogus" in ElementTree.parse(path).getroot().find(".//testcase/error").text


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--junit", "-"], "--junit -: the run's lines go to stdout; name a file"),
        (["--junit", "."], "--junit .: cannot write to a folder"),
        (["--junit", "x.xml", "--dry-run"], "--dry-run runs nothing that --junit could report"),
    ],
)
def test_where_a_report_cannot_go_nothing_is_run(
    spbench, home, tmp_path, monkeypatch, words, named
):
    monkeypatch.chdir(tmp_path)
    status, out, err = spbench("run", HALO, *words)
    assert (status, out) == (2, "")
    assert named in err
    assert not home.exists()
