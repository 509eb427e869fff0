"""The faults that are injected into runs, with the expected outcome of each."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass

from spbench_core.catalog.planted_fault import RAISED_TEXT
from support.reliability import host_faults, process_faults, record_faults, system_faults
from support.reliability.trial import LONG, FaultTrial
from support.runs import RunResult

EVERYWHERE = ("openmpi", "hydra", "mpirun_rsh", "srun", "openmpi-hosts")
ONE_HOST = ("openmpi", "hydra", "mpirun_rsh")
OPENMPI_AND_RSH = ("openmpi", "mpirun_rsh")
OPENMPI = ("openmpi",)
RSH = ("mpirun_rsh",)
SRUN = ("srun",)
HOSTS = ("openmpi-hosts",)
REPORTING_SIGNALS = ("openmpi", "hydra", "mpirun_rsh", "srun")
"""Testbeds with a launcher that reports the signal; on several hosts, Open MPI may not."""
KILLED = "a rank is killed (SIGKILL) while it measures"
SELF = "a rank kills itself"


_SUITE = """\
schema: spbench.suite/1
name: large
cases:
  - {{name: one, benchmark: link.pingpong, np: {}, params: {{sizes: [8], iterations: 5}}}}
"""
_NUL = _SUITE.format(2) + 'launch: {env: {A: "b\\0c"}}\n'


@dataclass(frozen=True)
class Fault:
    """A fault, and the expected outcome of a run that it hits.

    Attributes:
        name: The description of the fault.
        act: Starts a run, injects the fault, and waits for the end.
        code: The exit code.
        expected_words: Words of the first message; ``{rank}`` and ``{host}`` are the victim's.
        testbeds: The names of the testbeds on which it is tried.
        names_victim: Whether the first message must begin with the victim and its host.
        next_case_passes: Whether the case after the one that was hit must pass.
        random_moment: Whether the fault comes at a random moment, so that it is repeated.
    """

    name: str
    act: Callable[[FaultTrial], RunResult]
    code: int
    expected_words: tuple[str, ...]
    testbeds: tuple[str, ...] = OPENMPI
    names_victim: bool = False
    next_case_passes: bool = False
    random_moment: bool = False


def _rank_fault(
    name: str,
    act: Callable[[FaultTrial], RunResult],
    *expected_words: str,
    testbeds: tuple[str, ...] = EVERYWHERE,
    random_moment: bool = False,
    next_case_passes: bool = True,
) -> Fault:
    """Return a fault of one rank, which the first message must name."""
    return Fault(
        name,
        act,
        4,
        expected_words,
        testbeds,
        names_victim=True,
        next_case_passes=next_case_passes,
        random_moment=random_moment,
    )


def _launch_fault(
    name: str,
    setting: str,
    code: int,
    *expected_words: str,
    testbeds: tuple[str, ...] = OPENMPI_AND_RSH,
) -> Fault:
    """Return the fault of a suite with a launch setting such as ``python=/no/such``."""
    act = process_faults.run_with_arguments("--set", f"launch.{setting}")
    return Fault(name, act, code, expected_words, testbeds)


RANKS = (
    _rank_fault(
        KILLED,
        process_faults.signal_rank(signal.SIGKILL),
        "signal 9",
        testbeds=REPORTING_SIGNALS,
        random_moment=True,
    ),
    _rank_fault(
        KILLED, process_faults.signal_rank(signal.SIGKILL), testbeds=HOSTS, random_moment=True
    ),
    _rank_fault(
        "a rank has a segmentation fault (SIGSEGV)",
        process_faults.signal_rank(signal.SIGSEGV),
        "signal 11",
        testbeds=ONE_HOST,
        random_moment=True,
    ),
    _rank_fault(
        "a rank is stopped (SIGSTOP) while it measures",
        process_faults.signal_rank(signal.SIGSTOP),
        "silent",
        random_moment=True,
    ),
    _rank_fault(
        "a rank is killed before the first case",
        process_faults.kill_rank_before_case,
        "signal 9",
        testbeds=ONE_HOST,
    ),
    _rank_fault(
        "a rank is stopped between ready and the first case",
        process_faults.stop_rank_before_case,
        "silent",
        testbeds=ONE_HOST,
    ),
    Fault(
        "both ranks are killed",
        process_faults.kill_both_ranks,
        4,
        ("signal 9",),
        ONE_HOST,
        next_case_passes=True,
        random_moment=True,
    ),
    Fault("a rank is stopped for 3 s", system_faults.pause_process(True, 3), 0, (), ONE_HOST),
    _rank_fault(
        "a rank raises an exception",
        process_faults.run_with_arguments("--inject", "raise@second"),
        RAISED_TEXT,
    ),
    _rank_fault(
        "a rank ends by itself",
        process_faults.run_with_arguments("--inject", "exit@second"),
        "SystemExit: 3",
    ),
    _rank_fault(
        SELF,
        process_faults.run_with_arguments("--inject", "kill@second"),
        "signal 9",
        testbeds=REPORTING_SIGNALS,
    ),
    _rank_fault(SELF, process_faults.run_with_arguments("--inject", "kill@second"), testbeds=HOSTS),
    _rank_fault(
        "a rank hangs",
        process_faults.run_with_arguments("--inject", "hang@second", "--set", "launch.timeout=2"),
        "its timeout is 2 s",
    ),
    Fault(
        "a result is wrong on one rank",
        process_faults.run_with_arguments("--inject", "corrupt-message@second"),
        1,
        ("check",),
        EVERYWHERE,
        next_case_passes=True,
    ),
    _rank_fault(
        "a rank is out of memory (OOM)",
        system_faults.limit_memory,
        "signal 9",
        testbeds=OPENMPI,
    ),
    Fault(
        "the clock of a rank is an hour ahead", system_faults.shift_clock, 0, (), OPENMPI_AND_RSH
    ),
    _rank_fault(
        "the workers are missing for one rank",
        system_faults.hide_workers,
        "spbench_workers",
        testbeds=OPENMPI_AND_RSH,
        next_case_passes=False,
    ),
    _launch_fault("a rank prints 1 MB", "setup=['yes a line of its own | head -c 1000000']", 0),
    Fault(
        "the relay of a node is killed",
        system_faults.kill_relay,
        4,
        ("the relay of",),
        ONE_HOST,
        next_case_passes=True,
        random_moment=True,
    ),
)

LAUNCHERS = (
    Fault(
        "the launcher is killed",
        process_faults.kill_launcher,
        4,
        ("the launcher",),
        OPENMPI_AND_RSH,
        next_case_passes=True,
        random_moment=True,
    ),
    Fault("the launcher prints 100 MB", system_faults.flood_launcher_output, 0, (), RSH),
    _launch_fault("the interpreter is missing", "python=/no/such/python", 3, "/no/such/python"),
    _launch_fault(
        "a setup line fails", "setup=['cd /no/such']", 3, "setup line failed: cd /no/such"
    ),
    _launch_fault(
        "ranks end before they connect", "setup=['[ -z \"$SPBENCH_TOKEN\" ] || exit 7']", 4, "7"
    ),
    _launch_fault(
        "the launcher knows no such option",
        "args=[--no-such-option]",
        4,
        "no-such-option",
        testbeds=ONE_HOST,
    ),
    Fault(
        "the launcher is not installed",
        process_faults.run_with_environment(
            "--set", "launch.launcher=mpirun_rsh", "--launcher", "mpirun_rsh", PATH="/usr/bin:/bin"
        ),
        3,
        ("mpirun_rsh is not installed",),
    ),
    _rank_fault(
        "the ssh session of a node is killed",
        host_faults.kill_ssh_session,
        "lost its connection to this host",
        testbeds=(*RSH, *HOSTS),
        random_moment=True,
    ),
    _rank_fault(
        "the mpispawn of a node is killed",
        host_faults.kill_mpispawn,
        "its parent process (mpispawn) has ended",
        testbeds=RSH,
        random_moment=True,
    ),
    Fault(
        "the launcher ends the job at its own time limit",
        process_faults.run_with_environment(suite=LONG, MPIEXEC_TIMEOUT="8"),
        4,
        ("MPIEXEC_TIMEOUT",),
        RSH,
        next_case_passes=True,
    ),
    Fault(
        "hosts have names that ssh alone knows",
        host_faults.use_ssh_aliases,
        3,
        ("alias.invalid", "alias of ssh's"),
        RSH,
    ),
    Fault(
        "a host has no MVAPICH2",
        host_faults.add_host_without_mvapich2,
        4,
        ("192.0.2.7", "mpispawn"),
        RSH,
    ),
    _launch_fault(
        "a library path with a blank",
        "env.LD_LIBRARY_PATH=/a b",
        2,
        "LD_LIBRARY_PATH",
        testbeds=RSH,
    ),
    _launch_fault(
        "-fastssh, of which a shell would run parts", "args=[-fastssh]", 2, "fastssh", testbeds=RSH
    ),
)

CONSOLE = (
    Fault(
        "the controller is killed",
        process_faults.kill_controller,
        256 - 9,
        (),
        EVERYWHERE,
        random_moment=True,
    ),
    Fault(
        "the controller is stopped for 2 s", system_faults.pause_process(False, 2), 0, (), ONE_HOST
    ),
    Fault(
        "Ctrl-C", process_faults.interrupt_controller(signal.SIGINT), 130, ("Ctrl-C",), EVERYWHERE
    ),
    Fault(
        "Ctrl-C twice",
        process_faults.interrupt_controller(signal.SIGINT, 2),
        130,
        ("Ctrl-C",),
        ONE_HOST,
    ),
    Fault(
        "SIGTERM",
        process_faults.interrupt_controller(signal.SIGTERM),
        143,
        ("SIGTERM",),
        EVERYWHERE,
    ),
    Fault(
        "the terminal hangs up",
        process_faults.interrupt_controller(signal.SIGHUP),
        143,
        ("SIGHUP",),
        ONE_HOST,
    ),
    Fault(
        "the budget is used up",
        process_faults.run_with_arguments("--budget", "4s", suite=LONG),
        124,
        ("budget",),
        EVERYWHERE,
    ),
    Fault(
        "two controllers at once in one home", process_faults.run_two_controllers, 0, (), ONE_HOST
    ),
    Fault("an empty HOME", process_faults.run_with_environment(HOME=""), 0, (), ONE_HOST),
    Fault("stdout is closed", system_faults.wrap_command("", ">&-"), 0, ()),
    Fault(
        "too few open files",
        system_faults.wrap_command("ulimit -n 40"),
        3,
        ("open files", "40"),
        OPENMPI_AND_RSH,
    ),
    Fault(
        "400 unknown connections and a wrong token",
        system_faults.connect_unauthenticated,
        0,
        (),
        OPENMPI_AND_RSH,
    ),
    Fault("the home is removed during the run", system_faults.remove_home, 4, ("home",)),
    Fault("the home is read-only", system_faults.mount_home("ro"), 3, ("Read-only",)),
    Fault("the disk is full", system_faults.mount_home("size=16k"), 4, ("No space left",)),
    Fault("the report cannot be written", system_faults.block_report, 4, ("cannot write",)),
)

NETWORKS = (
    _rank_fault(
        "a link is cut", host_faults.cut_link, "silent", testbeds=HOSTS, random_moment=True
    ),
    # No host has the first address. The second is the controller's, where no sshd listens.
    Fault(
        "a host cannot be reached", host_faults.add_first_host(".99"), 3, ("cannot reach",), HOSTS
    ),
    Fault("a host's sshd refuses", host_faults.add_first_host(".254"), 3, ("refused",), HOSTS),
    Fault("the key is wrong", host_faults.use_wrong_key, 3, ("denied",), HOSTS),
    Fault(
        "a host is gone between two jobs",
        host_faults.lose_host_between_jobs,
        4,
        ("cannot be reached by ssh",),
        HOSTS,
    ),
    _rank_fault(
        "a setup line fails on one host",
        host_faults.fail_setup_on_one_host,
        "setup line failed",
        testbeds=HOSTS,
        next_case_passes=False,
    ),
    _rank_fault(
        "a rank of one host ends before it connects",
        host_faults.end_rank_early_on_one_host,
        "status 7",
        testbeds=HOSTS,
        next_case_passes=False,
    ),
)

BATCH = (
    Fault(
        "the job is cancelled (scancel)",
        host_faults.cancel_job,
        4,
        ("Slurm cancelled the job", "scancel"),
        SRUN,
    ),
    _rank_fault(
        "a rank of a batch job is killed", host_faults.kill_batch_rank, "signal 9", testbeds=SRUN
    ),
    Fault("a batch job is cancelled", host_faults.cancel_batch_job, 143, ("SIGTERM",), SRUN),
    Fault(
        "a batch job's time is used up", host_faults.reach_batch_time_limit, 143, ("SIGTERM",), SRUN
    ),
    Fault(
        "a batch job is requeued", host_faults.requeue_batch_job, 0, (), SRUN, next_case_passes=True
    ),
)

RECORDS = (
    Fault(
        "a line of the events is broken",
        record_faults.damage_run(record_faults.break_line),
        0,
        ("left out",),
    ),
    Fault(
        "the events are a FIFO",
        record_faults.damage_run(record_faults.replace_by_fifo),
        2,
        ("events.jsonl", "pipe"),
    ),
    Fault(
        "names of a foreign run move the cursor",
        record_faults.damage_run(record_faults.insert_escapes),
        0,
        (),
    ),
    Fault(
        "a suite asks for 1e9 ranks",
        record_faults.validate_suite(_SUITE.format("1000000000")),
        2,
        ("np",),
    ),
    Fault("a suite has a NUL in a variable", record_faults.validate_suite(_NUL), 2, ("U+0000",)),
    Fault(
        "100,000 broken lines of hosts",
        record_faults.run_with_hostfile("a b c d\n" * 100_000),
        2,
        ("unknown word",),
    ),
)

FAULT_TABLE = (*RANKS, *LAUNCHERS, *CONSOLE, *NETWORKS, *BATCH, *RECORDS)
