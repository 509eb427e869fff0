"""The location of a page in the line of the tabs."""

import pytest

from spbench.launch.choice import LaunchChoice
from spbench.tui.plan.page import PlanPage
from spbench.tui.tab_bar import fit_location, fit_status
from support.tui.app_driver import make_console, read_screen, wait_until
from support.tui.suites_page import open_suite, wait_for_cases

MIN_HIDING_LENGTH = 61
"""Length of a status that leaves too little space for the name of the cluster."""


def read_tab_line(app):
    return (read_screen(app).splitlines() or [""])[0]


def test_location_is_shortened_from_the_left():
    names = ("Suites", "halo.yaml", "small")
    assert fit_location(names, 26) == "Suites > halo.yaml > small"
    assert fit_location(names, 25) == "… > halo.yaml > small"
    assert fit_location(names, 10) == "… > small"
    assert fit_location(("Run", "a-very-long-name"), 10) == "…long-name"
    assert fit_location(("Run", "層" * 10), 10) == "…層層層層"
    assert fit_location(names, 5) == ""
    assert fit_location(("Suites",), 80) == ""


def test_status_keeps_the_hosts_before_the_outcome_of_an_old_run():
    launch = LaunchChoice(hosts="node[01-02]", launcher="mpirun_rsh", assume="mvapich2-2.3.7").title
    assert launch == "mpirun_rsh (assumed) on node[01-02]"
    run = "mine passed 5/5"
    assert fit_status(run, launch, 60, keeps_run=False) == f"{run}  {launch}"
    assert fit_status(run, launch, 40, keeps_run=False) == launch
    assert fit_status(run, launch, 12, keeps_run=False) == "mpirun_rsh …"
    assert fit_status(run, launch, 40, keeps_run=True) == f"{run}  mpirun_rsh (assumed) o…"
    assert fit_status(run, launch, 20, keeps_run=True) == run


async def test_location_names_suite_and_case(suite):
    app = open_suite(suite)
    async with app.run_test(size=(120, 40)) as pilot:
        await wait_for_cases(pilot)
        await wait_until(pilot, lambda: "Suites > made-up.yaml > first" in read_tab_line(app))
        await pilot.press("down")
        await wait_until(pilot, lambda: "> second[iterations=5]" in read_tab_line(app))
        await pilot.resize_terminal(119, 40)
        await wait_until(pilot, lambda: "made-up.yaml" not in read_tab_line(app))


async def test_location_names_run_and_case(tmp_path, home):
    app = make_console(tmp_path, page="results", home=home)
    newest = max(path.name for path in (home / "runs").iterdir())
    async with app.run_test(size=(160, 40)) as pilot:
        await wait_until(pilot, lambda: f"Results > {newest} > made[" in read_tab_line(app))


@pytest.mark.parametrize("length", [20, 60, 70, 75, 200])
async def test_location_does_not_push_the_status_out(tmp_path, monkeypatch, length):
    status = "x" * length
    monkeypatch.setattr(PlanPage, "describe_location", lambda self: ("network", "cluster"))
    monkeypatch.setattr(PlanPage, "_format_status", lambda self: status)
    app = make_console(tmp_path, page="plan")
    async with app.run_test(size=(120, 40)) as pilot:
        space = 120 - len(" 1 Suites  2 Run  3 Results  4 Hosts  5 Plan ") - 1
        await wait_until(pilot, lambda: "x" * min(length, space) in read_tab_line(app))
        await wait_until(
            pilot, lambda: ("> cluster" in read_tab_line(app)) == (length < MIN_HIDING_LENGTH)
        )
