"""The lines and the live table of a run, at the widths that terminals have."""

import io

import pytest
from events import whole_run
from rich.console import Console

from spbench.cli.lines import Lines, case_line
from spbench.cli.live import LiveView
from spbench.record.state import RunState


def of_job_1():
    """A whole run's events as the recorder hands them on, each with its job."""
    return [{"job": 1, **event} for event in whole_run()]


def live_at(width):
    """What the live view has printed of a whole run, and its last frame, line by line."""
    state = RunState()
    console = Console(file=io.StringIO(), width=width)
    view = LiveView(state, console, verbosity=0)
    for event in of_job_1():
        state.apply(event)
        view(event)
    frame = Console(file=io.StringIO(), width=width)
    frame.print(view.frame())
    view.finish("report: x")
    return state, console.file.getvalue().splitlines(), frame.file.getvalue().splitlines()


@pytest.mark.parametrize(("width", "wide"), [(80, False), (99, False), (100, True), (200, True)])
def test_the_table_leaves_out_columns_only_where_they_do_not_fit(width, wide):
    state, _, frame = live_at(width)
    heading = next(line for line in frame if line.lstrip().startswith("rank"))
    assert ("p95" in heading) == wide
    assert heading.split()[-1] == "check"
    assert "…" not in "".join(frame)
    assert len(frame) == len(state.ranks) + 2


@pytest.mark.parametrize("room", [30, 60, 80, 120])
def test_a_case_is_one_line_that_fits(room):
    state, _, _ = live_at(120)
    for case in state.cases.values():
        short, whole = case_line(case, 10, room), case_line(case, 10)
        assert whole.startswith(short)
        assert len(short) <= max(room, len(f"x {case.status:<9} {case.id:<10}"))


def test_lines_on_a_pipe_tell_all():
    state, printed = RunState(), []
    lines = Lines(state, printed.append, verbosity=0)
    for event in of_job_1():
        state.apply(event)
        lines(event)
    lines.finish("report: x")
    for case in state.cases.values():
        assert any(case_line(case).split("  ")[-1] in line for line in printed)
    assert "report: x" in printed[-1]


def test_a_quiet_run_says_only_its_verdict():
    state, printed = RunState(), []
    lines = Lines(state, printed.append, verbosity=-1)
    for event in of_job_1():
        state.apply(event)
        lines(event)
    assert printed == []
