"""IBM Spectrum LSF."""

from __future__ import annotations

import math
from collections.abc import Iterator

from spbench.batch.schedulers.scheduler import Allocation, format_options
from spbench.batch.site import reject_unsupported
from spbench.launch.detect import InstalledLauncher


class LsfScheduler:
    """LSF, by bsub."""

    name = "lsf"
    prefix = "#BSUB "
    allocation_variables = {"LSB_JOBID": "0"}  # noqa: RUF012 - a constant of the Protocol
    job_id = "${LSB_JOBID:-}"
    hosts_command = 'cat "$LSB_DJOB_HOSTFILE"'
    submit_command = ("bsub",)
    takes_stdin = True

    def directives(self, allocation: Allocation) -> Iterator[str]:
        """Yield options of bsub, which takes times in whole minutes."""
        settings = allocation.settings
        reject_unsupported(settings.qos, "qos", "LSF")
        yield f"-J {allocation.name}"
        yield f"-o {allocation.log}"
        yield from format_options(("-P {}", settings.account), ("-q {}", settings.partition))
        if allocation.seconds is not None:
            minutes = math.ceil(allocation.seconds / 60)
            yield f"-W {minutes // 60}:{minutes % 60:02}"
            if minutes > 1:
                yield "-wa TERM"
                yield "-wt 1"
        tasks = allocation.tasks_per_node
        if allocation.nodes is None or tasks is None:
            yield f"-n {allocation.np}"
        else:
            yield f"-n {allocation.nodes * tasks}"
            yield f'-R "span[ptile={tasks}]"'
        yield from format_options(('-gpu "num={}"', settings.gpus))

    def choose_launcher(self) -> tuple[str, InstalledLauncher | None]:
        """Leave the choice to the MPI library: its launcher finds the allocation."""
        return "auto", None

    def early_signal(self, allocation: Allocation) -> None:
        """Return nothing: the directives ``-wa`` and ``-wt`` do it."""


SCHEDULER = LsfScheduler()
