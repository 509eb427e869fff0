"""Reasons to stop a run early, and their precedence."""

import asyncio
import os
import signal

import pytest

from spbench.engine.stop import Stop
from spbench.errors import ExitCode, StoppedError


@pytest.fixture(autouse=True)
def _restore_sigint():
    """Restore the handler: after a run that a signal ended, Ctrl-C is ignored."""
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


async def send_signal(number=signal.SIGINT):
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
async def test_signal_stops_a_run_with_its_exit_code(number, code, name):
    with Stop(None) as stop:
        assert stop.code is None
        await send_signal(number)
        assert stop.code is code
        assert stop.message.startswith(f"cancelled by {name} after ")


async def test_names_the_canceller_only_for_an_interrupt():
    for number, expected in (
        (signal.SIGINT, "cancelled in the console"),
        (signal.SIGTERM, "by SIGT"),
    ):
        with Stop(None) as stop:
            stop.find_canceller = lambda: "in the console"
            await send_signal(number)
            assert expected in stop.message


async def test_only_the_second_signal_stops_at_once():
    calls = []
    with Stop(None) as stop:
        stop.set_listener(lambda reason, kill_now: calls.append(kill_now))
        await send_signal()
        await send_signal()
    assert calls == [False, True]


async def test_ignores_ctrl_c_after_a_cancelled_run():
    with Stop(None) as stop:
        await send_signal()
    await send_signal()
    assert stop.code is ExitCode.INTERRUPTED
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


async def test_first_signal_sets_the_exit_code():
    with Stop(None) as stop:
        await send_signal(signal.SIGTERM)
        await send_signal(signal.SIGINT)
        assert stop.code is ExitCode.TERMINATED


async def test_reports_an_exhausted_budget():
    calls = []
    with Stop(0.05) as stop:
        stop.set_listener(lambda reason, kill_now: calls.append((reason, kill_now)))
        await asyncio.sleep(0.1)
    assert stop.code is ExitCode.BUDGET
    assert calls == [("the budget of 0.05 s is used up", False)]


async def test_signal_takes_precedence_over_the_budget():
    with Stop(0.03) as after:
        await asyncio.sleep(0.06)
        codes = [after.code]
        await send_signal()
        assert [*codes, after.code] == [ExitCode.BUDGET, ExitCode.INTERRUPTED]
    with Stop(0.05) as before:
        await send_signal()
        await asyncio.sleep(0.1)
        assert before.code is ExitCode.INTERRUPTED


async def test_stopped_work_is_cancelled_with_a_reason(messages):
    ended = []

    async def work():
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(True)

    with Stop(0.05) as stop, messages.raises(StoppedError) as caught:
        await stop.run_until_stop(work())
    assert ended == [True]
    assert caught.value.exit_code is ExitCode.BUDGET


async def test_unstopped_work_returns_its_result():
    async def work():
        return 7

    with Stop(60.0) as stop:
        assert await stop.run_until_stop(work()) == 7


async def test_restores_the_signal_handlers():
    with Stop(None):
        pass
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
