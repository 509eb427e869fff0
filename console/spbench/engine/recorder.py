"""One stream of events: written first, then applied to the state, then shown."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from spbench.errors import FailedRunError, describe_defect
from spbench.record.runs.event_log import EventLog, decode, encode
from spbench.record.state import RunState
from spbench_core.events.clock import now
from spbench_core.events.fields import Event
from spbench_core.events.run_events import make_run_event

LOOK = 1.0
"""Seconds between two looks whether the log is still there, while ranks speak."""
View = Callable[[Event], None]
"""Called with each event once the state has it."""


class Recorder:
    """The recorder of a run: it takes every event, in order.

    The state gets each event as a reader of the log gets it, so that a replay has the same state.

    Args:
        log: The run's event log.
        state: What is known of the run.
        view: Shows each event.
        clock: The time of the console's own events, in seconds since the epoch; it never goes back.
    """

    def __init__(
        self,
        log: EventLog,
        state: RunState,
        view: View,
        clock: Callable[[], float] = now,
    ) -> None:
        self._clock = clock
        self._ahead = 0.0
        self._log = log
        self.state = state
        self._view = view
        self._broken = False
        self._look_at = 0.0

    def say(self, kind: str, **fields: Any) -> None:
        """Record an event of the console's own."""
        time = round(self._clock() + self._ahead, 6)
        line = encode(make_run_event(kind, time=time, **fields))
        self._write(line, look=True)
        self._show(decode(line))

    def continue_after(self, time: float) -> None:
        """Give no event of the console's own an earlier time than this."""
        self._ahead = max(self._ahead, time - self._clock())

    def take(self, job: int, lines: list[bytes], events: list[Event]) -> None:
        """Record a batch of a rank's events as they came, with the job's number put before.

        The events have no field ``job``, and texts that can be printed.
        """
        head = b'{"job":%d,' % job
        self._write(b"".join([b"%b%b\n" % (head, line[1:]) for line in lines]))
        for event in events:
            event["job"] = job
            self._show(event)

    def _write(self, lines: bytes, *, look: bool = False) -> None:
        # After the first failure the state goes on without the log: the report is still made.
        if self._broken:
            return
        try:
            self._log.append(lines)
            if look or time.monotonic() >= self._look_at:
                self._look_at = time.monotonic() + LOOK
                self._log.check_place()
        except FailedRunError:
            self._broken = True
            raise

    def _show(self, event: Event) -> None:
        self.state.apply(event)
        try:
            self._view(event)
        except OSError:
            # The terminal or the pipe has gone; the run matters more than who looked on.
            self._view = _unseen
        except Exception as error:
            self._view = _unseen
            with suppress(OSError):
                sys.stderr.write(f"spbench: the run continues unseen: {describe_defect(error)}\n")


def _unseen(_: Event) -> None:
    """The view of a run that nobody sees any more."""
