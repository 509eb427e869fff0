"""Recorded runs of all format versions stay readable, by report and by events."""

import shutil

import pytest

from spbench.record.runs.folder import RunFolder
from spbench.report.build import build_report, validate_document
from spbench.report.recorded import load_run
from support.paths import RECORDED_RUNS

NAMES = sorted(path.name for path in RECORDED_RUNS.iterdir())


def test_run_of_the_current_formats_exists():
    assert "schema-1" in NAMES


def restrict_to(document, newer):
    """Return the parts of a newer document that an older one also has."""
    if isinstance(document, dict) and isinstance(newer, dict):
        return {key: restrict_to(value, newer[key]) for key, value in document.items()}
    if isinstance(document, list) and isinstance(newer, list) and len(document) == len(newer):
        return [
            restrict_to(value, newer_value)
            for value, newer_value in zip(document, newer, strict=True)
        ]
    return newer


@pytest.mark.parametrize("name", NAMES)
def test_report_and_events_give_the_same_run(name, tmp_path):
    folder = RunFolder(shutil.copytree(RECORDED_RUNS / name, tmp_path / name))
    document = folder.read_json("report.json")
    assert restrict_to(document, validate_document(document)) == document
    assert list(load_run(folder).cases) == [case["id"] for case in document["cases"]]
    folder.report.unlink()
    assert load_run(folder).left_out is None
    replayed = build_report(folder.replay())["cases"]
    assert restrict_to(document["cases"], replayed) == document["cases"]


def test_recorded_results_do_not_change():
    cases = load_run(RunFolder(RECORDED_RUNS / "schema-1")).cases
    assert {id: case.status for id, case in cases.items()} == {
        "gemm[n=32]": "passed",
        "gemm[n=64]": "passed",
        "gem2[n=32]": "failed",
        "gem2[n=64]": "failed",
    }
    (expectation,) = cases["gem2[n=32]"].expectations
    assert expectation.expression == '0.001 * case("gemm[n=32]").time_ms.p50 / 3'
    assert expectation.limit == pytest.approx(1.83e-06, rel=1e-3)
    assert cases["gemm[n=32]"].metrics["time_ms"].p50 == pytest.approx(0.00549, rel=1e-3)
