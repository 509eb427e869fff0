"""Launcher, hosts and environment of runs from the console."""

import pytest
from textual.widgets import Input, Static

from spbench.errors import Advice, UsageError
from spbench.launch.choice import LaunchChoice
from spbench.record.planted_faults import add_found_fault
from spbench.report.run_details import Fact
from spbench.tui.advice import KEYS_BY_ADVICE, name_keys
from spbench.tui.chooser import Chooser
from spbench.tui.dialogs import AskLine
from spbench.tui.launch_dialogs import _is_file, parse_environment
from spbench.tui.results.fact_table import build_fact_table
from spbench_core.catalog.planted_fault import RAISED_TEXT
from support.tui.app_driver import SIZES, make_console, read_screen, wait_until


async def answer_line(pilot, key, line):
    """Open a question by its key, and answer it."""
    await pilot.press(key)
    await wait_until(pilot, lambda: isinstance(pilot.app.screen, AskLine))
    pilot.app.screen.query_one(Input).value = line
    await pilot.press("enter")


def read_problem(app):
    """Return the error that a question shows; empty without one."""
    return str(app.screen.query_one("#problem", Static).content)


@pytest.mark.parametrize("size", SIZES)
async def test_launch_line_has_launcher_and_environment(tmp_path, suite, size):
    app = make_console(tmp_path, suite=suite)
    async with app.run_test(size=size) as pilot:
        await wait_until(pilot, lambda: "mpirun" in read_screen(app))
        await pilot.press("L")
        await wait_until(pilot, lambda: isinstance(app.screen, Chooser))
        await pilot.press(*"mpirun_rsh", "enter")
        await wait_until(pilot, lambda: "is not installed here: its lines for" in read_screen(app))
        names = [choice.name for choice in app.screen._shown]
        assert names == ["mvapich2-2.3.7", "type another"]
        await pilot.press("enter")
        await wait_until(pilot, lambda: app.context.launch_choice.assume == "mvapich2-2.3.7")
        assert app.context.launch_choice.launcher == "mpirun_rsh"
        await wait_until(pilot, lambda: "mpirun_rsh" in read_screen(app))
        await answer_line(pilot, "E", "MV2_DEBUG='a b' X=1")
        await wait_until(
            pilot, lambda: app.context.overrides == ("launch.env.MV2_DEBUG=a b", "launch.env.X=1")
        )
        await wait_until(pilot, lambda: "env: MV2_DEBUG,X" in read_screen(app) or size[0] < 100)
        await wait_until(
            pilot, lambda: "X=1" in app.pages["suites"].query_one("#command").command_line
        )


async def test_hosts_can_be_a_file_or_a_list(tmp_path, suite):
    (tmp_path / "my.hosts").write_text("node01:2\n")
    app = make_console(tmp_path, suite=suite)
    async with app.run_test(size=(120, 36)) as pilot:
        await wait_until(pilot, lambda: "mpirun" in read_screen(app))
        await answer_line(pilot, "H", "my.hosts")
        await wait_until(pilot, lambda: app.context.launch_choice.hostfile == tmp_path / "my.hosts")
        await answer_line(pilot, "H", "node[01-02]:2")
        await wait_until(pilot, lambda: app.context.launch_choice.hosts == "node[01-02]:2")
        assert app.context.launch_choice.hostfile is None
        await answer_line(pilot, "H", "")
        await wait_until(pilot, lambda: app.context.launch_choice.hosts is None)


@pytest.mark.parametrize(
    ("key", "line", "error"),
    [
        ("H", "~no-such-user/file", "✗ ~no-such-user/file: unknown home directory"),
        ("H", "node01:x", "✗ hosts: "),
        ("H", "./no.file", "cannot read the hostfile: No such file"),
        ("H", "no.hosts", "cannot read the hostfile: No such file"),
        ("H", "./", "cannot read the hostfile: Is a directory"),
        ("E", "1X=2", "✗ '1X=2' is not NAME=VALUE"),
        ("ctrl+n", "~no-such-user/file", "✗ ~no-such-user/file: unknown home directory"),
        ("ctrl+n", "suites/", "✗ suites/: not a file name"),
        ("ctrl+n", "a.txt", "is not a suite file name: end it with .yaml"),
        ("ctrl+n", "", "✗ type a file name, or leave with Escape"),
    ],
)
async def test_dialog_stays_open_with_the_error_of_its_line(tmp_path, suite, key, line, error):
    app = make_console(tmp_path, suite=suite)
    async with app.run_test(size=(120, 36)) as pilot:
        await wait_until(pilot, lambda: "mpirun" in read_screen(app))
        await answer_line(pilot, key, line)
        await wait_until(pilot, lambda: error in " ".join(read_problem(app).split()))
        assert isinstance(app.screen, AskLine)
        assert "Enter accepts  Esc cancels" in read_screen(app)
        await pilot.press("x")
        await wait_until(pilot, lambda: read_problem(app) == "")


@pytest.mark.parametrize("line", ["node01:2, node02:2", "node01:2 node02:2"])
async def test_list_of_hosts_may_have_spaces(tmp_path, suite, line):
    app = make_console(tmp_path, suite=suite)
    async with app.run_test(size=(120, 36)) as pilot:
        await wait_until(pilot, lambda: "mpirun" in read_screen(app))
        await answer_line(pilot, "H", line)
        await wait_until(pilot, lambda: app.context.launch_choice.hosts == "node01:2,node02:2")


async def test_library_is_checked_in_its_dialog_and_gets_a_version(tmp_path, suite):
    app = make_console(tmp_path, suite=suite)
    async with app.run_test(size=(120, 36)) as pilot:
        await wait_until(pilot, lambda: "mpirun" in read_screen(app))
        await pilot.press("L")
        await wait_until(pilot, lambda: isinstance(app.screen, Chooser))
        await pilot.press(*"another", "enter")
        await wait_until(pilot, lambda: "started by mpirun_rsh" in read_screen(app))
        await pilot.press("end", "enter")
        await wait_until(pilot, lambda: isinstance(app.screen, AskLine))
        app.screen.query_one(Input).value = "lam"
        await pilot.press("enter")
        await wait_until(pilot, lambda: "libraries are" in read_screen(app))
        assert "--assume" not in read_screen(app)
        app.screen.query_one(Input).value = "mvapich2"
        await pilot.press("enter")
        await wait_until(pilot, lambda: app.context.launch_choice.assume == "mvapich2-2.3.7")


async def test_command_names_hosts_without_ranks(tmp_path, suite):
    choice = LaunchChoice(hosts="node01:2,node02:2", assume="openmpi-5.0")
    app = make_console(tmp_path, suite=suite, launch_choice=choice)
    async with app.run_test(size=(120, 36)) as pilot:
        await wait_until(pilot, lambda: "node02 without ranks" in read_screen(app))


async def test_missing_launcher_names_the_key_that_shows_its_line(tmp_path, suite):
    choice = LaunchChoice(launcher="mpirun_rsh")
    app = make_console(tmp_path, suite=suite, launch_choice=choice)
    async with app.run_test(size=(120, 36)) as pilot:
        await wait_until(pilot, lambda: "L, then another library" in read_screen(app))


def test_each_advice_has_keys_instead_of_options():
    assert set(KEYS_BY_ADVICE) == set(Advice)
    for advice in Advice:
        assert "--" in advice.value
        assert "--" not in name_keys(f"cannot reach node1; {advice.value}")


def test_settings_are_named_by_key_and_form():
    message = name_keys("Run both sides with `--set repeat=4`.")
    assert message == "Run both sides with repeat: 4 (D in the cases of the Suites page)."
    message = name_keys("Use `spbench compare --force` to compare anyway.")
    assert message == "Mark two other runs with Space to compare them."
    message = name_keys("too short; take more iterations (`--set iterations=580`), or wait")
    assert message == "too short; take 580 iterations (F3 on the Suites page), or wait"
    command = "compare them with: spbench compare a b --metric time_ms"
    assert name_keys(command) == command
    advice = "check its host with: spbench doctor"
    assert name_keys(f"{advice} --hosts node03") == "page 4 checks its host"
    assert name_keys(advice) == "page 4 checks this machine"
    assert name_keys("Not judged: x. `--fail-on worse` accepts that.") == "Not judged: x."


def test_planted_fault_that_was_found_is_named_once():
    failure = add_found_fault(
        f"rank 1 on a, 2 s into b: InjectedFaultError: {RAISED_TEXT}", "raise"
    )
    reason = "rank 1 on a, 2 s into b: InjectedFaultError: raised on purpose"
    assert name_keys(failure) == f"{reason}; fault found, as planted: raise"
    assert name_keys("; planted by --inject slow=9") == "; fault found, as planted: slow=9"


def test_facts_name_keys_and_commands_keep_their_options():
    facts = [Fact(label, "mpirun --hostfile h") for label in ("reason", "launch")]
    table = build_fact_table(facts)
    texts = [str(text) for text in table.columns[1].cells]
    assert texts == ["mpirun the hostfile h", "mpirun --hostfile h"]


def test_details_of_a_broken_case_are_named_by_key():
    advice = "Broken in b, x: c. See `spbench results show 20010101-a` for the details."
    assert name_keys(advice) == "Broken in b, x: c. Enter on a case shows its details in b."


def test_long_list_is_not_taken_for_a_file(tmp_path):
    assert not _is_file(tmp_path / "node01,".join(["x"] * 100))


async def test_readonly_does_not_offer_launchers(tmp_path, suite):
    app = make_console(tmp_path, suite=suite, readonly=True)
    async with app.run_test(size=(120, 36)) as pilot:
        await wait_until(pilot, lambda: "mpirun" in read_screen(app))
        await pilot.press("L")
        assert not isinstance(app.screen, Chooser)


@pytest.mark.parametrize("line", ["X", "1X=2", "=3", "X='", "X=1 y", "X=1 X=2"])
def test_rejects_invalid_variables(line):
    with pytest.raises(UsageError):
        parse_environment(line)
