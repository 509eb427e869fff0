"""Compare pictures of each page, at two sizes and in two themes; docs/console.md shows them.

The pictures leave the tab bar out. The tab bars of all pages are in snapshots/tab_bar.txt, so that
a new page changes one file.

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
from support.tui.driving import SIZES, console, shown, until

SNAPSHOTS = Path(__file__).parent / "snapshots"
SHOWN = ("bringup", "halo", "links", "smoke")
RUNS = ("20261120-181500-demo-0001", "20261121-153544-demo-0002")
NODE = {"cores": 64, "memory_gib": 251.4, "free_gib": 240.0, "load": 0.5, "python": "3.11.2"}
NODE |= {"mpi": "Open MPI v5.0.11", "mpi4py": "4.1.2", "torch": "2.13.0", "torch_cuda": "13.0"}
NODE["gpus"] = HostGpus(tuple(Card("H200", f"0000:{number}a:00.0") for number in range(8)))


def command_of(run, case_id):
    """The command that `spbench command` would print on some cluster."""
    standalone = "mpirun -n 4 python -m mpi4py -m spbench_workers halo.exchange --image-size 256"
    line = "mpirun -n 4 --bind-to core python -m mpi4py -m spbench_workers"
    return JobCommand(run.jobs[0], "Open MPI 5.0.11", (), line, ((case_id, standalone),))


async def survey(hosts, settings, env):
    for host in hosts:
        late = Finding(
            "note", "clock", "3.1 s ahead of this machine's", "let chrony set the clocks"
        )
        noted = (late,) if host == "node03" else ()
        yield HostFacts(host, "note" if noted else "ok", late.text if noted else "", noted, **NODE)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with suites, hostfiles and two runs, the same on every machine."""
    (tmp_path / "suites").mkdir()
    for suite in SHOWN:
        shutil.copy(SUITES / f"{suite}.yaml", tmp_path / "suites")
    for example in ("resnet-20.json", "two-cores.yaml"):
        (tmp_path / "docs" / "examples").mkdir(parents=True, exist_ok=True)
        shutil.copy(EXAMPLES / example, tmp_path / "docs" / "examples")
    (tmp_path / "hostfiles").mkdir()
    (tmp_path / "hostfiles" / "cluster.hosts").write_text("node[01-04]:2\n")
    for run in RUNS:
        shutil.copytree(find_demo_run().path, tmp_path / "home" / "runs" / run)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(reading, "build_case_command", command_of)
    monkeypatch.setattr(asking, "survey_hosts", survey)
    monkeypatch.setattr(asking, "examine_machine", lambda python, ranks, env: [])
    monkeypatch.setattr(sources, "count_cores", lambda: 8)
    monkeypatch.setattr(socket, "gethostname", lambda: "login")
    return tmp_path


async def suites(pilot):
    await until(pilot, lambda: "Command of" in shown(pilot.app))
    await until(pilot, lambda: len(re.findall(r"\d+ cases", shown(pilot.app))) >= 4)


async def suites_narrow(pilot):
    await until(pilot, lambda: "halo.exchange" in shown(pilot.app))


async def run(pilot):
    await until(pilot, lambda: pilot.app.context.feed is not None and pilot.app.context.feed.ended)
    await until(pilot, lambda: "✗ failed" in shown(pilot.app) and "8/8" in shown(pilot.app))
    await until(pilot, lambda: "link from rank" in shown(pilot.app))


async def results(pilot):
    await until(pilot, lambda: "memory" in shown(pilot.app))
    await pilot.press("c")
    await until(pilot, lambda: "b/a" in shown(pilot.app))


async def hosts(pilot):
    await until(pilot, lambda: "cluster.hosts" in shown(pilot.app))
    await pilot.press("down", "d")
    await until(pilot, lambda: "node04" in shown(pilot.app))


async def plan(pilot):
    page = pilot.app.screen
    await until(pilot, lambda: page.form.query_one("#cluster").value.endswith("two-cores.yaml"))
    page.form.set_text("micro", "2")
    await pilot.press("enter")
    await until(pilot, lambda: page.planned is not None and "x as fast as" in shown(pilot.app))


READY = {"suites": suites, "run": run, "results": results, "hosts": hosts, "plan": plan}
THEMES = ("spbench-dark", "spbench-light")
PICTURES = [
    (page, size, theme)
    for page in READY
    for at, size in enumerate(SIZES)
    for theme in (THEMES if page != "plan" else THEMES[at : at + 1])
]
"""The Plan page, whose parts are those of the others, once at each size."""


def named(page, size, theme):
    return f"{page}-{size[0]}x{size[1]}-{theme}"


def again(page, size, theme):
    """The mark of a picture in the other theme: each page has one at each size in `make test`."""
    return () if theme == THEMES[SIZES.index(size) % 2] else pytest.mark.long


@pytest.mark.parametrize(
    ("page", "size", "theme"),
    [pytest.param(*picture, id=named(*picture), marks=again(*picture)) for picture in PICTURES],
)
async def test_a_page_looks_as_it_did(place, page, size, theme, artefacts):
    (place / "console.yaml").write_text(f"theme: {theme}\n")
    asked = {"suite": place / "suites" / "halo.yaml"} if page == "suites" else {}
    if page == "run":
        asked = {"recorded": find_demo_run(), "speed": None}
    app = console(place, page=page, **asked)
    async with app.run_test(size=size) as pilot:
        ready = suites_narrow if (page, size) == ("suites", SIZES[0]) else READY[page]
        await until(pilot, lambda: "Palette" in shown(app) or "Help" in shown(app))
        await ready(pilot)
        assert not isinstance(app.screen, Confirm)
        app.screen.query_one(TabBar).visible = False
        picture = await settled(pilot)
    compare(f"{named(page, size, theme)}.svg", picture, artefacts)


async def test_tab_bar_looks_as_it_did(place, artefacts):
    lines = []
    for size in SIZES:
        for theme in THEMES:
            (place / "console.yaml").write_text(f"theme: {theme}\n")
            app = console(place, page="suites")
            async with app.run_test(size=size) as pilot:
                await until(pilot, lambda app=app: "Palette" in shown(app) or "Help" in shown(app))
                for digit, entry in enumerate(PAGES, 1):
                    page = entry.name
                    await pilot.press(str(digit))
                    await until(pilot, lambda app=app, page=page: current_page(app) == page)
                    await pilot.pause()
                    lines.append(f"{named(page, size, theme)}: {first_line(app)}\n")
    compare("tab_bar.txt", "".join(lines), artefacts)


def current_page(app):
    return app.screen.query_one("TabBar Tab.current", Tab).page


def first_line(app):
    """Return the first line of the screen, with the style of each part before it."""
    line = app.screen._compositor.render_strips()[0]
    return "".join(f"[{segment.style}]{segment.text}" for segment in line)


def compare(name, text, artefacts):
    """Fail if a snapshot differs, and keep the new one; write it if the environment asks for it."""
    if os.environ.get("SPBENCH_SNAPSHOTS") == "write":
        (SNAPSHOTS / name).write_text(text)
    if not (SNAPSHOTS / name).exists() or (SNAPSHOTS / name).read_text() != text:
        (artefacts / name).write_text(text)
        pytest.fail(f"{artefacts / name} differs from {SNAPSHOTS / name}; look at both")


async def settled(pilot):
    """The picture once it does not change any more; it asks no other host for its fonts."""
    before = ""
    for _ in range(40):
        await pilot.pause(0.25)
        picture = pilot.app.export_screenshot(title="spbench")
        if picture == before:
            break
        before = picture
    return re.sub(r"@font-face \{.*?\}\s*", "", before, flags=re.DOTALL)
