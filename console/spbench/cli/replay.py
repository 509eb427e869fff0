"""A recorded run played again in plain lines, as ``spbench run`` printed them."""

from __future__ import annotations

import time
from collections.abc import Callable

from spbench.cli.lines import Lines
from spbench.errors import UsageError
from spbench.record.runs.folder import RunFolder
from spbench.record.runs.follow import recorded_events
from spbench.record.runs.playback import Playback, paced
from spbench.record.state import Event, RunState


def replay_lines(
    folder: RunFolder, speed: float | None, write: Callable[[str], None], verbosity: int
) -> None:
    """Print what a run printed, at a speed; None is as fast as can be.

    Raises:
        UsageError: The log cannot be read, or has a line that is no event of a run.
    """
    state = RunState()
    lines = Lines(state, write, verbosity)
    playback = Playback(recorded_events(folder.events), speed)
    for line, event in enumerate(paced(playback, time.monotonic, time.sleep), 1):
        _show(event, state, lines, f"{folder.events}:{line}")
    if state.run is not None and state.run.finished is not None:
        lines.finish(f"report: {folder.report}")
    else:
        write(unfinished(folder))


def unfinished(folder: RunFolder) -> str:
    """Return the last line of a run whose events do not tell its end."""
    alive, host = folder.alive(), folder.elsewhere()
    if alive is None:
        end = f"still running on {host}, as far as its log tells"
    elif host is not None:
        end = f"nothing came from the console on {host} for long"
    else:
        end = "still running" if alive else "the console ended before the run did"
    return f"unfinished: {end}; events: {folder.events}"


def _show(event: Event, state: RunState, lines: Lines, where: str) -> None:
    try:
        state.apply(event)
        lines(event)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise UsageError(f"{where}: error: this is no event of a run") from None
