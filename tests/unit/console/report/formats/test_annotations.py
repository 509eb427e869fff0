"""Annotations of failed cases for GitHub."""

from spbench.record.runs.folder import RunFolder
from spbench.report.formats.annotations import MAX_ANNOTATIONS, find_case_lines, render_annotations
from support.sample_runs import make_case, make_run

SUITE = """\
# A suite
schema: spbench.suite/1
name: made-up
cases:
  - name: first
    benchmark: halo.exchange
  - {benchmark: halo.exchange, name: second}
"""


def make_recorded_run(folder, *cases, **summary):
    (folder / "suite.yaml").write_text(SUITE)
    return make_run(*cases, **{"folder": RunFolder(folder), "file": "suites/a.yaml"} | summary)


def test_failed_cases_are_annotated_at_their_lines(tmp_path, messages):
    text = render_annotations(
        make_recorded_run(
            tmp_path,
            make_case("first[n=1]"),
            make_case("first[n=2]", status="failed", reason="halo: 3 % off,\nrank 1"),
            make_case("second", status="error", reason="rank 0 died"),
            make_case("second[n=3]", status="skipped", reason="not reached"),
        )
    )
    messages.check(text.splitlines())


def test_passed_run_has_no_annotations(tmp_path):
    assert render_annotations(make_recorded_run(tmp_path, make_case("first"))) == ""


def test_last_annotation_counts_the_rest(tmp_path):
    lost = [make_case(f"first[n={n}]", status="error", reason="died") for n in range(25)]
    lines = render_annotations(make_recorded_run(tmp_path, *lost)).splitlines()
    assert len(lines) == MAX_ANNOTATIONS
    assert lines[-1].endswith("::and 16 more did not pass")


def test_path_is_relative_to_the_current_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lost = make_case("first", status="error", reason="died")
    text = render_annotations(
        make_recorded_run(tmp_path, lost, file=str(tmp_path / "suites" / "a.yaml"))
    )
    assert text.startswith("::error file=suites/a.yaml,line=5,")


def test_hostile_names_cannot_end_an_annotation(tmp_path):
    text = render_annotations(
        make_recorded_run(tmp_path, make_case("x,line=9::y\r\n::error ::z", {}, status="error"))
    )
    assert text.count("\n") == 1
    assert text.startswith("::error file=suites/a.yaml,title=x%2Cline=9%3A%3Ay%0A")


def test_run_without_its_suite_has_no_lines(tmp_path):
    assert find_case_lines(make_run(make_case("first"), folder=RunFolder(tmp_path))) == {}
    (tmp_path / "suite.yaml").write_text("cases: [")
    assert find_case_lines(make_run(make_case("first"), folder=RunFolder(tmp_path))) == {}
