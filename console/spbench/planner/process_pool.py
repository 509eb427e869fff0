"""Many plans at once, in processes of their own."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any, TypeVar

from spbench.planner.errors import PlannerError

Made = TypeVar("Made")
THREADS = "RAYON_NUM_THREADS"


def default_jobs(environ: Mapping[str, str]) -> int:
    """Return the number of processes where none is given: ``RAYON_NUM_THREADS``, or all cores.

    The variable is HPGO's; as there, 0 and what is no number mean all cores.
    """
    text = environ.get(THREADS, "")
    given = int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0
    return given or len(os.sched_getaffinity(0))


def call_in_processes(
    make: Callable[..., Made],
    calls: Sequence[tuple[Any, ...]],
    options: Mapping[str, Any],
    jobs: int,
) -> list[Made | PlannerError]:
    """Return what a function makes of each call; its error where it raises a `PlannerError`.

    Args:
        make: A function of a module, so that another process can import it.
        calls: The arguments of each call.
        options: Keyword arguments of all calls.
        jobs: Processes at the same time; 1 makes everything in this one.
    """
    one = partial(_made, make, dict(options))
    jobs = min(jobs, len(calls))
    if jobs <= 1:
        return [one(call) for call in calls]
    # Forking a process with threads can block it, and the console has threads.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context) as pool:
        return list(pool.map(one, calls))


def _made(
    make: Callable[..., Made], options: dict[str, Any], call: tuple[Any, ...]
) -> Made | PlannerError:
    try:
        return make(*call, **options)
    except PlannerError as error:
        return error
