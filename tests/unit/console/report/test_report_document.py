import json
import tracemalloc
from pathlib import Path

import pytest
from benchmarks.made_up_run import write_cases

from spbench.errors import FailedRunError
from spbench.record.runs.folder import RunFolder, write_chunks
from spbench.report.build import build_cases, build_document, build_refused_report, build_report
from spbench.report.document import PackedCases, ReportDocument, dump_json
from spbench.report.model import Report
from unit.events import rank_event, run_start, started, state_of, whole_run

ODD_TEXT = 'a "quoted"\nline\twith \\ and \x00, \u00e9, \u2028 and \U0001f600'


def whole_text(report):
    """Return a report as one call of json.dumps writes it."""
    return json.dumps(report, indent=1, allow_nan=False) + "\n"


def text_of(document, **options):
    return "".join(document.chunks(**options))


@pytest.fixture
def swept_run(tmp_path):
    folder = RunFolder(tmp_path / "runs" / "20260101-000001-swept-0001")
    write_cases(folder.path, 30, 4, 3, 2)
    return folder


def test_the_stream_is_the_text_of_one_dump(swept_run):
    state = swept_run.replay()
    report = build_report(state)
    validated = Report.model_validate(report).model_dump(mode="json", by_alias=True)
    document = build_document(state, build_cases(state)[0])
    assert text_of(document) == whole_text(report) == whole_text(validated)
    assert len(report["cases"]) == 30
    assert document.to_json() == report


@pytest.mark.parametrize("events", [whole_run(), [run_start()], started()])
def test_runs_of_any_state_are_written_alike(events):
    report = build_report(state_of(events))
    assert text_of(ReportDocument.from_json(report)) == whole_text(report)


@pytest.mark.parametrize(
    "cases",
    [
        [],
        [{}],
        [{"id": ODD_TEXT, "samples": {"t": [[1e-5, 1e16, 0.1, -0.0], []]}, "n": 2**70}],
        [{"id": "a", "params": {}}, {"id": "b", "ranks": [[], [[]], {}]}, {"id": "c"}],
    ],
)
def test_any_text_and_number_is_written_as_by_one_dump(cases):
    head = {"schema": "x", "run": {"suite": ODD_TEXT}, "cases": cases, "hosts": [], "errors": []}
    document = ReportDocument.from_json(head)
    assert text_of(document) == whole_text(head)
    bare = [case | {"samples": {}} for case in cases]
    assert text_of(document, with_samples=False) == whole_text(head | {"cases": bare})


def test_a_report_of_a_run_that_was_refused_is_written_alike():
    report = build_refused_report("no hosts", 3, ["run"])
    assert text_of(ReportDocument.from_json(report)) == whole_text(report)


def test_another_head_keeps_the_cases():
    report = build_report(state_of(whole_run()))
    document = ReportDocument.from_json(report)
    changed = document.with_head(document.head | {"comparison": {"a": 1}})
    assert text_of(changed) == whole_text(report | {"comparison": {"a": 1}})


def test_a_number_that_json_lacks_is_rejected():
    with pytest.raises(ValueError, match="JSON"):
        dump_json({"a": float("nan")})


def test_a_case_that_json_cannot_hold_is_an_error():
    """Parameters may be anything, and are written as they are."""
    state = state_of(started())
    state.cases["a"].identity.params["x"] = float("inf")
    cases, misfits = build_cases(state)
    (case,) = cases
    assert case["status"] == "error"
    assert misfits == [("a", case["reason"])]


def test_a_case_that_does_not_fit_is_returned_with_its_reason():
    wrong = [rank_event("samples", rank, values=[float("nan")]) for rank in (0, 1)]
    _, misfits = build_cases(state_of([*started(), *wrong]))
    ((case, reason),) = misfits
    assert case == "a"
    assert "finite number" in reason


def test_writing_needs_a_fraction_of_the_text(swept_run, tmp_path):
    # 300 cases more of the same, since small runs do not show what grows.
    state = swept_run.replay()
    texts = list(build_cases(state)[0].texts())
    document = build_document(state, PackedCases(text for text in texts for _ in range(10)))
    path = tmp_path / "report.json"
    tracemalloc.start()
    try:
        write_chunks(path, document.chunks())
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert path.stat().st_size > 1e6
    assert peak < path.stat().st_size / 5


# The file


def test_chunks_are_written_at_once(tmp_path):
    path = tmp_path / "folder" / "file"
    write_chunks(path, ["a", "é"])
    assert path.read_text(encoding="utf-8") == "aé"
    assert [child.name for child in path.parent.iterdir()] == ["file"]


@pytest.mark.parametrize("error", [RuntimeError("defect"), KeyboardInterrupt()])
def test_a_text_that_ends_early_leaves_the_old_file(tmp_path, error):
    def chunks():
        yield "new"
        raise error

    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(type(error)):
        write_chunks(path, chunks())
    assert path.read_text() == "old"
    assert [child.name for child in tmp_path.iterdir()] == ["file"]


def test_a_full_disk_ends_the_stream():
    with pytest.raises(FailedRunError, match="cannot write /dev/full: No space left on device"):
        write_chunks(Path("/dev/full"), ["x" * 9000])
