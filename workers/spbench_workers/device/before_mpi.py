"""A rank's GPU made current before MPI starts: UCX picks adapters by the GPU that is current then.

Only where the job says that it needs one (``SPBENCH_DEVICE=cuda``): each context takes memory of
the GPU, and a job that stays on the host is to take none.
"""

from __future__ import annotations

from collections.abc import Mapping

from spbench_workers.device.driver import Driver
from spbench_workers.device.local_rank import told_local_rank
from spbench_workers.protocol import ENV_DEVICE


def take_gpu(environ: Mapping[str, str], driver: Driver | None) -> int | None:
    """Make the GPU of this local rank current; return its index, None where none was taken.

    What goes wrong here is no error: torch meets it again, and says it better.
    """
    told = told_local_rank(environ)
    if environ.get(ENV_DEVICE) != "cuda" or told is None or driver is None:
        return None
    count = driver.count()
    if not count:
        return None
    index = told[0] % count
    return index if driver.make_current(index) else None
