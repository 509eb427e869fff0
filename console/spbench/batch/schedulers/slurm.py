"""Slurm."""

from __future__ import annotations

from collections.abc import Iterator

from spbench.batch.schedulers.scheduler import Allocation, format_clock_time, format_options
from spbench.launch.detect import InstalledLauncher


class SlurmScheduler:
    """Slurm, by sbatch."""

    name = "slurm"
    prefix = "#SBATCH "
    allocation_variables = {"SLURM_JOB_ID": "0"}  # noqa: RUF012 - a constant of the Protocol
    job_id = "${SLURM_JOB_ID:-}"
    hosts_command = 'scontrol show hostnames "$SLURM_JOB_NODELIST"'
    submit_command = ("sbatch", "--parsable")
    takes_stdin = False

    def directives(self, allocation: Allocation) -> Iterator[str]:
        """Yield options of sbatch; a requeued job appends to the same log."""
        settings = allocation.settings
        yield f"--job-name={allocation.name}"
        yield f"--output={allocation.log}"
        yield "--open-mode=append"
        yield from format_options(
            ("--account={}", settings.account),
            ("--partition={}", settings.partition),
            ("--qos={}", settings.qos),
        )
        if allocation.seconds is not None:
            yield f"--time={format_clock_time(allocation.seconds)}"
        if allocation.nodes is not None:
            yield f"--nodes={allocation.nodes}"
            yield f"--ntasks-per-node={allocation.tasks_per_node}"
        else:
            yield f"--ntasks={allocation.np}"
        yield from format_options(("--gres=gpu:{}", settings.gpus))
        yield f"--signal=B:TERM@{allocation.notice}"

    def choose_launcher(self) -> tuple[str, InstalledLauncher | None]:
        """Return srun."""
        return "srun", None

    def early_signal(self, allocation: Allocation) -> None:
        """Return nothing: the directive ``--signal`` does it."""


SCHEDULER = SlurmScheduler()
