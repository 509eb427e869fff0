"""The steps of the command, in their order, with their time limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.gpu_once.rank_changes import DELAYED_LINE, SANITIZER_LINE

FOLDER = "benchmarks/gpu_once"
GPU_SUITE = "suites/gpu.yaml"
FIGURES = f"{FOLDER}/figures.yaml"
REPORT_SECONDS = 12.0
"""The time in which a run of a suite ends and writes its report after its own budget.

spbench waits 5 s for ranks to end, and longer for ranks that are killed within the driver.
"""
LEFT_TO_RANKS = ("--set", 'launch.args=["--mca", "mpi_preconnect_mpi", "0"]')
"""An option of mpirun without effect: with any option, ranks and not the console look for GPUs.

Otherwise a container with unusual device files would make every step fail.
"""

LATE = (
    "spbench_workers.device_choice=standins.late_gpu:take_late_device",
    "spbench_parallel.spatial.transports.choose=standins.late_gpu:offer_transports_of_gpus",
    "spbench_parallel.training.master_comm=standins.late_weights:take_late_weights",
)
"""Changes that give ranks a device that does its work late: see `rank_site/sitecustomize.py`."""
HOST = ("spbench_workers.device_choice=standins.late_gpu:take_host",)
"""Changes that give ranks the CPU, because the late device has no random numbers."""


@dataclass(frozen=True, slots=True)
class SuiteRun:
    """A run of some cases of a suite.

    Attributes:
        path: The suite.
        select: The expression of ``-k``; empty for all cases.
        options: Further options of ``spbench run``.
        rehearsal: Options that make the cases small enough for the CPU.
        left_out: An expression for cases that a rehearsal skips, because others are similar.
    """

    path: str
    select: str = ""
    options: tuple[str, ...] = ()
    rehearsal: tuple[str, ...] = ()
    left_out: str = ""

    def build_command(self, seconds: float, report: Path, *, rehearse: bool) -> list[str]:
        """Return the command of the run, which ends within ``seconds``."""
        budget = max(1, int(seconds - REPORT_SECONDS))
        command = ["spbench", "run", self.path, "--headless", "--no-samples", "--json", str(report)]
        command += ["--budget", f"{budget}s", *LEFT_TO_RANKS, *self.options]
        select = self.select
        if rehearse:
            command += [*PATIENCE, *self.rehearsal]
            if self.left_out:
                selected = f"not ({self.left_out})"
                select = f"({select}) and {selected}" if select else selected
        else:
            command += LIMITS
        return [*command, "-k", select] if select else command


@dataclass(frozen=True, slots=True)
class Step:
    """One step: a program or a run of a suite.

    Attributes:
        name: Its name on the command line and in the summary.
        seconds: Its time limit.
        program: A program and its arguments, unless it is a run of a suite.
        suite: A run of a suite.
        exit_code: The exit code that means success; 1 if a fault is planted.
        environment: Variables that are added.
        changes: Changes of modules in its ranks: see `rank_site/sitecustomize.py`.
        stand_in: Changes of modules in its ranks in a rehearsal, instead of a GPU.
        evidence: A line that a rank prints if the changes or the environment reached it.
        needs: A program without which the step is skipped.
        rehearsal: The program and its arguments in a rehearsal, if they differ.
    """

    name: str
    seconds: float
    program: tuple[str, ...] = ()
    suite: SuiteRun | None = None
    exit_code: int = 0
    environment: Mapping[str, str] = field(default_factory=dict)
    changes: tuple[str, ...] = ()
    stand_in: tuple[str, ...] = LATE
    evidence: str = ""
    needs: str = ""
    rehearsal: tuple[str, ...] = ()


def set_options(**parameters: object) -> tuple[str, ...]:
    """Return ``--set`` options."""
    return tuple(
        argument for name, value in parameters.items() for argument in ("--set", f"{name}={value}")
    )


LIMITS = set_options(
    **{"launch.timeout": 45, "launch.start_timeout": 45, "launch.silence_timeout": 20}
)
"""A case that hangs ends with the state of its ranks, before the budget of most steps ends."""
PATIENCE = set_options(**{"launch.start_timeout": 120, "launch.silence_timeout": 60})
"""The limits of a rehearsal, where ranks share a few cores with other programs."""
FACTS = """
uname -r; nproc; free -g | sed -n 2p; df -h /dev/shm /tmp; ulimit -l
ls -d /dev/nvidia* /proc/driver/nvidia/gpus/* 2>&1 | head
nvidia-smi --query-gpu=name,driver_version,memory.total,compute_mode,mig.mode.current,pci.bus_id,\
clocks.max.sm,power.limit --format=csv
nvidia-smi topo -m 2>&1 | head -8
command -v compute-sanitizer nvidia-cuda-mps-control nsys ncu
env | grep -E "^(CUDA|NCCL|TORCH|PYTORCH|NVIDIA|UCX|OMPI)"
true
"""
MPIRUN = ("mpirun", "--oversubscribe", "--bind-to", "none")
PYTHON = ("python", "-m", "mpi4py")
GPU_LOAD = ("python", "-m", "benchmarks.gpu_once.gpu_load")
PROBE = (*PYTHON, "-m", "benchmarks.gpu_once.probe")
COMPUTE_SANITIZER = (
    *("compute-sanitizer", "--tool", "memcheck", "--error-exitcode", "9", "--print-limit", "5"),
    # Libraries probe the driver by calls that fail, which are not errors of memory.
    *("--report-api-errors", "no"),
)
EXCHANGE = (
    *(*PYTHON, "-m", "spbench_workers", "halo.exchange", "--image-size", "65x96"),
    *("--in-channels", "3", "--halo-len", "5", "--grid", "1x2", "--warmup", "1"),
    *("--iterations", "2", "--device", "cuda", "--transport", "cuda-ipc"),
)
SMALL = set_options(image_size=64, iterations=2, warmup=1)
SMALLEST = set_options(image_size=32, iterations=1, warmup=1)
SMALL_MODELS = (*SMALLEST, *set_options(validate="off", baseline="off"))
FORMATS = "tf32 or fp16 or bf16"
DELAY = "spbench_parallel.device.streams=benchmarks.gpu_once.rank_changes:delay_copies"
SHOW_SANITIZER = "spbench_parallel.device.streams=benchmarks.gpu_once.rank_changes:show_sanitizer"


def make_probe_step(ranks: int) -> Step:
    """Return a step that checks each assumption about torch, CUDA and NCCL."""
    program = (*MPIRUN, "-n", str(ranks), *PROBE)
    return Step(f"probe-{ranks}", 45, program, rehearsal=(*program, "--late"))


def make_fault_step(fault: str, select: str, seconds: float) -> Step:
    """Return a step that plants a fault and passes if the run detects it."""
    run = SuiteRun(GPU_SUITE, select, ("--inject", fault), SMALL)
    return Step(f"fault-{fault}", seconds, suite=run, exit_code=1)


HALOS = SuiteRun(
    GPU_SUITE, "shared and (halo or links)", rehearsal=SMALL, left_out=f"{FORMATS} or large"
)
MODELS = SuiteRun(
    GPU_SUITE,
    "shared and (tiles or sp or gems or amoebanet or sequential or inference)",
    rehearsal=SMALL_MODELS,
    left_out=f"{FORMATS} or gloo or gems-sp",
)
DELAYED = SuiteRun(
    GPU_SUITE,
    "(shared-halo and fp32) or (shared-tiles and fp32)",
    set_options(iterations=3),
    rehearsal=set_options(image_size=64, warmup=1),
    left_out="conv or tiles",
)
SANITIZED = SuiteRun(
    GPU_SUITE,
    "(shared-halo-ipc and fp32) or shared-halo-uneven or (shared-halo-conv and fp32)"
    " or (shared-tiles and fp32)",
    set_options(iterations=2, warmup=1),
    rehearsal=set_options(image_size=64),
    left_out="conv or tiles",
)
SUMS = SuiteRun(
    GPU_SUITE,
    "shared and (allreduce or kvstore)",
    rehearsal=(*SMALL, *set_options(num_batches=2)),
    left_out=f"{FORMATS} or kinds or dist_sync or local",
)
KERNELS = SuiteRun(
    GPU_SUITE,
    "shared and (gemm or conv or copy or profile) and not halo",
    rehearsal=(*SMALL, *set_options(n=64)),
    left_out=f"{FORMATS} or copy or profile",
)
FIGURE_CASES = SuiteRun(
    FIGURES,
    rehearsal=(*SMALLEST, *set_options(size="64KiB", num_batches=2)),
    left_out=f"{FORMATS} or gemm or tiles or dist",
)

STEPS = (
    Step("facts", 25, ("bash", "-c", FACTS)),
    Step("doctor", 20, ("spbench", "doctor")),
    make_probe_step(1),
    make_probe_step(2),
    Step("gpu-load", 25, GPU_LOAD, rehearsal=(*GPU_LOAD, "--simulated")),
    Step("halos", 87, suite=HALOS),
    Step("models", 97, suite=MODELS),
    Step("delayed", 52, suite=DELAYED, changes=(DELAY,), evidence=DELAYED_LINE),
    Step("figures", 107, suite=FIGURE_CASES),
    Step(
        "sanitizer",
        57,
        suite=SANITIZED,
        environment={"TORCH_CUDA_SANITIZER": "1"},
        changes=(SHOW_SANITIZER,),
        evidence=SANITIZER_LINE,
    ),
    make_fault_step("corrupt-halo", "shared-halo-ipc and fp32", 34),
    make_fault_step("stale-halo", "shared-halo-ipc and fp32", 34),
    make_fault_step("drop-gradient", "shared-tiles and fp32", 37),
    make_fault_step("lost-push", "shared-kvstore and none", 30),
    Step(
        "memcheck",
        70,
        (*MPIRUN, "-n", "2", *COMPUTE_SANITIZER, *EXCHANGE),
        needs=COMPUTE_SANITIZER[0],
        rehearsal=(*MPIRUN, "-n", "2", *EXCHANGE),
    ),
    Step("sums", 72, suite=SUMS),
    Step("kernels", 72, suite=KERNELS, stand_in=HOST),
)
"""All steps, the most useful first."""
