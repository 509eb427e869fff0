"""Open files of the console: one a rank, so their limit is raised, and held against the ranks."""

from __future__ import annotations

import resource

from spbench.errors import MissingError

RESERVE = 64
"""Descriptors for all but the ranks: logs, the launcher's pipes, ssh, a few strangers."""
FILES_OF_JOB = 8
"""Descriptors of a job that runs beside others: its socket, its launcher's pipes and logs."""
CEILING = 1 << 20
"""The highest limit asked for: programs that inherit a billion may try to close as many."""


def raise_file_limit() -> int:
    """Raise the soft limit of open files to the hard one, and return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = CEILING if hard == resource.RLIM_INFINITY else min(hard, CEILING)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        return most
    return CEILING if soft == resource.RLIM_INFINITY else soft


def check_connections(number: int) -> None:
    """Refuse a job whose connections do not fit under the limit of open files.

    Raises:
        MissingError: with both numbers.
    """
    limit = raise_file_limit()
    if number + RESERVE > limit:
        raise MissingError(
            f"{number} connections of ranks need {number + RESERVE} open files in the console, and "
            f"the hard limit here is {limit}: raise it (ulimit -Hn, limits.conf, LimitNOFILE), or "
            "set launch.fan_in to node"
        )


def count_free_for_pending(expected: int) -> int:
    """Return how many connections without the token may be kept beside those of the ranks."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = CEILING if soft == resource.RLIM_INFINITY else soft
    return max(RESERVE // 4, limit - expected - RESERVE)
