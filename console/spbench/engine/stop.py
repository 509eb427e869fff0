"""The early end of a run: by Ctrl-C, a signal or the budget."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from spbench.errors import ExitCode, StoppedError

_T = TypeVar("_T")
_SIGNALS = {signal.SIGINT: "Ctrl-C", signal.SIGTERM: "SIGTERM", signal.SIGHUP: "SIGHUP"}

Listener = Callable[[str, bool], None]
"""Called with why the run ends, and whether at once: with a second signal ranks get no time."""


class Stop:
    """The request to end a run early, with its reason. A signal counts before the budget.

    Attributes:
        sentence: Why, once the run is to end.
        code: The exit code that goes with it.
        asked: Returns who sent the interrupt, where somebody left word; else it is Ctrl-C.
    """

    def __init__(self, budget: float | None) -> None:
        self.sentence: str | None = None
        self.code: ExitCode | None = None
        self.asked: Callable[[], str | None] = _nobody_asked
        self._budget = budget
        self._timer: asyncio.TimerHandle | None = None
        self._started = time.monotonic()
        self._signals = 0
        self._listener: Listener = _nobody

    def __enter__(self) -> Stop:
        """Catch the signals and start the budget's clock."""
        loop = asyncio.get_running_loop()
        for number, name in _SIGNALS.items():
            loop.add_signal_handler(number, self._on_signal, number, name)
        if self._budget is not None:
            self._timer = loop.call_later(self._budget, self._on_budget)
        return self

    def __exit__(self, *_: object) -> None:
        """Give the signals back; a Ctrl-C after another one no longer ends what is written last."""
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.remove_signal_handler(number)
        if self._signals:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        if self._timer is not None:
            self._timer.cancel()

    def tell(self, listener: Listener) -> None:
        """Let ``listener`` know of what comes from now on."""
        self._listener = listener

    async def unless(self, work: Awaitable[_T]) -> _T:
        """Return what ``work`` gives.

        Raises:
            StoppedError: The run is to end; the work was cancelled.
        """
        task = asyncio.ensure_future(work)

        def cancel(_: str, __: bool) -> None:
            task.cancel()

        self.tell(cancel)
        try:
            return await task
        except asyncio.CancelledError:
            if self.sentence is None or self.code is None:
                raise
            raise StoppedError(self.sentence, self.code) from None
        finally:
            self.tell(_nobody)

    def _on_signal(self, number: signal.Signals, name: str) -> None:
        self._signals += 1
        if self._signals == 1:
            self.code = ExitCode.INTERRUPTED if number == signal.SIGINT else ExitCode.TERMINATED
            elapsed = time.monotonic() - self._started
            by = (self.asked() if number == signal.SIGINT else None) or f"by {name}"
            self.sentence = f"cancelled {by} after {elapsed:.1f} s"
        self._listener(self.sentence or "", self._signals > 1)

    def _on_budget(self) -> None:
        if self.code is None:
            self.code = ExitCode.BUDGET
            self.sentence = f"the budget of {self._budget:g} s is used up"
            self._listener(self.sentence, False)


def _nobody_asked() -> None:
    """Tell of nobody: there is no folder yet in which somebody could have left word."""


def _nobody(_: str, __: bool) -> None:
    """Do nothing: no job runs that could be told."""
