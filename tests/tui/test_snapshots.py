"""Snapshots of each page, at two sizes and in two themes.

docs/console.md shows them. They leave the tab bar out. The tab bars of all pages are in
snapshots/tab_bar.txt, so that a new page changes one file.

To accept a change, run SPBENCH_SNAPSHOTS=write pytest tests/tui/test_snapshots.py and look at it.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
from pathlib import Path

import pytest

from spbench.engine.commands import JobCommand
from spbench.launch.finding import Finding
from spbench.launch.gpus.facts import Card, HostGpus
from spbench.launch.survey.facts import HostFacts
from spbench.record.runs.playback import find_demo_run
from spbench.tui.dialogs import Confirm
from spbench.tui.hosts import host_survey as asking
from spbench.tui.hosts import sources
from spbench.tui.pages import PAGES
from spbench.tui.suites import parsed_suite as reading
from spbench.tui.tab_bar import Tab, TabBar
from support.paths import EXAMPLES, SUITES
from support.tui.app_driver import SIZES, make_console, read_screen, wait_until

SNAPSHOTS = Path(__file__).parent / "snapshots"
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


@pytest.fixture
def folder(tmp_path, monkeypatch):
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
    monkeypatch.setattr(reading, "build_case_command", make_command)
    monkeypatch.setattr(asking, "survey_hosts", survey)
    monkeypatch.setattr(asking, "examine_machine", lambda python, ranks, env: [])
    monkeypatch.setattr(sources, "count_cores", lambda: 8)
    monkeypatch.setattr(socket, "gethostname", lambda: "login")
    return tmp_path


async def wait_for_suites(pilot):
    await wait_until(pilot, lambda: "Command of" in read_screen(pilot.app))
    await wait_until(pilot, lambda: len(re.findall(r"\d+ cases", read_screen(pilot.app))) >= 4)


async def wait_for_narrow_suites(pilot):
    await wait_until(pilot, lambda: "halo.exchange" in read_screen(pilot.app))


async def wait_for_run(pilot):
    await wait_until(
        pilot, lambda: pilot.app.context.feed is not None and pilot.app.context.feed.ended
    )
    await wait_until(
        pilot, lambda: "✗ failed" in read_screen(pilot.app) and "8/8" in read_screen(pilot.app)
    )
    await wait_until(pilot, lambda: "link from rank" in read_screen(pilot.app))


async def wait_for_results(pilot):
    await wait_until(pilot, lambda: "memory" in read_screen(pilot.app))
    await pilot.press("c")
    await wait_until(pilot, lambda: "b/a" in read_screen(pilot.app))


async def wait_for_hosts(pilot):
    await wait_until(pilot, lambda: "cluster.hosts" in read_screen(pilot.app))
    await pilot.press("down", "d")
    await wait_until(pilot, lambda: "node04" in read_screen(pilot.app))


async def wait_for_plan(pilot):
    page = pilot.app.screen
    await wait_until(
        pilot, lambda: page.form.query_one("#cluster").value.endswith("two-cores.yaml")
    )
    page.form.set_text("micro", "2")
    await pilot.press("enter")
    await wait_until(
        pilot, lambda: page.details is not None and "x as fast as" in read_screen(pilot.app)
    )


READY = {
    "suites": wait_for_suites,
    "run": wait_for_run,
    "results": wait_for_results,
    "hosts": wait_for_hosts,
    "plan": wait_for_plan,
}
THEMES = ("spbench-dark", "spbench-light")
SNAPSHOT_PARAMS = [
    (page, size, theme)
    for page in READY
    for index, size in enumerate(SIZES)
    for theme in (THEMES if page != "plan" else THEMES[index : index + 1])
]
"""The Plan page, built from the parts of other pages, appears once at each size."""


def name_snapshot(page, size, theme):
    return f"{page}-{size[0]}x{size[1]}-{theme}"


def choose_marks(page, size, theme):
    """Return the mark of a snapshot.

    `make test` compares each page in one theme at each size.
    """
    return () if theme == THEMES[SIZES.index(size) % 2] else pytest.mark.long


@pytest.mark.parametrize(
    ("page", "size", "theme"),
    [
        pytest.param(*snapshot, id=name_snapshot(*snapshot), marks=choose_marks(*snapshot))
        for snapshot in SNAPSHOT_PARAMS
    ],
)
async def test_page_matches_its_snapshot(folder, page, size, theme, artefacts):
    (folder / "console.yaml").write_text(f"theme: {theme}\n")
    options = {"suite": folder / "suites" / "halo.yaml"} if page == "suites" else {}
    if page == "run":
        options = {"recorded": find_demo_run(), "speed": None}
    app = make_console(folder, page=page, **options)
    async with app.run_test(size=size) as pilot:
        ready = wait_for_narrow_suites if (page, size) == ("suites", SIZES[0]) else READY[page]
        await wait_until(pilot, lambda: "Palette" in read_screen(app) or "Help" in read_screen(app))
        await ready(pilot)
        assert not isinstance(app.screen, Confirm)
        app.screen.query_one(TabBar).visible = False
        snapshot = await take_snapshot(pilot)
    compare_with_snapshot(f"{name_snapshot(page, size, theme)}.svg", snapshot, artefacts)


async def test_tab_bar_matches_its_snapshot(folder, artefacts):
    lines = []
    for size in SIZES:
        for theme in THEMES:
            (folder / "console.yaml").write_text(f"theme: {theme}\n")
            app = make_console(folder, page="suites")
            async with app.run_test(size=size) as pilot:
                await wait_until(
                    pilot,
                    lambda app=app: "Palette" in read_screen(app) or "Help" in read_screen(app),
                )
                for digit, entry in enumerate(PAGES, 1):
                    page = entry.name
                    await pilot.press(str(digit))
                    await wait_until(pilot, lambda app=app, page=page: current_page(app) == page)
                    await pilot.pause()
                    lines.append(f"{name_snapshot(page, size, theme)}: {render_first_line(app)}\n")
    compare_with_snapshot("tab_bar.txt", "".join(lines), artefacts)


def current_page(app):
    return app.screen.query_one("TabBar Tab.current", Tab).page


def render_first_line(app):
    """Return the first line of the screen, with the style of each part before it."""
    line = app.screen._compositor.render_strips()[0]
    return "".join(f"[{segment.style}]{segment.text}" for segment in line)


def compare_with_snapshot(name, text, artefacts):
    """Fail if a snapshot differs, and keep the new one.

    The snapshot is written if the environment asks for it.
    """
    if os.environ.get("SPBENCH_SNAPSHOTS") == "write":
        (SNAPSHOTS / name).write_text(text)
    if not (SNAPSHOTS / name).exists() or (SNAPSHOTS / name).read_text() != text:
        (artefacts / name).write_text(text)
        pytest.fail(f"{artefacts / name} differs from {SNAPSHOTS / name}; look at both")


async def take_snapshot(pilot):
    """Return the screen as SVG once it no longer changes, without remote fonts."""
    before = ""
    for _ in range(40):
        await pilot.pause(0.25)
        picture = pilot.app.export_screenshot(title="spbench")
        if picture == before:
            break
        before = picture
    return re.sub(r"@font-face \{.*?\}\s*", "", before, flags=re.DOTALL)
