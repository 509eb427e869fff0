"""The catalog: every benchmark's name, parameters, rank count, metrics and faults.

A new benchmark is one worker module and one entry here, or a plug-in that has both.
"""

from __future__ import annotations

import math

from spbench_core.catalog import (
    allreduce,
    compute,
    halo,
    kvstore,
    link,
    memory,
    model_profile,
    models,
)
from spbench_core.catalog.plugin_entries import Catalog

COMMON_FAULTS = {
    "hang": "the last rank sleeps for ever",
    "kill": "the last rank kills itself with SIGKILL",
    "stop": "the last rank stops itself with SIGSTOP",
    "raise": "the last rank raises an exception",
    "exit": "the last rank calls sys.exit(3)",
    "slow": "each iteration of the last rank takes five times as long, and 2 ms more at least; "
    "with slow=1.1 it takes 1.1 times as long, at work",
}
"""The faults that ``--inject`` can plant in every benchmark, each with its effect."""

FACTOR = "slow"
"""The fault that takes a factor."""
MOST = 1000.0


def fault_of(text: str) -> tuple[str, float | None]:
    """Return a fault's name and its factor: ``slow`` and 1.1 of ``slow=1.1``.

    Raises:
        ValueError: It takes no factor, or none like that.
    """
    name, given, factor = text.partition("=")
    if not given:
        return name, None
    if name != FACTOR:
        raise ValueError(f"{name} takes no factor; {FACTOR} does, as {FACTOR}=1.1")
    try:
        value = float(factor)
    except ValueError:
        value = math.nan
    if not 1.0 < value <= MOST:
        raise ValueError(f"{FACTOR}={factor}: give a number above 1, as {FACTOR}=1.1")
    return name, value


BENCHMARKS = Catalog(
    entry
    for family in (halo, link, memory, compute, allreduce, kvstore, models, model_profile)
    for entry in family.BENCHMARKS
)
