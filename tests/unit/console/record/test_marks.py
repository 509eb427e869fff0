"""Marks of runs with planted faults, other machines or other versions."""

import pytest

from spbench.record.runs.history import list_summaries
from spbench.record.runs.index import reindex
from spbench.record.runs.marks import RunMark, find_marks, format_marks
from spbench.record.runs.selection import select_runs
from support.sample_events import make_complete_run, record_run

MACHINE = {
    "id": "1" * 12,
    "hosts": ["node01"],
    "processors": ["EPYC"],
    "cores": [64],
    "mpi": ["Open MPI v5.0.11"],
    "torch": ["2.13.0"],
}


@pytest.fixture
def home(tmp_path):
    """Return a home with five runs of one suite and one of another, the newest last."""
    home = tmp_path / "home"
    changes_by_run = [
        {"fingerprint": MACHINE | {"id": "2" * 12, "hosts": ["node02"]}},
        {"fingerprint": MACHINE | {"id": "3" * 12, "mpi": ["MPICH 5.0.2"]}},
        {"fingerprint": MACHINE, "request": {"inject": ["slow@made"]}},
        {"argv": ["run", "x.yaml", "--inject", "slow"]},
        {"fingerprint": MACHINE, "argv": ["submit", "x.yaml"]},
        {"fingerprint": MACHINE | {"id": "4" * 12, "cores": [2]}, "suite": "other"},
    ]
    for day, changes in enumerate(changes_by_run, 1):
        fields = {"verdict": "passed", "finished": 2000.0}
        folder = record_run(home, make_complete_run(), **fields | changes)
        folder.path.rename(folder.path.with_name(f"2026110{day}-000000-run"))
    return home


def mark_days(home):
    return {id_[7]: marks for id_, marks in find_marks(list_summaries(home)).items()}


EXPECTED = {
    "1": (RunMark.OTHER_MACHINE,),
    "2": (RunMark.OTHER_VERSIONS,),
    "3": (RunMark.FAULT,),
    "4": (RunMark.FAULT,),
    "5": (RunMark.BATCH,),
}


def test_marks_compare_with_the_newest_run_of_the_suite(home):
    assert mark_days(home) == EXPECTED


def test_index_keeps_what_marks_need(home):
    list_summaries(home)
    assert mark_days(home) == EXPECTED
    reindex(home)
    assert mark_days(home) == EXPECTED


def test_several_marks_of_a_run_are_listed():
    marks = (RunMark.FAULT, RunMark.OTHER_VERSIONS)
    assert format_marks(marks) == "! fault, ≠ other versions"
    assert format_marks(()) == ""


@pytest.mark.parametrize(
    ("text", "days"),
    [
        ("mark:fault", "34"),
        ("mark:MACHINE", "1"),
        ("mark:versions", "2"),
        ("mark:batch", "5"),
        ("fault", "34"),
        ("other", "126"),
        ("mark:fault mark:machine", ""),
    ],
)
def test_filter_selects_marked_runs(home, text, days):
    assert "".join(run.id[7] for run in select_runs(list_summaries(home), text)) == days
