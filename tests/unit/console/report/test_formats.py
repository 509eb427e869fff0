"""Runs of each number of the formats are read for ever: from the report, and from the events."""

import shutil

import pytest

from places import RUNS
from spbench.record.runs.folder import RunFolder
from spbench.report.build import build_report, validate_document
from spbench.report.recorded import load_run

KNOWN = sorted(path.name for path in RUNS.iterdir())


def test_there_is_a_run_of_the_present_formats():
    assert "schema-1" in KNOWN


def told_in(document, whole):
    """What a newer document says where an older one has something to say."""
    if isinstance(document, dict) and isinstance(whole, dict):
        return {key: told_in(part, whole[key]) for key, part in document.items()}
    if isinstance(document, list) and isinstance(whole, list) and len(document) == len(whole):
        return [told_in(part, other) for part, other in zip(document, whole, strict=True)]
    return whole


@pytest.mark.parametrize("name", KNOWN)
def test_report_and_events_tell_the_same(name, tmp_path):
    folder = RunFolder(shutil.copytree(RUNS / name, tmp_path / name))
    document = folder.read_json("report.json")
    assert told_in(document, validate_document(document)) == document
    assert list(load_run(folder).cases) == [case["id"] for case in document["cases"]]
    folder.report.unlink()
    assert load_run(folder).left_out is None
    replayed = build_report(folder.replay())["cases"]
    assert told_in(document["cases"], replayed) == document["cases"]


def test_what_the_run_has_measured_stays_as_it_was():
    cases = load_run(RunFolder(RUNS / "schema-1")).cases
    assert {id: case.status for id, case in cases.items()} == {
        "gemm[n=32]": "passed",
        "gemm[n=64]": "passed",
        "gem2[n=32]": "failed",
        "gem2[n=64]": "failed",
    }
    (item,) = cases["gem2[n=32]"].expectations
    assert item.expression == '0.001 * case("gemm[n=32]").time_ms.p50 / 3'
    assert item.limit == pytest.approx(1.83e-06, rel=1e-3)
    assert cases["gemm[n=32]"].metrics["time_ms"].p50 == pytest.approx(0.00549, rel=1e-3)
