"""The clock of events: seconds since the epoch that never go back while a process runs."""

from __future__ import annotations

import time

_STARTED = time.time() - time.monotonic()


def now() -> float:
    """Return the seconds since the epoch, UTC, by the system's clock at this process's start.

    From then on the monotonic clock counts: durations stay right if the system's clock is set.
    """
    return round(_STARTED + time.monotonic(), 6)
