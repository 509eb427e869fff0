"""The Hosts page, driven by keys, over simulated hosts."""

import asyncio
import os
import socket
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from textual.app import App

from spbench.engine import background
from spbench.launch import doctor
from spbench.launch.choice import LaunchChoice
from spbench.launch.doctor import NOT_NEEDED
from spbench.launch.finding import Finding
from spbench.launch.gpus.facts import Card, HostGpus
from spbench.launch.load import OwnRun
from spbench.launch.survey.facts import HostFacts
from spbench.record.machine.host_loads import HISTORY_LENGTH, LoadHistory
from spbench.record.runs.playback import find_demo_run
from spbench.report.links import build_link_matrices
from spbench.report.recorded import load_run
from spbench.suites.shipped import require_suite_file
from spbench.tui.dialogs import Confirm
from spbench.tui.hosts import host_survey as asking_module
from spbench.tui.hosts import page as page_module
from spbench.tui.hosts.details_pane import break_paths, describe_interfaces, list_load_facts
from spbench.tui.hosts.link_texts import describe_worst_link
from spbench.tui.hosts.links_pane import LinksPane
from spbench.tui.hosts.load_chart import LoadChartPane
from spbench.tui.hosts.machine_monitor import (
    Interface,
    MachineLoad,
    MachineMonitor,
    find_own_runs,
)
from spbench.tui.hosts.panes import FindingsPane, HostsPane
from spbench.tui.widgets.heat_map import HeatMap
from spbench.tui.widgets.timeline import TimelineChart
from support.sample_events import make_links_run, record_run, run_end
from support.tui.app_driver import SIZES, make_console, post_keys, read_screen, wait_until

MACHINE = socket.gethostname()
UNREACHABLE_FINDING = Finding("missing", "ssh", "no answer in 8 s", "see that it is up")
CLOCK_FINDING = Finding(
    "note", "clock", "3.1 s ahead of this machine's", "let chrony set the clocks"
)


def make_facts(host):
    """Return facts of a host.

    node02 cannot be reached. node03 has a note, and half the cores of the others.
    """
    if host == "node02":
        return HostFacts(host, "unreachable", UNREACHABLE_FINDING.text, (UNREACHABLE_FINDING,))
    notes = (CLOCK_FINDING,) if host == "node03" else ()
    return HostFacts(
        host,
        "note" if notes else "ok",
        f"clock: {CLOCK_FINDING.text}" if notes else "",
        notes,
        cores=32 if host == "node03" else 64,
        memory_gib=251.4,
        free_gib=240.0,
        load=0.5,
        gpus=HostGpus((Card("NVIDIA H200", "0000:1a:00.0"),) * 8),
        python="3.11.2",
        mpi="Open MPI v5.0.11",
        mpi4py="4.1.0",
        torch="2.6.0",
    )


class FakeSurvey:
    """A survey that records the hosts it asks, which answer when ``answer`` is set."""

    def __init__(self):
        self.requests = []
        self.end_count = 0
        self.answer = asyncio.Event()

    async def __call__(self, hosts, settings, env):
        self.requests.append(list(hosts))
        try:
            for host in hosts:
                if host != MACHINE:
                    await self.answer.wait()
                yield make_facts(host)
        finally:
            self.end_count += 1


@pytest.fixture
def fake_survey(monkeypatch):
    machine_findings = [Finding("ok", "launcher", "auto takes openmpi")]
    stand_in = FakeSurvey()
    monkeypatch.setattr(MachineMonitor, "read", lambda monitor, own_runs: None)
    monkeypatch.setattr(asking_module, "survey_hosts", stand_in)
    monkeypatch.setattr(
        asking_module, "examine_machine", lambda python, ranks, env: machine_findings
    )
    return stand_in


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "hostfiles").mkdir()
    (tmp_path / "hostfiles/cluster").write_text("node[01-04]:64\n")
    (tmp_path / "hostfiles/wrong").write_text("node01:x\nnode02:0\n")
    return tmp_path


def record_links(home):
    """Record links of four ranks on two hosts, with a slow one from rank 1 to 2."""
    ranks = [(0, "node01"), (1, "node01"), (2, "node02"), (3, "node02")]
    pairs = [(a, b) for a in ranks for b in ranks if a < b]
    slow = ((1, "node01"), (2, "node02"))
    latency = {(a, b): 0.4 if a[1] == b[1] else 2.0 for a, b in pairs} | {slow: 5.2}
    bandwidth = dict.fromkeys(pairs, 10.0)
    events = [*make_links_run(latency, bandwidth), run_end()]
    cases = next(event["cases"] for event in events if event["event"] == "run_start")
    cases[0]["benchmark"] = "link.pingpong"
    return record_run(home, events, verdict="passed")


async def wait_for_examination(pilot):
    """Wait until this machine has been examined."""
    app = pilot.app
    await wait_until(
        pilot, lambda: app.screen.query("#map") and app.screen._survey.machine_findings
    )
    await wait_until(pilot, lambda: app.screen._table.row_count > 0)
    return app.screen


def read_findings(app):
    return str(app.screen.query_one(FindingsPane).query_one("Static").render())


def find_line(app, text):
    """Return the first line with this text below the tabs and the location."""
    return next((line for line in read_screen(app).splitlines()[1:] if text in line), "")


@pytest.mark.parametrize("size", SIZES)
async def test_hosts_are_asked_only_on_demand(folder, fake_survey, size):
    app = make_console(folder, page="hosts")
    async with app.run_test(size=size) as pilot:
        page = await wait_for_examination(pilot)
        await wait_until(pilot, lambda: "✓ ok" in find_line(app, MACHINE))
        await wait_until(pilot, lambda: "auto takes openmpi" in read_findings(app))
        assert fake_survey.requests == [[MACHINE]]
        await pilot.press("down")
        await wait_until(pilot, lambda: "· not asked" in find_line(app, "node01"))
        await wait_until(pilot, lambda: "not asked yet" in read_findings(app))
        assert fake_survey.requests == [[MACHINE]]
        await pilot.press("r")
        await wait_until(pilot, lambda: "… asking" in find_line(app, "node04"))
        await wait_until(pilot, lambda: "asking 4, Esc stops" in read_screen(app))
        fake_survey.answer.set()
        await wait_until(pilot, lambda: "✗ unreachable" in find_line(app, "node02"))
        await wait_until(pilot, lambda: "! note" in find_line(app, "node03"))
        await wait_until(pilot, lambda: "✓ ok" in find_line(app, "node04"))
        await wait_until(pilot, lambda: "64" in find_line(app, "node04"))
        assert "Esc stops" not in read_screen(app)
        await pilot.press("tab", "down")
        await wait_until(pilot, lambda: "✗ missing ssh: no answer in 8 s" in read_findings(app))
        await wait_until(pilot, lambda: "→ see that it is up" in read_findings(app))
        await wait_until(pilot, lambda: "The hosts differ" in read_findings(app))
        await wait_until(pilot, lambda: "node03 has 32 cores, the others 64" in read_findings(app))
        assert page._hosts_pane.host == "node02"


async def test_keys_typed_right_after_the_filter_key_reach_it(folder, fake_survey):
    app = make_console(folder, page="hosts")
    async with app.run_test(size=(120, 40)) as pilot:
        await wait_for_examination(pilot)
        post_keys(app, "/mdx/q")
        await wait_until(pilot, lambda: getattr(app.focused, "value", "") == "mdx/q")
        assert fake_survey.requests == [[MACHINE]]


async def test_slow_read_of_links_is_not_started_twice(folder, fake_survey, monkeypatch):
    reads = []
    go_on = threading.Event()

    def read_slowly(home, before, played):
        reads.append(home)
        go_on.wait(10)
        return (), []

    monkeypatch.setattr(page_module, "read_last_links", read_slowly)
    app = make_console(folder, page="hosts")
    async with app.run_test(size=(120, 40)) as pilot:
        await wait_until(pilot, lambda: reads)
        app.screen.poll_seconds = 0.01
        await pilot.pause(0.3)
        assert len(reads) == 1
        go_on.set()
        await wait_until(pilot, lambda: len(reads) > 2)


async def test_examines_this_machine_without_a_rank_count(folder, fake_survey, monkeypatch):
    monkeypatch.setattr(asking_module, "examine_machine", doctor.examine_machine)
    monkeypatch.setattr(doctor, "count_cores", lambda: 2)
    app = make_console(folder, page="hosts")
    async with app.run_test(size=(120, 40)) as pilot:
        page = await wait_for_examination(pilot)
        assert (
            "2 of" in " ".join(f.text for f in page._survey.machine_findings) or os.cpu_count() == 2
        )
        assert not [f for f in page._survey.machine_findings if "would share" in f.text]


def test_similar_link_is_not_reported(tmp_path):
    latency = {((0, "a"), (1, "a")): 2.0, ((0, "a"), (2, "a")): 2.0, ((1, "a"), (2, "a")): 2.02}
    events = [*make_links_run(latency, {}), run_end()]
    next(event["cases"] for event in events if event["event"] == "run_start")[0]["benchmark"] = (
        "link.pingpong"
    )
    run = load_run(record_run(tmp_path, events, verdict="passed"))
    (matrix,) = build_link_matrices(run)
    (table,) = matrix.tables
    assert describe_worst_link(table) == ""


async def test_load_is_one_reading_that_knows_own_runs_from_the_start(
    folder, fake_survey, monkeypatch
):
    other_load = Finding("note", "load", "load 4.03 on 2 cores from other work", "stop it")
    other_run = Finding("note", "other runs", "another run of spbench: process 11", "stop it")
    own_load = Finding("ok", "load", "load 5.05 on 2 cores, in part from your run")

    def make_busy_facts(host):
        return HostFacts(host, "note", other_load.title, (other_load,), cores=2, load=4.03)

    def read(monitor, own_runs):
        monitor.load.load_means = (5.05, 1.0, 1.0)
        monitor.load.findings = (own_load,)

    monkeypatch.setattr(f"{__name__}.make_facts", make_busy_facts)
    monkeypatch.setattr(MachineMonitor, "read", read)
    monkeypatch.setattr(
        asking_module, "examine_machine", lambda python, ranks, env: [other_load, other_run]
    )
    findings = []
    show = FindingsPane.show

    def record(pane, *args):
        show(pane, *args)
        findings.append(str(pane.query_one("Static").render()))

    monkeypatch.setattr(FindingsPane, "show", record)
    app = make_console(folder, page="hosts")
    async with app.run_test(size=(120, 40)) as pilot:
        await wait_for_examination(pilot)
        await wait_until(pilot, lambda: "in part from your run" in read_findings(app))
        await wait_until(pilot, lambda: "5.05" in find_line(app, MACHINE))
        subtitle = str(app.screen.query_one(FindingsPane).border_subtitle)
        assert subtitle.startswith("asked at ")
        assert subtitle.endswith(", load: now")
        await pilot.press("r")
        await wait_until(pilot, lambda: len(fake_survey.requests) == 2)
        await wait_until(pilot, lambda: not app.screen._survey.pending)
        await wait_until(pilot, lambda: "in part from your run" in read_findings(app))
    assert not [text for text in findings if "stop it" in text or "4.03" in text]


async def test_problems_come_first_and_unneeded_launchers_share_a_line(
    folder, fake_survey, monkeypatch
):
    findings = [
        *(
            Finding("ok", name, f"{NOT_NEEDED}; it starts ranks of MPI")
            for name in ("srun", "prun")
        ),
        Finding("ok", "launcher", "auto takes openmpi"),
        Finding("note", "governor", "powersave"),
        Finding("missing", "torch", "not installed", "install it"),
    ]
    monkeypatch.setattr(asking_module, "examine_machine", lambda python, ranks, env: findings)
    app = make_console(folder, page="hosts")
    async with app.run_test(size=(120, 40)) as pilot:
        await wait_for_examination(pilot)
        await wait_until(pilot, lambda: "auto takes openmpi" in read_findings(app))
        assert read_findings(app).splitlines() == [
            "✗ missing torch: not installed",
            "  → install it",
            "! note governor: powersave",
            "✓ ok launcher: auto takes openmpi",
            f"✓ ok srun, prun: {NOT_NEEDED}",
        ]


def test_started_run_is_known_before_it_has_a_folder(monkeypatch):
    running = SimpleNamespace(pid=11, poll=lambda: None)
    ended = SimpleNamespace(pid=12, poll=lambda: 0)
    monkeypatch.setattr(background, "_started", [running, ended])
    context = SimpleNamespace(unwatched_run=None, feed=None)
    assert find_own_runs(context) == [OwnRun("a run that was started here", 11)]


def test_watched_run_has_its_name_while_its_process_runs(monkeypatch):
    def make_folder(id, pid, alive=True):
        return SimpleNamespace(id=id, read_pid=lambda: pid, is_alive=lambda: alive)

    process = SimpleNamespace(pid=11, poll=lambda: None)
    monkeypatch.setattr(background, "_started", [process])
    watched = SimpleNamespace(folder=make_folder("three", 11))
    context = SimpleNamespace(unwatched_run=make_folder("two", 12), feed=watched)
    assert find_own_runs(context) == [
        OwnRun("your run three (page 2)", 11),
        OwnRun("your run two", 12),
    ]
    replayed = SimpleNamespace(folder=make_folder("one", 11, alive=False))
    monkeypatch.setattr(background, "_started", [])
    assert find_own_runs(SimpleNamespace(unwatched_run=None, feed=replayed)) == []


async def test_asks_a_single_host_and_can_be_stopped(folder, fake_survey):
    app = make_console(folder, page="hosts")
    async with app.run_test(size=(120, 40)) as pilot:
        page = await wait_for_examination(pilot)
        await pilot.press("down")
        await wait_until(pilot, lambda: "node03" in read_screen(app))
        await pilot.press("tab", "down", "down", "enter")
        await wait_until(pilot, lambda: fake_survey.requests[1:] == [["node03"]])
        await pilot.press("r")
        await wait_until(pilot, lambda: len(page._survey.pending) == 4)
        assert fake_survey.requests[2] == ["node01", "node02", "node04"], (
            "none is asked twice at once"
        )
        await pilot.press("escape")
        await wait_until(pilot, lambda: fake_survey.end_count == 3)
        await wait_until(pilot, lambda: "· not asked" in find_line(app, "node01"))
        assert page._survey.pending == set()
        fake_survey.answer.set()
        await pilot.press("up", "R")
        await wait_until(pilot, lambda: "✗ unreachable" in find_line(app, "node02"))
        assert fake_survey.requests[3] == ["node02"]


@pytest.mark.parametrize("size", SIZES)
async def test_selects_hosts_for_runs_and_shows_them_at_the_top(folder, fake_survey, size):
    app = make_console(folder, page="hosts", launch_choice=LaunchChoice(launcher="hydra"))
    async with app.run_test(size=size) as pilot:
        await wait_for_examination(pilot)
        await wait_until(pilot, lambda: "● this machine" in read_screen(app))
        await pilot.press("down", "u")
        path = folder / "hostfiles/cluster"
        assert app.context.launch_choice == LaunchChoice(hostfile=path, launcher="hydra")
        await wait_until(pilot, lambda: "hydra on cluster" in read_screen(app).splitlines()[0])
        await wait_until(pilot, lambda: "● cluster" in read_screen(app))
        assert "● this machine" not in read_screen(app)
        await pilot.press("up", "enter")
        assert app.context.launch_choice == LaunchChoice(launcher="hydra")
        await wait_until(pilot, lambda: "hosts:" not in read_screen(app).splitlines()[0])


async def test_invalid_hostfile_shows_errors_and_is_not_selectable(folder, fake_survey):
    app = make_console(folder, page="hosts")
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await wait_for_examination(pilot)
        await pilot.press("end")
        await wait_until(pilot, lambda: "bad count 'x'" in read_screen(app))
        await wait_until(pilot, lambda: "bad count '0'" in read_screen(app))
        await wait_until(pilot, lambda: "no host is chosen" in read_findings(app))
        assert "hostfiles/wrong:1: error" in read_screen(app)
        assert "Host None" not in read_screen(app)
        await pilot.press("u", "r")
        await wait_until(pilot, lambda: "fix it first" in read_screen(app))
        assert app.context.launch_choice == LaunchChoice()
        assert fake_survey.requests == [[MACHINE]]


@pytest.mark.parametrize(("size", "findings_width"), [((80, 24), 80), ((120, 40), 40)])
async def test_lists_are_as_high_as_their_rows(folder, fake_survey, size, findings_width):
    (folder / "hostfiles" / "wrong").unlink()
    app = make_console(folder, page="hosts")
    async with app.run_test(size=size) as pilot:
        page = await wait_for_examination(pilot)
        await wait_until(pilot, lambda: page.query_one(HostsPane).outer_size.height == 5)
        assert page.query_one(FindingsPane).outer_size.width == findings_width


async def test_key_shows_the_panels_that_do_not_fit(folder, fake_survey):
    record_links(folder / "home")
    app = make_console(folder, page="hosts")
    async with app.run_test(size=(80, 24)) as pilot:
        page = await wait_for_examination(pilot)
        await wait_until(pilot, lambda: "  v: details, cores busy" in read_screen(app))
        await wait_until(pilot, lambda: "Links, " in read_screen(app))
        await pilot.press("v")
        await wait_until(pilot, lambda: f"Host {MACHINE}  v: cores busy, back" in read_screen(app))
        assert "Findings" not in read_screen(app)
        await pilot.press("v")
        await wait_until(pilot, lambda: "Cores busy  v: back, details" in read_screen(app))
        await wait_until(pilot, lambda: "Memory used" in read_screen(app))
        await pilot.press("down")  # another host has no charts
        await wait_until(pilot, lambda: "Findings of node01" in read_screen(app))
        await pilot.resize_terminal(200, 60)
        await wait_until(pilot, lambda: page.has_class("-high"))
        await wait_until(pilot, lambda: "v: " not in read_screen(app))


async def test_hosts_typed_in_the_console_are_listed_first_and_stay(folder, fake_survey):
    app = make_console(folder, page="hosts")
    async with app.run_test(size=(120, 40)) as pilot:
        page = await wait_for_examination(pilot)
        app.context.launch_choice = LaunchChoice(hosts="node[01-02]:2")
        await wait_until(pilot, lambda: next(iter(page._sources.sources)) == "node[01-02]:2")
        await pilot.press("home")
        await wait_until(pilot, lambda: "node02" in read_screen(app))
        app.context.launch_choice = LaunchChoice()
        await wait_until(pilot, lambda: page._polled[0] == LaunchChoice())
        await wait_until(pilot, lambda: "node[01-02]:2" in read_screen(app))


def test_long_paths_are_broken_after_slashes():
    text = "3.11.2 (/work/main/.venv/bin/python)"
    assert break_paths(text, 24) == "3.11.2 (/work/main/.venv/bin/ python)"
    assert break_paths(text, 40) == text
    assert break_paths("a" * 30, 24) == "a" * 30


async def test_lists_hosts_of_the_command_line(folder, fake_survey):
    choice = LaunchChoice(hosts="node[07-09]:2", exclude_hosts="node08")
    app = make_console(folder, page="hosts", launch_choice=choice)
    async with app.run_test(size=(120, 40)) as pilot:
        await wait_for_examination(pilot)
        await wait_until(pilot, lambda: "● node[07-09]:2" in read_screen(app))
        assert find_line(app, "● node[07-09]:2").split()[3:5] == ["2", "4"]
        await pilot.press("down")
        await wait_until(pilot, lambda: "node09" in read_screen(app))
        assert "node08" not in read_screen(app)


async def test_lists_hostfile_of_the_command_line_once(folder, fake_survey):
    choice = LaunchChoice(hostfile=folder / "hostfiles/wrong")
    app = make_console(folder, page="hosts", launch_choice=choice)
    async with app.run_test(size=(120, 40)) as pilot:
        page = await wait_for_examination(pilot)
        titles = [source.title for source in page._sources.sources.values()]
        assert titles == ["this machine", "wrong", "cluster"]
        await pilot.press("down")
        await wait_until(pilot, lambda: "bad count 'x'" in read_screen(app))


async def test_filters_and_sorts_hosts_by_their_answers(folder, fake_survey):
    app = make_console(folder, page="hosts")
    fake_survey.answer.set()
    async with app.run_test(size=(200, 60)) as pilot:
        page = await wait_for_examination(pilot)
        await pilot.press("down", "r")
        await wait_until(pilot, lambda: "✗ unreachable" in read_screen(app))
        await wait_until(pilot, lambda: "✓ ok" in find_line(app, "node04"))
        page._hosts_pane.table.sort_by("status")
        await wait_until(pilot, lambda: page._hosts_pane.host is not None)
        order = [page._hosts_pane.table._order.keys[index] for index in range(4)]
        assert order == ["node02", "node03", "node01", "node04"]
        await pilot.press("slash")
        app.focused.value = "clock"
        await wait_until(pilot, lambda: page._hosts_pane.table.match_count == 1)
        await wait_until(pilot, lambda: "node03" in read_screen(app))
        await pilot.press("enter")
        assert app.focused is page._hosts_pane.table
        await pilot.press("slash", "escape")
        await wait_until(pilot, lambda: page._hosts_pane.table.match_count == 4)


def test_pane_without_content_offers_to_leave_no_filter():
    assert HostsPane({}, set()).check_action("leave_filter", ()) is False


async def test_new_hostfile_appears(folder, fake_survey):
    app = make_console(folder, page="hosts")
    async with app.run_test(size=(120, 40)) as pilot:
        page = await wait_for_examination(pilot)
        page.poll_seconds = 0.05
        (folder / "hostfiles/new").write_text("node09\n")
        await wait_until(pilot, lambda: find_line(app, " new "))
        assert fake_survey.requests == [[MACHINE]]


# Links


async def test_page_without_links_explains_how_to_measure_them(folder, fake_survey):
    app = make_console(folder, page="hosts")
    async with app.run_test(size=(80, 24)) as pilot:
        page = await wait_for_examination(pilot)
        await pilot.press("m", "h")
        text = str(page.query_one("#measured").render())
        assert "No run here has measured links" in text
        assert "F5 measures them" in text
        assert not page.query_one(HeatMap).display


@pytest.mark.parametrize("has_own_suite", [False, True])
async def test_f5_measures_links_on_the_chosen_hosts(
    folder, fake_survey, monkeypatch, has_own_suite
):
    if has_own_suite:
        (folder / "suites").mkdir()
        shipped_suite = require_suite_file(Path("shipped:links"))
        (folder / "suites/links.yaml").write_text(shipped_suite.read_text())
    starts = []
    app = make_console(folder, page="hosts", launch_choice=LaunchChoice(hosts="node[01-02]"))
    async with app.run_test(size=(120, 40)) as pilot:
        await wait_for_examination(pilot)
        monkeypatch.setattr(
            app.context, "start_suite", lambda *args, **options: starts.append((args, options))
        )
        assert "F5 Links" in read_screen(app)
        await pilot.press("f5")
        await wait_until(pilot, lambda: isinstance(app.screen, Confirm))
        question = " ".join(str(app.screen.query_one("#question").render()).split())
        assert "links.yaml (2 cases) on node[01-02]" in question
        assert "about" in question
        await pilot.press("enter")
        await wait_until(pilot, lambda: starts)
    (suite, cases), options = starts[0]
    own_suite = folder / "suites/links.yaml"
    assert suite == (own_suite if has_own_suite else Path("shipped:links"))
    assert cases == ()
    assert options["overrides"] == ("np=2", "launch.ranks_per_host=1")


async def test_f5_starts_nothing_in_a_read_only_console(folder, fake_survey):
    app = make_console(folder, page="hosts", readonly=True)
    async with app.run_test(size=(120, 40)) as pilot:
        await wait_for_examination(pilot)
        assert "F5 Links" not in read_screen(app)


@pytest.mark.parametrize("size", SIZES)
async def test_map_and_text_show_the_slowest_link(folder, fake_survey, size):
    run = record_links(folder / "home")
    app = make_console(folder, page="hosts")
    async with app.run_test(size=size) as pilot:
        page = await wait_for_examination(pilot)
        heat_map = page.query_one(HeatMap)
        await wait_until(pilot, lambda: heat_map.count_stops() == 16)
        await wait_until(pilot, lambda: "Latency in us, 8 B, between ranks" in read_screen(app))
        await wait_until(pilot, lambda: run.id in read_screen(app))
        await wait_until(pilot, lambda: "█" in find_line(app, "│ 1 node01"))
        assert "█" not in find_line(app, "│ 0 node01")
        worst = str(page.query_one("#worst").render())
        assert worst == (
            "Slowest: rank 1 on node01 to rank 2 on node02, 5.20 us, "
            "2.60x worse than the median between hosts."
        )
        await pilot.press("h")
        await wait_until(pilot, lambda: heat_map.count_stops() == 4)
        assert "between hosts, worst pair" in str(page.query_one("#measured").render())
        heat_map.move_to(1)
        await wait_until(
            pilot, lambda: "node01 -> node02: 5.20 us, 2.60x the median" in read_screen(app)
        )
        await pilot.press("m")
        await wait_until(pilot, lambda: "Bandwidth in GB/s, 1 MiB" in read_screen(app))
        await pilot.press("h")
        await wait_until(pilot, lambda: heat_map.count_stops() == 16)
        await wait_until(pilot, lambda: "█" not in read_screen(app))


async def test_large_screen_lists_the_slowest_link_of_each_measurement(folder, fake_survey):
    record_links(folder / "home")
    app = make_console(folder, page="hosts")
    async with app.run_test(size=(200, 60)) as pilot:
        page = await wait_for_examination(pilot)
        await wait_until(pilot, lambda: find_line(app, "▸ latency, 8 B"))
        assert "2.60x worse" in find_line(app, "▸ latency, 8 B")
        await pilot.press("m")
        await wait_until(pilot, lambda: find_line(app, "▸ bandwidth, 1 MiB"))
        assert find_line(app, "▸ bandwidth, 1 MiB").count("median 10.0 GB/s within a host") == 1
        assert find_line(app, "Elsewhere, no link is more than 5 % worse")
        assert not page.query_one("#worst").display
    app = make_console(folder, page="hosts")
    async with app.run_test(size=(80, 24)) as pilot:
        page = await wait_for_examination(pilot)
        await wait_until(pilot, lambda: "Slowest: rank 1" in read_screen(app))
        assert not page.query_one("#measurements").display


async def test_keys_show_the_links_of_earlier_runs(folder, fake_survey):
    four_path = record_links(folder / "home").path
    earlier = four_path.rename(four_path.with_name("20260101-000000-four-aaaa"))
    two_ranks = make_links_run({((0, "node01"), (1, "node01")): 0.4}, {})
    next(event["cases"] for event in two_ranks if event["event"] == "run_start")[0]["benchmark"] = (
        "link.pingpong"
    )
    two_path = record_run(folder / "home", [*two_ranks, run_end()], verdict="passed").path
    later = two_path.rename(two_path.with_name("20260102-000000-two-bbbb"))
    app = make_console(folder, page="hosts")
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        page = await wait_for_examination(pilot)
        heat_map = page.query_one(HeatMap)
        await wait_until(pilot, lambda: later.name in read_screen(app))
        await wait_until(pilot, lambda: heat_map.count_stops() == 4)
        await wait_until(pilot, lambda: "  [: earlier run" in read_screen(app))
        await pilot.press("right_square_bracket")  # without effect: this is the newest run
        await pilot.press("left_square_bracket")
        await wait_until(pilot, lambda: earlier.name in read_screen(app))
        await wait_until(pilot, lambda: heat_map.count_stops() == 16)
        await wait_until(pilot, lambda: "]: later run" in read_screen(app))
        await pilot.press("left_square_bracket")
        await wait_until(pilot, lambda: "no earlier run here" in read_screen(app))
        await wait_until(pilot, lambda: "[: earlier run" not in read_screen(app))
        assert earlier.name in str(page.query_one(LinksPane).border_subtitle)
        await pilot.press("right_square_bracket")
        await wait_until(pilot, lambda: later.name in read_screen(app))
        await wait_until(pilot, lambda: heat_map.count_stops() == 4)


async def test_newly_measured_links_appear(folder, fake_survey):
    app = make_console(folder, page="hosts")
    async with app.run_test(size=(120, 40)) as pilot:
        page = await wait_for_examination(pilot)
        page.poll_seconds = 0.05
        assert "No run here" in str(page.query_one("#measured").render())
        record_links(folder / "home")
        await wait_until(
            pilot, lambda: page.query_one(LinksPane).query_one(HeatMap).count_stops() == 16
        )


async def test_all_rows_of_a_small_map_are_shown_on_a_small_screen(
    folder, fake_survey, monkeypatch
):
    findings = [Finding("ok", f"part {number}", "is there") for number in range(12)]
    monkeypatch.setattr(asking_module, "examine_machine", lambda python, ranks, env: findings)
    record_links(folder / "home")
    app = make_console(folder, page="hosts")
    async with app.run_test(size=(80, 24)) as pilot:
        await wait_for_examination(pilot)
        await wait_until(pilot, lambda: "Slowest: rank 1" in read_screen(app))
        await wait_until(pilot, lambda: find_line(app, "│ 3 node02"))


@pytest.mark.parametrize("has_own_links", [False, True])
async def test_links_of_a_replayed_run_are_shown(folder, fake_survey, has_own_links):
    if has_own_links:
        record_links(folder / "home")
    app = make_console(folder, page="hosts")
    async with app.run_test(size=(120, 40)) as pilot:
        page = await wait_for_examination(pilot)
        links = page.query_one(LinksPane)
        await wait_until(pilot, lambda: links.has_links is has_own_links)
        app.context.replay_run(find_demo_run(), None)
        await wait_until(pilot, lambda: app.context.feed.ended)
        await pilot.press("4")
        await wait_until(pilot, lambda: "demo links" in str(links.border_subtitle))
        await wait_until(
            pilot,
            lambda: "Slowest: rank 0 on sim01 to rank 2 on sim03" in read_screen(app),
        )
        assert links.has_earlier


async def test_load_of_this_machine_is_read_again_while_the_page_is_shown(
    folder, fake_survey, monkeypatch
):
    readings = []

    def read(monitor, own_runs):
        readings.append(monitor)
        load = 0.25 * len(readings)
        monitor.load.load_means = (load, load, load)
        monitor.load.memory.add(0.5)
        text = f"load {load} on 1 core from other work"
        monitor.load.findings = (Finding("note", "load", text, "wait"),)

    monkeypatch.setattr(MachineMonitor, "read", read)
    monkeypatch.setattr(page_module.HostsPage, "load_seconds", 0.01)
    app = make_console(folder, page="hosts")
    async with app.run_test(size=(160, 48)) as pilot:
        page = await wait_for_examination(pilot)
        await wait_until(pilot, lambda: len(readings) > 3 and "memory used" in read_screen(app))
        await wait_until(pilot, lambda: page._survey.facts[MACHINE].load > 0.5)
        assert page._survey.facts[MACHINE].status == "note"
        assert fake_survey.requests == [[MACHINE]]
        app.context.show_page("results")
        await wait_until(pilot, lambda: app.current_mode == "results")
        await pilot.pause()
        count = len(readings)
        for _ in range(20):
            await pilot.pause(0.01)
        assert len(readings) <= count + 1  # one may have been under way


def test_load_facts_name_their_periods():
    load = MachineLoad(load_means=[1.39, 1.25, 2.21])
    load.cpu.add(0.8)
    busy, means, *_ = list_load_facts(load)
    assert busy.text.endswith(" 80 % now")
    assert means.text == "1.39 in the last minute, 1.25 in 5 min, 2.21 in 15 min"


def test_load_facts_have_their_rows_before_the_first_readings():
    empty = list(list_load_facts(MachineLoad()))
    assert {fact.text for fact in empty} == {"…"}
    load = MachineLoad(load_means=[1.39, 1.25, 2.21], total_bytes=2**34, available_bytes=2**33)
    for history in (load.cpu, load.memory, load.received_rates, load.sent_rates):
        history.add(0.5)
    assert [fact.label for fact in list_load_facts(load)] == [fact.label for fact in empty]


async def test_details_of_another_host_say_when_its_load_was_read(folder, fake_survey):
    fake_survey.answer.set()
    app = make_console(folder, page="hosts")
    async with app.run_test(size=(160, 48)) as pilot:
        await wait_for_examination(pilot)
        await pilot.press("down")
        await wait_until(pilot, lambda: "R asks this one" in read_screen(app))
        await pilot.press("r")
        await wait_until(pilot, lambda: "0.500 when it was asked" in read_screen(app))
        await wait_until(pilot, lambda: "8 x NVIDIA H200" in read_screen(app))


def test_monitor_reads_shares_and_rates(tmp_path):
    (tmp_path / "net").mkdir()
    (tmp_path / "loadavg").write_text("0.5 0.25 0.1 1/100 42\n")
    monitor = MachineMonitor(tmp_path)
    for busy, total in ((0, 0), (30, 100)):
        (tmp_path / "stat").write_text(f"cpu {busy} 0 0 {total - busy} 0 0 0 0 0 0\n")
        received = 1000 * busy
        columns = f"{received} 0 0 0 0 0 0 0 {2 * received} 0"
        (tmp_path / "net/dev").write_text(f"a | b\n  lo: 9 9 9 9 9 9 9 9 9\neth0: {columns}\n")
        monitor.read()
    assert list(monitor.load.cpu.last) == [0.3]
    assert monitor.load.received_rates.last[0] > 0
    assert monitor.load.sent_rates.last[0] == 2 * monitor.load.received_rates.last[0]
    assert monitor.load.load_means == [0.5, 0.25, 0.1]


async def test_enter_is_named_by_its_effect_on_hosts(folder, fake_survey):
    app = make_console(folder, page="hosts")
    async with app.run_test(size=(120, 40)) as pilot:
        page = await wait_for_examination(pilot)
        await wait_until(pilot, lambda: "⏎ Run on " in read_screen(app))
        assert "u Run on" not in read_screen(app)
        page.query_one("#hosts").focus()
        await wait_until(pilot, lambda: "⏎ Examine one " in read_screen(app))
        await wait_until(pilot, lambda: "u Run on" in read_screen(app))


@pytest.mark.parametrize("size", [(160, 48), (200, 60)])
@pytest.mark.parametrize("has_links", [False, True])
async def test_columns_fill_a_high_screen(folder, fake_survey, size, has_links):
    if has_links:
        record_links(folder / "home")
    app = make_console(folder, page="hosts")
    async with app.run_test(size=size) as pilot:
        page = await wait_for_examination(pilot)
        links = page.query_one(LinksPane)
        await wait_until(pilot, lambda: links.has_links is has_links)
        bottom = page.query_one("#body").content_region.bottom
        charts = (page.query_one("#memory-chart"), page.query_one("#load-chart"))
        await wait_until(pilot, lambda: all(chart.region.bottom == bottom for chart in charts))
        await wait_until(pilot, lambda: links.region.y == page.query_one("#details").region.bottom)
        for pane in page.query("#details, #findings"):
            text = pane.query_one("Static")
            await wait_until(pilot, lambda p=pane, t=text: p.size.height == t.size.height)


async def test_chart_of_the_memory_leaves_its_lines_to_large_links(folder, fake_survey):
    ranks = [(rank, f"node{rank:02}") for rank in range(24)]
    latency = {(a, b): 2.0 for a in ranks for b in ranks if a < b}
    events = [*make_links_run(latency, {}), run_end()]
    cases = next(event["cases"] for event in events if event["event"] == "run_start")
    cases[0]["benchmark"] = "link.pingpong"
    record_run(folder / "home", events, verdict="passed")
    app = make_console(folder, page="hosts")
    async with app.run_test(size=(160, 48)) as pilot:
        page = await wait_for_examination(pilot)
        await wait_until(pilot, lambda: page.query_one(LinksPane).has_links)
        await wait_until(pilot, lambda: not page.query_one("#memory-chart").display)
        bottom = page.query_one("#body").content_region.bottom
        await wait_until(pilot, lambda: page.query_one("#links").region.bottom == bottom)


def test_physical_interfaces_are_named_and_virtual_ones_counted():
    names = ("br0", "eth0", "veth1")
    interfaces = [Interface(name, "up", None, is_virtual=name != "eth0") for name in names]
    assert describe_interfaces(interfaces) == "eth0 up, and 2 virtual"
    assert describe_interfaces(interfaces[::2]) == "br0 up, veth1 up"


def test_sparkline_is_as_wide_as_its_readings():
    load = MachineLoad()
    for share in (0.0, 0.5, 1.0):
        load.cpu.add(share)
    fact, *_ = list_load_facts(load)
    assert len(fact.text) == len("123 100 % now")


async def test_first_reading_of_the_load_is_at_the_right():
    class PaneApp(App):
        def compose(self):
            yield LoadChartPane("Cores busy", id="load-chart")

    app = PaneApp()
    async with app.run_test(size=(100, 20)) as pilot:
        chart = app.query_one(TimelineChart)
        await wait_until(pilot, lambda: chart.size.width > 0)
        history = LoadHistory()
        history.add(0.5)
        app.query_one(LoadChartPane).show(history, 3.0)
        assert chart.count_stops() == HISTORY_LENGTH
        chart.move_to(HISTORY_LENGTH - 1)
        [summary] = chart.draw(chart.size.width, 1)
        assert "50.0 %" in summary[0][0]


async def test_charts_of_the_load_leave_lines_for_findings_and_details(folder, fake_survey):
    app = make_console(folder, page="hosts")
    async with app.run_test(size=(200, 60)) as pilot:
        page = await wait_for_examination(pilot)
        chart = page.query_one("#load-chart")
        findings = page.query_one(FindingsPane)
        await wait_until(pilot, lambda: findings.size.height == findings.needed_lines - 2)
        await wait_until(pilot, lambda: chart.region.y == findings.region.bottom)
