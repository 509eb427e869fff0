"""The clock of events: seconds since the epoch that never decrease in a process."""

from __future__ import annotations

import time

_STARTED = time.time() - time.monotonic()


def now() -> float:
    """Return the seconds since the epoch, UTC.

    The system's clock is read once, when the process starts. After that the monotonic clock counts,
    so that durations stay right if the system's clock is set.
    """
    return round(_STARTED + time.monotonic(), 6)
