"""Tests of `spbench baseline`, and of commands that compare with a baseline."""

import json

import pytest

from spbench.cli.runs import run
from spbench.engine.run import EndedRun
from spbench.errors import ExitCode
from spbench.record.runs.notes import RunNote, read_note, write_note
from spbench.report.document import ReportDocument
from support.paths import SUITES
from support.sample_events import make_complete_run, record_run

HALO = str(SUITES / "halo.yaml")


@pytest.fixture
def main(spbench, home):
    """Record a run of one case and set it as the baseline main."""
    folder = record_run(home, make_complete_run(), verdict="passed")
    assert spbench("baseline", "set", "main").status == 0
    return folder


def test_baseline_is_set_listed_shown_and_removed(spbench, home, main):
    path = home / "baselines" / "main.json"
    assert json.loads(path.read_text())["runs"] == [main.id]
    assert spbench("baseline", "list").out.startswith("main ")
    shown = spbench("baseline", "show", "main").out
    assert "a: halo.exchange, 2 ranks\n  time  " in shown
    assert spbench("baseline", "remove", "main").out == f"removed {path}\n"
    assert spbench("baseline", "list").out == ""


def test_baseline_is_replaced_only_with_force(spbench, main):
    assert "--force replaces a baseline" in spbench("baseline", "set", "main").error_line
    assert spbench("baseline", "set", "main", "--force").status == 0


def test_compare_accepts_a_baseline(spbench, home, main, messages):
    for name in ("main", str(home / "baselines" / "main.json")):
        done = spbench("compare", name, "last", "--format", "json")
        assert done.status == 0
        assert json.loads(done.out)["a"]["id"] == "main"
    messages.check(spbench("report", "--format", "html", "--baseline", "x").err)


def test_html_report_compares_with_the_baseline(spbench, main, messages):
    page = spbench("report", "--format", "html", "--baseline", "main").out
    assert "Comparison with the baseline" in page
    assert "Comparison with the baseline" not in spbench("report", "--format", "html").out
    refused = spbench("report", "--format", "csv", "--baseline", "main").error_line
    messages.check(refused)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--baseline", "x"], "there is no baseline 'x'"),
        (["--fail-on", "any"], "--fail-on needs a baseline to compare with"),
        (["--max-unjudged", "1"], "--max-unjudged needs a baseline to compare with"),
    ],
)
def test_run_rejects_invalid_baseline_options(spbench, home, args, message):
    done = spbench("run", HALO, *args)
    assert (done.status, message in done.error_line) == (2, True)
    assert not (home / "runs").exists()


@pytest.mark.parametrize(("writable", "status"), [(True, 6), (False, 4)])
def test_unwritable_report_takes_precedence_over_6(
    spbench, tmp_path, main, writable, status, monkeypatch
):
    report = {"run": {"verdict": "passed", "exit_code": 0}, "cases": [], "errors": []}
    outcome = EndedRun(main, ExitCode.PASSED, ReportDocument.from_json(report))
    monkeypatch.setattr(run, "execute_plan", lambda *_, **__: outcome)
    (tmp_path / "file").write_text("")
    target = tmp_path / ("out.json" if writable else "file/out.json")
    assert spbench("run", HALO, "--baseline", "main", "--json", str(target)).status == status


@pytest.mark.parametrize(
    ("args", "before", "note"),
    [
        ([], "", "fails baseline main: 0 of 1 case judged, 1 not judged"),
        ([], "new driver", "new driver"),
        (["--fail-on", "never"], "", ""),
    ],
)
def test_run_that_fails_its_baseline_has_a_note(spbench, main, args, before, note, monkeypatch):
    report = {"run": {"verdict": "passed", "exit_code": 0}, "cases": [], "errors": []}
    outcome = EndedRun(main, ExitCode.PASSED, ReportDocument.from_json(report))
    monkeypatch.setattr(run, "execute_plan", lambda *_, **__: outcome)
    write_note(main, RunNote(before))
    spbench("run", HALO, "--baseline", "main", *args)
    assert read_note(main) == RunNote(note)


def test_gate_check_accepts_a_baseline_with_checks(spbench, main, messages):
    done = spbench("gate", "check", "main")
    assert done.status == 6  # there is only one launch
    messages.check(done.out)
    assert "Traceback" not in done.err


def test_baseline_with_few_launches_gives_a_warning(spbench, home, messages):
    record_run(home, make_complete_run(), verdict="passed")
    done = spbench("baseline", "set", "main")
    assert done.status == 0
    messages.check(done.err)


@pytest.mark.parametrize(
    ("args", "status"),
    [(["--fail-on", "never"], "passed"), ([], "failed"), (["--fail-on", "any"], "failed")],
)
@pytest.mark.parametrize("kind", ["html", "md", "junit", "annotations"])
def test_formats_show_a_failed_baseline_as_failed(spbench, main, kind, args, status):
    shown = spbench("report", "--format", kind, "--baseline", "main", *args).out
    is_verdict = kind == "html"  # the heading of a page always has it
    assert ("judged against main" in shown) == (status == "failed" or is_verdict)
    assert ("0 of 1 case judged" in shown) == (kind != "annotations")
    if kind == "junit":
        assert f'name="verdict" value="{status}"' in shown


@pytest.mark.parametrize(
    ("kind", "word"), [("html", "not judged"), ("md", "not judged"), ("junit", "unjudged")]
)
def test_reports_call_a_case_not_judged(spbench, main, kind, word):
    shown = spbench("report", "--format", kind, "--baseline", "main").out
    assert f"against baseline main: 0 of 1 case judged, 1 {word}" in shown
    assert ("unjudged" in shown.replace("--max-unjudged", "")) == (word == "unjudged")


def test_show_formats_metrics_and_marks_noisy_efficiencies(spbench, home, main):
    path = home / "baselines" / "main.json"
    baseline = json.loads(path.read_text())
    (case,) = baseline["cases"]
    figures = {"better": "higher", "n": 1, "min": 0.1, "max": 0.9}
    case["metrics"] = {
        "bandwidth_gb_s": {"unit": "GB/s", "value": 0.163, "launches": [0.163], **figures},
        "exchange_efficiency": {"unit": "1", "value": 0.7, "launches": [0.7, 0.69], **figures},
    }
    for noisy, sign in ((None, ""), ("load", "~")):
        path.write_text(json.dumps(baseline | {"cases": [case | {"noisy": noisy}]}))
        _, *rows = spbench("baseline", "show", "main").out.partition("a: ")[2].splitlines()
        assert [" ".join(row.split()) for row in rows] == [
            "bandwidth 163 MB/s launches 163 MB/s",
            f"exchange efficiency {sign}70 % follows from the times",
        ]


def test_prune_keeps_runs_of_a_baseline(spbench, home, main, messages):
    out = spbench("results", "prune", "--keep", "0", "--yes").out
    messages.check(out)
