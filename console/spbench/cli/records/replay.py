"""A recorded run played again in plain lines, as ``spbench run`` printed them."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from spbench.cli.runs.lines import LineView
from spbench.cli.tables import output_width
from spbench.errors import UsageError
from spbench.record.number_formatting import strip_line_controls
from spbench.record.runs.folder import RunFolder
from spbench.record.runs.follow import RecordedEvents
from spbench.record.runs.playback import Playback, play_paced
from spbench.record.state import RunState


def replay_lines(
    folder: RunFolder, speed: float | None, write: Callable[[str], None], verbosity: int
) -> None:
    """Print what a run printed, at a speed; None is as fast as can be.

    Raises:
        UsageError: The log cannot be read, or does not begin as a run does.
    """
    state = RunState()
    lines = LineView(state, write, verbosity, output_width(sys.stdout))
    events = RecordedEvents(folder.events)
    for event in play_paced(Playback(events, speed), time.monotonic, time.sleep):
        state.apply(event)
        lines(event)
    if state.run is None and events.skipped:
        raise UsageError(f"the beginning of this run is lost: {events.skipped}")
    if events.skipped:
        write(strip_line_controls(events.skipped))
    if state.run is not None and state.run.finished is not None:
        lines.finish(folder.report_line)
    else:
        write(strip_line_controls(unfinished(folder)))


def unfinished(folder: RunFolder) -> str:
    """Return the last line of a run whose events do not tell its end."""
    alive = folder.is_alive()
    host = folder.find_other_host()
    if alive is None:
        end = f"still running on {host}, as far as its log shows"
    elif host is not None:
        end = f"nothing came from the console on {host} for long"
    else:
        end = "still running" if alive else "the console ended before the run did"
    return f"unfinished: {end}; events: {folder.events}"
