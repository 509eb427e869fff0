"""The recorder of events, which are written, applied and then shown."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from spbench.errors import FailedRunError, describe_defect
from spbench.record.runs.event_log import EventLog, decode, encode
from spbench.record.state import RunState
from spbench_core.events.fields import Event, now
from spbench_core.events.run_events import make_run_event

PATH_CHECK_INTERVAL = 1.0
"""Seconds between two checks that the log's path still exists, while ranks send events."""
View = Callable[[Event], None]
"""Shows an event after the state has it."""


class Recorder:
    """The recorder of a run, which takes every event in order.

    The state gets each event in the form in which a reader of the log gets it. So a replay leads to
    the same state.

    Args:
        log: The run's event log.
        state: The state of the run.
        view: Shows each event.
        clock: Returns the time of the console's events, in seconds since the epoch.
            It never decreases.
    """

    def __init__(
        self,
        log: EventLog,
        state: RunState,
        view: View,
        clock: Callable[[], float] = now,
    ) -> None:
        self._clock = clock
        self._clock_offset = 0.0
        self._log = log
        self.state = state
        self._view = view
        self._log_failed = False
        self._next_path_check = 0.0

    def record(self, kind: str, **fields: Any) -> None:
        """Record an event of the console."""
        time = round(self._clock() + self._clock_offset, 6)
        line = encode(make_run_event(kind, time=time, **fields))
        self._write(line, check=True)
        self._apply_and_show(decode(line))

    def continue_after(self, time: float) -> None:
        """Make the times of the console's further events later than this."""
        self._clock_offset = max(self._clock_offset, time - self._clock())

    def record_batch(self, job: int, lines: list[bytes], events: list[Event]) -> None:
        """Record a batch of a rank's events, with the job's number added to each.

        The events must not have a field ``job``, and their texts must be printable.
        """
        job_field = b'{"job":%d,' % job
        self._write(b"".join([b"%b%b\n" % (job_field, line[1:]) for line in lines]))
        for event in events:
            event["job"] = job
            self._apply_and_show(event)

    def _write(self, lines: bytes, *, check: bool = False) -> None:
        # After the first failure the state continues without the log, so that there is a report.
        if self._log_failed:
            return
        try:
            self._log.append(lines)
            if check or time.monotonic() >= self._next_path_check:
                self._next_path_check = time.monotonic() + PATH_CHECK_INTERVAL
                self._log.check_path()
        except FailedRunError:
            self._log_failed = True
            raise

    def _apply_and_show(self, event: Event) -> None:
        self.state.apply(event)
        try:
            self._view(event)
        except OSError:
            # The terminal or the pipe is closed. The run matters more than its viewer.
            self._view = _ignore_event
        except Exception as error:
            self._view = _ignore_event
            with suppress(OSError):
                sys.stderr.write(f"spbench: the run continues unseen: {describe_defect(error)}\n")


def _ignore_event(_: Event) -> None:
    """Show nothing, instead of a view that has failed."""
