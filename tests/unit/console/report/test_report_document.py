"""Reports written case by case, with the text of a single dump."""

import json
import tracemalloc
from pathlib import Path

import pytest
from benchmarks.synthetic_run import write_cases

from spbench.errors import FailedRunError
from spbench.record.runs.files import write_chunks
from spbench.record.runs.folder import RunFolder
from spbench.report.build import build_cases, build_document, build_rejected_report, build_report
from spbench.report.document import PackedCases, ReportDocument, dump_json
from spbench.report.model import Report
from support.sample_events import (
    build_state,
    make_complete_run,
    make_started_run,
    rank_event,
    run_start,
)

ODD_TEXT = 'a "quoted"\nline\twith \\ and \x00, \u00e9, \u2028 and \U0001f600'


def dump_at_once(report):
    """Return a report like one call of json.dumps writes it."""
    return json.dumps(report, indent=1, allow_nan=False) + "\n"


def join_chunks(document, **options):
    return "".join(document.chunks(**options))


@pytest.fixture
def swept_run(tmp_path):
    folder = RunFolder(tmp_path / "runs" / "20260101-000001-swept-0001")
    write_cases(folder.path, 30, 4, 3, 2)
    return folder


def test_stream_equals_the_text_of_one_dump(swept_run):
    state = swept_run.replay()
    report = build_report(state)
    validated = Report.model_validate(report).model_dump(mode="json", by_alias=True)
    document = build_document(state, build_cases(state)[0])
    assert join_chunks(document) == dump_at_once(report) == dump_at_once(validated)
    assert len(report["cases"]) == 30
    assert document.to_json() == report


@pytest.mark.parametrize("events", [make_complete_run(), [run_start()], make_started_run()])
def test_run_in_any_state_is_written_like_one_dump(events):
    report = build_report(build_state(events))
    assert join_chunks(ReportDocument.from_json(report)) == dump_at_once(report)


@pytest.mark.parametrize(
    "cases",
    [
        [],
        [{}],
        [{"id": ODD_TEXT, "samples": {"t": [[1e-5, 1e16, 0.1, -0.0], []]}, "n": 2**70}],
        [{"id": "a", "params": {}}, {"id": "b", "ranks": [[], [[]], {}]}, {"id": "c"}],
    ],
)
def test_odd_texts_and_numbers_are_written_like_one_dump(cases):
    head = {"schema": "x", "run": {"suite": ODD_TEXT}, "cases": cases, "hosts": [], "errors": []}
    document = ReportDocument.from_json(head)
    assert join_chunks(document) == dump_at_once(head)
    without_samples = [case | {"samples": {}} for case in cases]
    assert join_chunks(document, with_samples=False) == dump_at_once(
        head | {"cases": without_samples}
    )


def test_report_of_a_refused_run_is_written_like_one_dump():
    report = build_rejected_report("no hosts", 3, ["run"])
    assert join_chunks(ReportDocument.from_json(report)) == dump_at_once(report)


def test_new_head_keeps_the_cases():
    report = build_report(build_state(make_complete_run()))
    document = ReportDocument.from_json(report)
    changed = document.replace_head(document.head | {"comparison": {"a": 1}})
    assert join_chunks(changed) == dump_at_once(report | {"comparison": {"a": 1}})


def test_rejects_a_number_that_json_cannot_represent():
    with pytest.raises(ValueError, match="JSON"):
        dump_json({"a": float("nan")})


def test_case_that_json_cannot_represent_is_an_error():
    """Parameters may have any value and are written unchanged."""
    state = build_state(make_started_run())
    state.cases["a"].identity.params["x"] = float("inf")
    cases, misfits = build_cases(state)
    (case,) = cases
    assert case["status"] == "error"
    assert misfits == [("a", case["reason"])]


def test_invalid_case_is_returned_with_its_reason():
    samples = [rank_event("samples", rank, values=[float("nan")]) for rank in (0, 1)]
    _, misfits = build_cases(build_state([*make_started_run(), *samples]))
    ((case, reason),) = misfits
    assert case == "a"
    assert "finite number" in reason


def test_writing_takes_a_fraction_of_the_size_in_memory(swept_run, tmp_path):
    # Repeat the cases ten times: memory that grows does not show in small runs.
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


def test_writes_chunks_into_one_file(tmp_path):
    path = tmp_path / "folder" / "file"
    write_chunks(path, ["a", "é"])
    assert path.read_text(encoding="utf-8") == "aé"
    assert [child.name for child in path.parent.iterdir()] == ["file"]


@pytest.mark.parametrize("error", [RuntimeError("defect"), KeyboardInterrupt()])
def test_interrupted_write_keeps_the_old_file(tmp_path, error):
    def chunks():
        yield "new"
        raise error

    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(type(error)):
        write_chunks(path, chunks())
    assert path.read_text() == "old"
    assert [child.name for child in tmp_path.iterdir()] == ["file"]


def test_full_disk_is_a_write_error(messages):
    with messages.raises(FailedRunError):
        write_chunks(Path("/dev/full"), ["x" * 9000])
