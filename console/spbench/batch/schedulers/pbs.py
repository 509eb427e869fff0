"""PBS Professional and OpenPBS."""

from __future__ import annotations

from collections.abc import Iterator

from spbench.batch.schedulers.scheduler import Allocation, format_clock_time, format_options
from spbench.batch.site import reject_unsupported
from spbench.launch.detect import InstalledLauncher


class PbsScheduler:
    """PBS, by qsub."""

    name = "pbs"
    prefix = "#PBS "
    allocation_variables = {"PBS_NODEFILE": "/dev/null"}  # noqa: RUF012 - a constant of the Protocol
    job_id = "${PBS_JOBID:-}"
    hosts_command = 'cat "$PBS_NODEFILE"'
    submit_command = ("qsub",)
    takes_stdin = False

    def directives(self, allocation: Allocation) -> Iterator[str]:
        """Yield options of qsub; ``-V`` exports the environment, the default elsewhere."""
        settings = allocation.settings
        reject_unsupported(settings.qos, "qos", "PBS")
        yield f"-N {allocation.name}"
        yield f"-o {allocation.log}"
        yield "-j oe"
        yield "-V"
        yield from format_options(("-A {}", settings.account), ("-q {}", settings.partition))
        if allocation.seconds is not None:
            yield f"-l walltime={format_clock_time(allocation.seconds)}"
        yield f"-l select={_format_chunks(allocation)}"
        if allocation.nodes is not None:
            yield "-l place=scatter"

    def choose_launcher(self) -> tuple[str, InstalledLauncher | None]:
        """Leave the choice to the MPI library: its launcher finds PBS_NODEFILE."""
        return "auto", None

    def early_signal(self, allocation: Allocation) -> str | None:
        """Return a timer: PBS sends SIGTERM only at the limit, and SIGKILL seconds later."""
        if allocation.seconds is None:
            return None
        delay = allocation.seconds - allocation.notice
        timer = f"timeout {delay} tail --pid=$$ -f /dev/null"
        return f"{{ {timer}; [ $? = 124 ] && kill -TERM $$; }} &"


def _format_chunks(allocation: Allocation) -> str:
    gpus = f":ngpus={allocation.settings.gpus}" if allocation.settings.gpus is not None else ""
    if allocation.nodes is None:
        return f"{allocation.np}:ncpus=1:mpiprocs=1{gpus}"
    tasks = allocation.tasks_per_node
    return f"{allocation.nodes}:ncpus={tasks}:mpiprocs={tasks}{gpus}"


SCHEDULER = PbsScheduler()
