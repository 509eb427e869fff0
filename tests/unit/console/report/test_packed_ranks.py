"""Ranks of large reports, kept packed until they are read."""

import json

import pytest

from spbench.report.build import build_report
from spbench.report.export import export_text
from spbench.report.formats.page.document import render_page
from spbench.report.recorded import PackedRanks, load_report, load_run, read_packed_case
from support.sample_events import build_state, make_complete_run, record_run


@pytest.fixture
def folder(tmp_path):
    folder = record_run(tmp_path / "home", make_complete_run(), verdict="passed")
    folder.write_json("report.json", build_report(folder.replay()))
    return folder


@pytest.fixture
def packed_run(folder):
    """Load the run as if its report were large."""
    return load_run(folder, max_unpacked_bytes=0)


def test_packed_ranks_equal_those_of_the_report():
    (case,) = build_report(build_state(make_complete_run()))["cases"]
    part = read_packed_case(case)
    ranks = part.ranks
    assert isinstance(ranks, PackedRanks)
    assert (len(ranks), bool(ranks), len(ranks[0:1])) == (2, True, 1)
    assert [rank.model_dump(mode="json") for rank in ranks] == case["ranks"]
    assert [ranks[-1].rank, ranks[0].rank] == [1, 0]
    assert ranks == list(ranks)
    assert ranks != []


def test_rejects_invalid_ranks():
    (case,) = build_report(build_state(make_complete_run()))["cases"]
    for ranks in (None, [{}], [case["ranks"][0] | {"rank": "x"}]):
        with pytest.raises(ValueError, match="validation error"):
            read_packed_case(case | {"ranks": ranks})


def test_only_a_large_report_has_packed_ranks(folder, packed_run):
    plain = load_run(folder)
    assert isinstance(plain.cases["a"].ranks, list)
    assert isinstance(packed_run.cases["a"].ranks, PackedRanks)
    assert packed_run.cases["a"].ranks == plain.cases["a"].ranks


@pytest.mark.parametrize("write", [render_page, lambda run: export_text(run, "csv")])
def test_packed_ranks_do_not_change_formats(folder, packed_run, write):
    assert write(packed_run) == write(load_run(folder))


def test_exports_a_report_as_written(folder, packed_run):
    assert export_text(packed_run, "json") == folder.report.read_text()
    folder.report.write_text(json.dumps(json.loads(folder.report.read_text()), indent=3))
    assert export_text(load_report(folder.report), "json") != folder.report.read_text()
    folder.report.unlink()
    assert json.loads(export_text(packed_run, "json")) == build_report(folder.replay())
