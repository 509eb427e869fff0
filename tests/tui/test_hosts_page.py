"""The Hosts page, driven by keys, over made-up hosts that a stand-in asks."""

import asyncio
import os
import socket
import threading

import pytest

from spbench.launch import doctor
from spbench.launch.choice import LaunchChoice
from spbench.launch.finding import Finding
from spbench.launch.gpus.facts import Card, HostGpus
from spbench.launch.survey.facts import HostFacts
from spbench.report.links import build_link_matrices
from spbench.report.recorded import load_run
from spbench.tui.hosts import host_survey as asking_module
from spbench.tui.hosts import page as page_module
from spbench.tui.hosts.links_pane import LinksPane, describe_worst_link
from spbench.tui.hosts.panes import FindingsPane
from spbench.tui.widgets.heat_map import HeatMap
from support.sample_events import make_links_run, record_run, run_end
from support.tui.driving import SIZES, console, in_one_write, shown, until

MACHINE = socket.gethostname()
AWAY = Finding("missing", "ssh", "no answer in 8 s", "see that it is up")
LATE = Finding("note", "clock", "3.1 s ahead of this machine's", "let chrony set the clocks")


def facts_of(host):
    """node02 cannot be reached, node03 has a note, and half the cores of all others."""
    if host == "node02":
        return HostFacts(host, "unreachable", AWAY.text, (AWAY,))
    note = (LATE,) if host == "node03" else ()
    return HostFacts(
        host,
        "note" if note else "ok",
        f"clock: {LATE.text}" if note else "",
        note,
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


class Survey:
    """Stands in for the survey: notes whom it asks; hosts answer when ``answer`` is set."""

    def __init__(self):
        self.asked = []
        self.ended = 0
        self.answer = asyncio.Event()

    async def __call__(self, hosts, settings, env):
        self.asked.append(list(hosts))
        try:
            for host in hosts:
                if host != MACHINE:
                    await self.answer.wait()
                yield facts_of(host)
        finally:
            self.ended += 1


@pytest.fixture
def survey(monkeypatch):
    found = [Finding("ok", "launcher", "auto takes openmpi")]
    stand_in = Survey()
    monkeypatch.setattr(asking_module, "survey_hosts", stand_in)
    monkeypatch.setattr(asking_module, "examine_machine", lambda python, ranks, env: found)
    return stand_in


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "hostfiles").mkdir()
    (tmp_path / "hostfiles/cluster").write_text("node[01-04]:64\n")
    (tmp_path / "hostfiles/wrong").write_text("node01:x\nnode02:0\n")
    return tmp_path


def linked(home):
    """Record links of four ranks on two hosts; the one from rank 1 to rank 2 is slow."""
    places = [(0, "node01"), (1, "node01"), (2, "node02"), (3, "node02")]
    pairs = [(a, b) for a in places for b in places if a < b]
    slow = ((1, "node01"), (2, "node02"))
    latency = {(a, b): 0.4 if a[1] == b[1] else 2.0 for a, b in pairs} | {slow: 5.2}
    bandwidth = dict.fromkeys(pairs, 10.0)
    events = [*make_links_run(latency, bandwidth), run_end()]
    cases = next(event["cases"] for event in events if event["event"] == "run_start")
    cases[0]["benchmark"] = "link.pingpong"
    return record_run(home, events, verdict="passed")


async def ready(pilot):
    """Wait until this machine has been examined."""
    app = pilot.app
    await until(pilot, lambda: app.screen.query("#map") and app.screen._survey.machine_findings)
    await until(pilot, lambda: app.screen._table.total > 0)
    return app.screen


def findings(app):
    return str(app.screen.query_one(FindingsPane).query_one("Static").render())


def row_of(app, text):
    return next((line for line in shown(app).splitlines() if text in line), "")


@pytest.mark.parametrize("size", SIZES)
async def test_hosts_are_asked_only_when_one_says_so(folder, survey, size):
    app = console(folder, page="hosts")
    async with app.run_test(size=size) as pilot:
        page = await ready(pilot)
        await until(pilot, lambda: "✓ ok" in row_of(app, MACHINE))
        await until(pilot, lambda: "auto takes openmpi" in findings(app))
        assert survey.asked == [[MACHINE]]
        await pilot.press("down")
        await until(pilot, lambda: "· not asked" in row_of(app, "node01"))
        await until(pilot, lambda: "not asked yet" in findings(app))
        assert survey.asked == [[MACHINE]]
        await pilot.press("d")
        await until(pilot, lambda: "… asking" in row_of(app, "node04"))
        await until(pilot, lambda: "asking 4, esc stops" in shown(app))
        survey.answer.set()
        await until(pilot, lambda: "✗ unreachable" in row_of(app, "node02"))
        await until(pilot, lambda: "! note" in row_of(app, "node03"))
        await until(pilot, lambda: "✓ ok" in row_of(app, "node04"))
        await until(pilot, lambda: "64" in row_of(app, "node04"))
        assert "esc stops" not in shown(app)
        await pilot.press("tab", "down")
        await until(pilot, lambda: "✗ missing ssh: no answer in 8 s" in findings(app))
        await until(pilot, lambda: "→ see that it is up" in findings(app))
        await until(pilot, lambda: "The hosts differ" in findings(app))
        await until(pilot, lambda: "node03 has 32 cores, the others 64" in findings(app))
        assert page._hosts.host == "node02"


async def test_keys_that_come_right_behind_the_filters_reach_it(folder, survey):
    app = console(folder, page="hosts")
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(pilot)
        in_one_write(app, "/mdx/q")
        await until(pilot, lambda: getattr(app.focused, "value", "") == "mdx/q")
        assert survey.asked == [[MACHINE]]


async def test_a_look_that_takes_long_is_not_begun_again_beside_itself(folder, survey, monkeypatch):
    monkeypatch.setattr(page_module, "POLL_INTERVAL", 0.01)
    begun = []
    go_on = threading.Event()

    def slowly(home, before):
        begun.append(home)
        go_on.wait(10)
        return (), None

    monkeypatch.setattr(page_module, "_read_last_links", slowly)
    app = console(folder, page="hosts")
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: begun)
        await pilot.pause(0.3)
        assert len(begun) == 1
        go_on.set()
        await until(pilot, lambda: len(begun) > 2)


async def test_this_machine_is_examined_for_no_number_of_ranks(folder, survey, monkeypatch):
    monkeypatch.setattr(asking_module, "examine_machine", doctor.examine_machine)
    monkeypatch.setattr(doctor, "count_cores", lambda: 2)
    app = console(folder, page="hosts")
    async with app.run_test(size=(120, 40)) as pilot:
        page = await ready(pilot)
        assert (
            "2 of" in " ".join(f.text for f in page._survey.machine_findings) or os.cpu_count() == 2
        )
        assert not [f for f in page._survey.machine_findings if "would share" in f.text]


def test_a_link_that_is_as_fast_as_the_others_is_not_called_worse(tmp_path):
    latency = {((0, "a"), (1, "a")): 2.0, ((0, "a"), (2, "a")): 2.0, ((1, "a"), (2, "a")): 2.02}
    events = [*make_links_run(latency, {}), run_end()]
    next(event["cases"] for event in events if event["event"] == "run_start")[0]["benchmark"] = (
        "link.pingpong"
    )
    run = load_run(record_run(tmp_path, events, verdict="passed"))
    (matrix,) = build_link_matrices(run)
    (table,) = matrix.tables
    assert describe_worst_link(table).endswith("2.02 us, near the median within a host.")


async def test_one_host_is_asked_alone_and_asking_can_be_stopped(folder, survey):
    app = console(folder, page="hosts")
    async with app.run_test(size=(120, 40)) as pilot:
        page = await ready(pilot)
        await pilot.press("down")
        await until(pilot, lambda: "node03" in shown(app))
        await pilot.press("tab", "down", "down", "enter")
        await until(pilot, lambda: survey.asked[1:] == [["node03"]])
        await pilot.press("d")
        await until(pilot, lambda: len(page._survey.pending) == 4)
        assert survey.asked[2] == ["node01", "node02", "node04"], "none is asked twice at once"
        await pilot.press("escape")
        await until(pilot, lambda: survey.ended == 3)
        await until(pilot, lambda: "· not asked" in row_of(app, "node01"))
        assert page._survey.pending == set()
        survey.answer.set()
        await pilot.press("up", "x")
        await until(pilot, lambda: "✗ unreachable" in row_of(app, "node02"))
        assert survey.asked[3] == ["node02"]


@pytest.mark.parametrize("size", SIZES)
async def test_hosts_are_chosen_for_runs_and_shown_at_the_top(folder, survey, size):
    app = console(folder, page="hosts", launch_choice=LaunchChoice(launcher="hydra"))
    async with app.run_test(size=size) as pilot:
        await ready(pilot)
        await until(pilot, lambda: "● this machine" in shown(app))
        await pilot.press("down", "u")
        path = folder / "hostfiles/cluster"
        assert app.context.launch_choice == LaunchChoice(hostfile=path, launcher="hydra")
        await until(pilot, lambda: "hosts: cluster" in shown(app).splitlines()[0])
        await until(pilot, lambda: "● cluster" in shown(app))
        assert "● this machine" not in shown(app)
        await pilot.press("up", "enter")
        assert app.context.launch_choice == LaunchChoice(launcher="hydra")
        await until(pilot, lambda: "hosts:" not in shown(app).splitlines()[0])


async def test_a_wrong_hostfile_shows_its_errors_and_cannot_be_used(folder, survey):
    app = console(folder, page="hosts")
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await ready(pilot)
        await pilot.press("end")
        await until(pilot, lambda: "bad count 'x'" in shown(app))
        await until(pilot, lambda: "bad count '0'" in shown(app))
        await until(pilot, lambda: "no host is chosen" in findings(app))
        await pilot.press("u", "d")
        await until(pilot, lambda: "fix it first" in shown(app))
        assert app.context.launch_choice == LaunchChoice()
        assert survey.asked == [[MACHINE]]


async def test_the_command_lines_hosts_stand_there_too(folder, survey):
    given = LaunchChoice(hosts="node[07-09]:2", exclude_hosts="node08")
    app = console(folder, page="hosts", launch_choice=given)
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(pilot)
        await until(pilot, lambda: "● node[07-09]:2" in shown(app))
        assert row_of(app, "● node[07-09]:2").split()[3:5] == ["2", "4"]
        await pilot.press("down")
        await until(pilot, lambda: "node09" in shown(app))
        assert "node08" not in shown(app)


async def test_the_command_lines_hostfile_stands_there_once_and_its_error_is_told(folder, survey):
    given = LaunchChoice(hostfile=folder / "hostfiles/wrong")
    app = console(folder, page="hosts", launch_choice=given)
    async with app.run_test(size=(120, 40)) as pilot:
        page = await ready(pilot)
        titles = [source.title for source in page._sources.sources.values()]
        assert titles == ["this machine", "wrong", "cluster"]
        await pilot.press("down")
        await until(pilot, lambda: "bad count 'x'" in shown(app))


async def test_hosts_are_filtered_and_sorted_by_what_they_said(folder, survey):
    app = console(folder, page="hosts")
    survey.answer.set()
    async with app.run_test(size=(200, 60)) as pilot:
        page = await ready(pilot)
        await pilot.press("down", "d")
        await until(pilot, lambda: "✗ unreachable" in shown(app))
        await until(pilot, lambda: "✓ ok" in row_of(app, "node04"))
        page._hosts.table.sort_by("status")
        await until(pilot, lambda: page._hosts.host is not None)
        order = [page._hosts.table._order.keys[at] for at in range(4)]
        assert order == ["node02", "node03", "node01", "node04"]
        await pilot.press("slash")
        app.focused.value = "clock"
        await until(pilot, lambda: page._hosts.table.shown == 1)
        await until(pilot, lambda: "node03" in shown(app))
        await pilot.press("enter")
        assert app.focused is page._hosts.table
        await pilot.press("slash", "escape")
        await until(pilot, lambda: page._hosts.table.shown == 4)


async def test_a_hostfile_that_is_written_meanwhile_shows_up(folder, survey, monkeypatch):
    monkeypatch.setattr(page_module, "POLL_INTERVAL", 0.05)
    app = console(folder, page="hosts")
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(pilot)
        (folder / "hostfiles/new").write_text("node09\n")
        await until(pilot, lambda: row_of(app, " new "))
        assert survey.asked == [[MACHINE]]


# Links


async def test_without_measured_links_the_page_says_what_measures_them(folder, survey):
    app = console(folder, page="hosts")
    async with app.run_test(size=(80, 24)) as pilot:
        page = await ready(pilot)
        await pilot.press("m", "h")
        assert "No run here measured links" in str(page.query_one("#measured").render())
        assert not page.query_one(HeatMap).display


@pytest.mark.parametrize("size", SIZES)
async def test_the_slowest_link_stands_out_on_the_map_and_in_words(folder, survey, size):
    run = linked(folder / "home")
    app = console(folder, page="hosts")
    async with app.run_test(size=size) as pilot:
        page = await ready(pilot)
        heat_map = page.query_one(HeatMap)
        await until(pilot, lambda: heat_map.count_stops() == 16)
        await until(pilot, lambda: "latency_us in us, 8 B (m: 1 of 2)" in shown(app))
        await until(pilot, lambda: run.id in shown(app))
        await until(pilot, lambda: "█" in row_of(app, "│ 1 node01"))
        assert "█" not in row_of(app, "│ 0 node01")
        worst = str(page.query_one("#worst").render())
        assert worst == (
            "Slowest: rank 1 on node01 to rank 2 on node02, 5.20 us, "
            "2.60x worse than the median between hosts."
        )
        await pilot.press("h")
        await until(pilot, lambda: heat_map.count_stops() == 4)
        assert "between hosts, the worst pair" in str(page.query_one("#measured").render())
        heat_map.move_to(1)
        await until(pilot, lambda: "node01 -> node02: 5.20 us, 2.60x the median" in shown(app))
        await pilot.press("m")
        await until(pilot, lambda: "bandwidth_gb_s in GB/s, 1 MiB (m: 2 of 2)" in shown(app))
        await pilot.press("h")
        await until(pilot, lambda: heat_map.count_stops() == 16)
        await until(pilot, lambda: "█" not in shown(app))


async def test_links_measured_meanwhile_show_up(folder, survey, monkeypatch):
    monkeypatch.setattr(page_module, "POLL_INTERVAL", 0.05)
    app = console(folder, page="hosts")
    async with app.run_test(size=(120, 40)) as pilot:
        page = await ready(pilot)
        assert "No run here" in str(page.query_one("#measured").render())
        linked(folder / "home")
        await until(pilot, lambda: page.query_one(LinksPane).query_one(HeatMap).count_stops() == 16)
