"""Open files of the console, compared with the connections of ranks."""

from __future__ import annotations

import resource

from spbench.errors import MissingError

RESERVE = 64
"""Descriptors for logs, the launcher's pipes, ssh and some connections without the token."""
FILES_OF_JOB = 8
"""Descriptors of a job that runs next to others: its socket, its launcher's pipes and logs."""
CEILING = 1 << 20
"""The highest limit that is set: programs that inherit a billion may try to close all of them."""


def raise_file_limit() -> int:
    """Raise the soft limit of open files to the hard one, and return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    ceiling = CEILING if hard == resource.RLIM_INFINITY else min(hard, CEILING)
    if soft != resource.RLIM_INFINITY and soft < ceiling:
        resource.setrlimit(resource.RLIMIT_NOFILE, (ceiling, hard))
        return ceiling
    return CEILING if soft == resource.RLIM_INFINITY else soft


def check_connections(num_connections: int) -> None:
    """Reject a job with more connections than the limit of open files allows.

    Raises:
        MissingError: The message has both numbers.
    """
    limit = raise_file_limit()
    needed = num_connections + RESERVE
    if needed > limit:
        raise MissingError(
            f"{num_connections} connections of ranks need {needed} open files in "
            f"the console, and the hard limit here is {limit}: raise it (ulimit -Hn, limits.conf, "
            "LimitNOFILE), or set launch.fan_in to node"
        )


def count_free_for_pending(expected: int) -> int:
    """Return the number of connections without the token that still fit."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = CEILING if soft == resource.RLIM_INFINITY else soft
    return max(RESERVE // 4, limit - expected - RESERVE)
