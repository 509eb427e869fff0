"""Launcher, hosts and environment of runs from the console."""

import pytest
from textual.widgets import Input

from spbench.errors import UsageError
from spbench.tui.chooser import Chooser
from spbench.tui.dialogs import AskLine
from spbench.tui.launch_dialogs import _is_file, parse_environment
from support.tui.driving import SIZES, console, shown, until


async def answered(pilot, key, line):
    """Open a question by its key, and answer it."""
    await pilot.press(key)
    await until(pilot, lambda: isinstance(pilot.app.screen, AskLine))
    pilot.app.screen.query_one(Input).value = line
    await pilot.press("enter")


@pytest.mark.parametrize("size", SIZES)
async def test_a_launcher_and_an_environment_are_in_the_launch_line(tmp_path, suite, size):
    app = console(tmp_path, suite=suite)
    async with app.run_test(size=size) as pilot:
        await until(pilot, lambda: "mpirun" in shown(app))
        await pilot.press("L")
        await until(pilot, lambda: isinstance(app.screen, Chooser))
        await pilot.press(*"another", "enter")
        await until(pilot, lambda: isinstance(app.screen, AskLine))
        await pilot.press(*"mvapich2-2.3.7", "enter")
        await until(pilot, lambda: "mpirun_rsh" in shown(app))
        await answered(pilot, "E", "MV2_DEBUG='a b' X=1")
        await until(
            pilot, lambda: app.context.overrides == ("launch.env.MV2_DEBUG=a b", "launch.env.X=1")
        )
        await until(pilot, lambda: "env: MV2_DEBUG,X" in shown(app) or size[0] < 100)
        await until(pilot, lambda: "X=1" in app.pages["suites"].query_one("#command").line)


async def test_hosts_are_a_file_or_a_list(tmp_path, suite):
    (tmp_path / "my.hosts").write_text("node01:2\n")
    app = console(tmp_path, suite=suite)
    async with app.run_test(size=(120, 36)) as pilot:
        await until(pilot, lambda: "mpirun" in shown(app))
        await answered(pilot, "H", "my.hosts")
        await until(pilot, lambda: app.context.launch_choice.hostfile == tmp_path / "my.hosts")
        await answered(pilot, "H", "node[01-02]:2")
        await until(pilot, lambda: app.context.launch_choice.hosts == "node[01-02]:2")
        assert app.context.launch_choice.hostfile is None
        await answered(pilot, "H", "")
        await until(pilot, lambda: app.context.launch_choice.hosts is None)


def test_a_list_that_is_longer_than_a_file_name_is_no_file(tmp_path):
    assert not _is_file(tmp_path / "node01,".join(["x"] * 100))


async def test_nothing_is_chosen_where_nothing_may_be_started(tmp_path, suite):
    app = console(tmp_path, suite=suite, readonly=True)
    async with app.run_test(size=(120, 36)) as pilot:
        await until(pilot, lambda: "mpirun" in shown(app))
        await pilot.press("L")
        assert not isinstance(app.screen, Chooser)


@pytest.mark.parametrize("line", ["X", "1X=2", "=3", "X='", "X=1 y", "X=1 X=2"])
def test_what_is_no_variable_is_refused(line):
    with pytest.raises(UsageError):
        parse_environment(line)
