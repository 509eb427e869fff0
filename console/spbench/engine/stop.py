"""The early end of a run: by a signal, the budget or a request in its folder."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

from spbench.errors import ExitCode, SpbenchError, StoppedError
from spbench.record.runs.folder import RunFolder

_T = TypeVar("_T")
CANCEL_FILE = "cancel.json"
"""The request of a console to cancel a run, left in the run's folder before SIGINT is sent."""
CONSOLE = "in the console"
_SIGNALS = {signal.SIGINT: "Ctrl-C", signal.SIGTERM: "SIGTERM", signal.SIGHUP: "SIGHUP"}

StopListener = Callable[[str, bool], None]
"""Takes the reason of the end, and whether a second signal ends the ranks immediately."""


class Stop:
    """The request to end a run early, with its reason. A signal overrides the budget.

    Attributes:
        message: The reason, once the run is to end.
        code: The exit code for that reason.
        find_canceller: Returns the console that has requested a cancel before it sent the
            interrupt; None if it is Ctrl-C.
    """

    def __init__(self, budget: float | None) -> None:
        self.message: str | None = None
        self.code: ExitCode | None = None
        self.find_canceller: Callable[[], str | None] = _find_no_canceller
        self._budget = budget
        self._timer: asyncio.TimerHandle | None = None
        self._started = time.monotonic()
        self._num_signals = 0
        self._listener: StopListener = _ignore

    def __enter__(self) -> Stop:
        """Catch the signals and start the budget's clock."""
        loop = asyncio.get_running_loop()
        for number, name in _SIGNALS.items():
            loop.add_signal_handler(number, self._on_signal, number, name)
        if self._budget is not None:
            self._timer = loop.call_later(self._budget, self._on_budget)
        return self

    def __exit__(self, *_: object) -> None:
        """Restore the signals.

        After a Ctrl-C, another one no longer interrupts the final writes.
        """
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.remove_signal_handler(number)
        if self._num_signals:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        if self._timer is not None:
            self._timer.cancel()

    def set_listener(self, listener: StopListener) -> None:
        """Report further stops to ``listener``, which replaces the former one."""
        self._listener = listener

    async def run_until_stop(self, work: Awaitable[_T]) -> _T:
        """Return the result of ``work``.

        Raises:
            StoppedError: The run is to end, and the work was cancelled.
        """
        task = asyncio.ensure_future(work)

        def cancel(_: str, __: bool) -> None:
            task.cancel()

        self.set_listener(cancel)
        try:
            return await task
        except asyncio.CancelledError:
            if self.message is None or self.code is None:
                raise
            raise StoppedError(self.message, self.code) from None
        finally:
            self.set_listener(_ignore)

    def _on_signal(self, number: signal.Signals, name: str) -> None:
        self._num_signals += 1
        if self._num_signals == 1:
            self.code = ExitCode.INTERRUPTED if number == signal.SIGINT else ExitCode.TERMINATED
            elapsed = time.monotonic() - self._started
            canceller = self.find_canceller() if number == signal.SIGINT else None
            origin = canceller or f"by {name}"
            self.message = f"cancelled {origin} after {elapsed:.1f} s of the run"
        self._listener(self.message or "", self._num_signals > 1)

    def _on_budget(self) -> None:
        if self.code is None:
            self.code = ExitCode.BUDGET
            self.message = f"the budget of {self._budget:g} s is used up"
            self._listener(self.message, False)


def _find_no_canceller() -> None:
    """Find no canceller, before the run has a folder with such requests."""


def _ignore(_: str, __: bool) -> None:
    """Ignore a stop while no job runs."""


def request_cancel(folder: RunFolder) -> None:
    """Record that a run is cancelled in the console, before the interrupt."""
    with suppress(SpbenchError):  # the run is cancelled even if this fails
        folder.write_json(CANCEL_FILE, {"cancelled": CONSOLE})


def read_cancel_origin(folder: RunFolder) -> str | None:
    """Return where a run was cancelled; None without a request."""
    origin = folder.read_json(CANCEL_FILE).get("cancelled")
    return origin if isinstance(origin, str) else None


def remove_cancel_request(folder: RunFolder) -> None:
    """Remove the request, because the run continues."""
    with suppress(OSError):
        (folder.path / CANCEL_FILE).unlink(missing_ok=True)
