"""Reasons that end a run early, and which of two counts."""

import asyncio
import os
import signal

import pytest

from spbench.engine.stop import Stop
from spbench.errors import ExitCode, StoppedError


@pytest.fixture(autouse=True)
def _ctrl_c_as_before():
    """After a run that a signal has ended Ctrl-C does nothing more."""
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


async def press(number=signal.SIGINT):
    os.kill(os.getpid(), number)
    await asyncio.sleep(0.02)


@pytest.mark.parametrize(
    ("number", "code", "name"),
    [
        (signal.SIGINT, ExitCode.INTERRUPTED, "Ctrl-C"),
        (signal.SIGTERM, ExitCode.TERMINATED, "SIGTERM"),
        (signal.SIGHUP, ExitCode.TERMINATED, "SIGHUP"),
    ],
)
async def test_a_signal_ends_a_run_with_its_code(number, code, name):
    with Stop(None) as stop:
        assert stop.code is None
        await press(number)
        assert stop.code is code
        assert stop.message.startswith(f"cancelled by {name} after ")


async def test_who_left_word_is_named_for_an_interrupt_alone():
    for number, told in ((signal.SIGINT, "cancelled in the console"), (signal.SIGTERM, "by SIGT")):
        with Stop(None) as stop:
            stop.find_canceller = lambda: "in the console"
            await press(number)
            assert told in stop.message


async def test_only_the_second_signal_is_at_once():
    told = []
    with Stop(None) as stop:
        stop.set_listener(lambda why, at_once: told.append(at_once))
        await press()
        await press()
    assert told == [False, True]


async def test_ctrl_c_after_the_end_of_a_cancelled_run_is_not_heard():
    with Stop(None):
        await press()
    await press()


async def test_the_first_signal_gives_the_code():
    with Stop(None) as stop:
        await press(signal.SIGTERM)
        await press(signal.SIGINT)
        assert stop.code is ExitCode.TERMINATED


async def test_a_budget_that_is_used_up_is_told():
    told = []
    with Stop(0.05) as stop:
        stop.set_listener(lambda why, at_once: told.append((why, at_once)))
        await asyncio.sleep(0.1)
    assert stop.code is ExitCode.BUDGET
    assert told == [("the budget of 0.05 s is used up", False)]


async def test_a_signal_counts_before_a_budget_whichever_comes_first():
    with Stop(0.03) as after:
        await asyncio.sleep(0.06)
        codes = [after.code]
        await press()
        assert [*codes, after.code] == [ExitCode.BUDGET, ExitCode.INTERRUPTED]
    with Stop(0.05) as before:
        await press()
        await asyncio.sleep(0.1)
        assert before.code is ExitCode.INTERRUPTED


async def test_work_that_is_stopped_is_cancelled_and_says_why():
    ended = []

    async def work():
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(True)

    with Stop(0.05) as stop, pytest.raises(StoppedError, match="is used up") as caught:
        await stop.run_until_stop(work())
    assert ended == [True]
    assert caught.value.exit_code is ExitCode.BUDGET


async def test_work_that_is_not_stopped_gives_what_it_gives():
    async def work():
        return 7

    with Stop(60.0) as stop:
        assert await stop.run_until_stop(work()) == 7


async def test_the_signals_are_given_back():
    with Stop(None):
        pass
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
