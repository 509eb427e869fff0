"""The pages of the console with the same contents on every machine."""

from __future__ import annotations

import re
import shutil
import socket

from spbench.engine import commands
from spbench.engine.commands import JobCommand
from spbench.launch.finding import Finding
from spbench.launch.gpus.facts import Card, HostGpus
from spbench.launch.survey.facts import HostFacts
from spbench.record.runs.playback import find_demo_run
from spbench.tui.hosts import host_survey as asking
from spbench.tui.hosts import sources
from spbench.tui.hosts.machine_monitor import MachineMonitor
from spbench.tui.plan import page as plan_page
from spbench.tui.plan.plan_run import StartForecast
from support.paths import EXAMPLES, SUITES
from support.tui.app_driver import make_console, read_screen, wait_until

WIDE = 100
"""Columns from which the Suites page shows its files and the launch command."""
OVERVIEW_LINES = 50
"""Lines from which the Run page shows hosts by case and the parts of an iteration."""
FORECAST = StartForecast("with 2 ranks on this machine, in about 7 s")
SUITE_NAMES = ("bringup", "halo", "links", "smoke")
RUNS = ("20261120-181500-demo-0001", "20261121-153544-demo-0002")
NODE = {"cores": 64, "memory_gib": 251.4, "free_gib": 240.0, "load": 0.5, "python": "3.11.2"}
NODE |= {"mpi": "Open MPI v5.0.11", "mpi4py": "4.1.2", "torch": "2.13.0", "torch_cuda": "13.0"}
NODE["gpus"] = HostGpus(tuple(Card("H200", f"0000:{number}a:00.0") for number in range(8)))


def make_command(run, case_id):
    """Return the command that `spbench command` would print on some cluster."""
    standalone = "mpirun -n 4 python -m mpi4py -m spbench_workers halo.exchange --image-size 256"
    line = "mpirun -n 4 --bind-to core python -m mpi4py -m spbench_workers"
    return JobCommand(run.jobs[0], "Open MPI 5.0.11", (), line, ((case_id, standalone),))


async def survey(hosts, settings, env):
    for host in hosts:
        clock_finding = Finding(
            "note", "clock", "3.1 s ahead of this machine's", "let chrony set the clocks"
        )
        findings = (clock_finding,) if host == "node03" else ()
        yield HostFacts(
            host,
            "note" if findings else "ok",
            clock_finding.text if findings else "",
            findings,
            **NODE,
        )


def make_recorded_folder(tmp_path, monkeypatch):
    """Make a folder with suites, hostfiles and two runs, the same on every machine."""
    (tmp_path / "suites").mkdir()
    for suite in SUITE_NAMES:
        shutil.copy(SUITES / f"{suite}.yaml", tmp_path / "suites")
    for example in ("resnet-20.json", "two-cores.yaml"):
        (tmp_path / "docs" / "examples").mkdir(parents=True, exist_ok=True)
        shutil.copy(EXAMPLES / example, tmp_path / "docs" / "examples")
    (tmp_path / "hostfiles").mkdir()
    (tmp_path / "hostfiles" / "cluster.hosts").write_text("node[01-04]:2\n")
    for run in RUNS:
        shutil.copytree(find_demo_run().path, tmp_path / "home" / "runs" / run)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(commands, "build_case_command", make_command)
    monkeypatch.setattr(asking, "survey_hosts", survey)
    monkeypatch.setattr(asking, "read_clock", lambda: "14:36:00 UTC")
    monkeypatch.setattr(asking, "examine_machine", lambda python, ranks, env: [])
    monkeypatch.setattr(sources, "count_cores", lambda: 8)
    monkeypatch.setattr(MachineMonitor, "read", lambda monitor, own_runs: None)
    monkeypatch.setattr(plan_page, "forecast_start", lambda details, context: FORECAST)
    monkeypatch.setattr(socket, "gethostname", lambda: "login")
    return tmp_path


async def wait_for_suites(pilot):
    await wait_until(pilot, lambda: "Case " in read_screen(pilot.app))
    # Files are read from the top down.
    await wait_until(pilot, lambda: re.search(r"smoke.yaml +\d+ cases", read_screen(pilot.app)))
    await wait_until(pilot, lambda: re.search(r"scaling.yaml +\d+ cases", read_screen(pilot.app)))


async def wait_for_narrow_suites(pilot):
    await wait_until(pilot, lambda: "halo.exchange" in read_screen(pilot.app))


async def wait_for_run(pilot):
    await wait_until(
        pilot, lambda: pilot.app.context.feed is not None and pilot.app.context.feed.ended
    )
    await wait_until(
        pilot, lambda: "! fault found" in read_screen(pilot.app) and "8/8" in read_screen(pilot.app)
    )
    await wait_until(pilot, lambda: "■ ended 9 cases" in read_screen(pilot.app))
    if pilot.app.size.height >= OVERVIEW_LINES:
        await wait_until(pilot, lambda: "Parts of an iteration" in read_screen(pilot.app))
        await wait_until(pilot, lambda: "fused" in read_below(pilot.app, "Hosts by case"))
    await scroll_to_case(pilot)


async def scroll_to_case(pilot):
    """Scroll to the selected case; the speed of the replay changes the position."""
    presenter = pilot.app.screen.presenter
    await wait_until(pilot, lambda: presenter._settled)
    selected_case = presenter.cases.cursor_key
    first_case = presenter.cases.matching_keys[0]
    for case in (first_case, selected_case):
        presenter.cursors.move(presenter.cases, case)
        await pilot.pause()


def read_below(app, title):
    """Return the text of the screen from a title on."""
    return read_screen(app).partition(title)[2]


async def wait_for_results(pilot):
    await wait_until(pilot, lambda: "memory" in read_screen(pilot.app))
    await pilot.press("c")
    await wait_until(pilot, lambda: "b/a" in read_screen(pilot.app))


async def wait_for_hosts(pilot):
    await wait_until(pilot, lambda: "cluster.hosts" in read_screen(pilot.app))
    await pilot.press("down", "r")
    await wait_until(pilot, lambda: "node04" in read_screen(pilot.app))


async def wait_for_plan(pilot):
    page = pilot.app.screen
    await wait_until(
        pilot, lambda: page.form.query_one("#cluster").value.endswith("two-cores.yaml")
    )
    page.form.set_text("micro", "2")
    await pilot.press("enter")
    await wait_until(
        pilot, lambda: page.details is not None and FORECAST.text in read_screen(pilot.app)
    )


READY = {
    "suites": wait_for_suites,
    "run": wait_for_run,
    "results": wait_for_results,
    "hosts": wait_for_hosts,
    "plan": wait_for_plan,
}


def make_page_console(folder, page, theme):
    """Make a console that opens a page in a theme."""
    (folder / "console.yaml").write_text(f"theme: {theme}\n")
    options = {"suite": folder / "suites" / "halo.yaml"} if page == "suites" else {}
    if page == "run":
        options = {"recorded": find_demo_run(), "speed": None}
    return make_console(folder, page=page, **options)


async def wait_for_page(pilot, page):
    """Wait until all contents of a page are shown."""
    await wait_until(pilot, lambda: re.search("Palette|Help", read_screen(pilot.app)))
    is_narrow = pilot.app.size.width < WIDE
    ready = wait_for_narrow_suites if page == "suites" and is_narrow else READY[page]
    await ready(pilot)
