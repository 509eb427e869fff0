"""The table of faults that spbench is tried with, and what it has to say of each."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass

from support.reliability import processes, records, remote, surroundings
from support.reliability.trial import LONG, Trial
from support.runs import RunResult

ALL = ("openmpi", "hydra", "mpirun_rsh", "srun", "openmpi-hosts")
HERE_ONLY = ("openmpi", "hydra", "mpirun_rsh")
TWO = ("openmpi", "mpirun_rsh")
ONE = ("openmpi",)
RSH = ("mpirun_rsh",)
SRUN = ("srun",)
HOSTS = ("openmpi-hosts",)
TOLD = ("openmpi", "hydra", "mpirun_rsh", "srun")
"""Where the launcher tells of each signal; over hosts Open MPI's may tell of a survivor alone."""
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
    """A fault.

    Attributes:
        name: A sentence without a verb of spbench's: what happens.
        act: Starts the run, does it, and waits for the end.
        code: The exit code that follows.
        told: Words that the first sentence has; ``{rank}`` and ``{host}`` are the victim's.
        places: Where it is tried.
        victim: Whether the first sentence must name the victim, and its host, first.
        goes_on: Whether the case after the one that was hit runs and passes.
        chance: Whether its moment is random, so that it is repeated.
    """

    name: str
    act: Callable[[Trial], RunResult]
    code: int
    told: tuple[str, ...]
    places: tuple[str, ...] = ONE
    victim: bool = False
    goes_on: bool = False
    chance: bool = False


def _on_victim(
    name: str,
    act: Callable[[Trial], RunResult],
    *told: str,
    places: tuple[str, ...] = ALL,
    chance: bool = False,
    goes_on: bool = True,
) -> Fault:
    """Return a fault of one rank, which has to be named first; the next case goes on."""
    return Fault(name, act, 4, told, places, victim=True, goes_on=goes_on, chance=chance)


def _with(name: str, setting: str, code: int, *told: str, places: tuple[str, ...] = TWO) -> Fault:
    """Return the fault of a suite that sets a key of its launch to this."""
    return Fault(name, processes.planted("--set", f"launch.{setting}"), code, told, places)


RANKS = (
    _on_victim(
        KILLED,
        processes.signalled(signal.SIGKILL),
        "signal 9",
        places=TOLD,
        chance=True,
    ),
    _on_victim(KILLED, processes.signalled(signal.SIGKILL), places=HOSTS, chance=True),
    _on_victim(
        "a rank breaks a rule of memory (SIGSEGV)",
        processes.signalled(signal.SIGSEGV),
        "signal 11",
        places=HERE_ONLY,
        chance=True,
    ),
    _on_victim(
        "a rank is stopped (SIGSTOP) while it measures",
        processes.signalled(signal.SIGSTOP),
        "silent",
        chance=True,
    ),
    _on_victim(
        "a rank is killed before the first case",
        processes.killed_before_a_case,
        "signal 9",
        places=HERE_ONLY,
    ),
    _on_victim(
        "a rank is stopped between ready and the first case",
        processes.stopped_before_a_case,
        "silent",
        places=HERE_ONLY,
    ),
    Fault(
        "both ranks are killed",
        processes.both_killed,
        4,
        ("signal 9",),
        HERE_ONLY,
        goes_on=True,
        chance=True,
    ),
    Fault("a rank is stopped for 3 s", surroundings.paused(True, 3), 0, (), HERE_ONLY),
    _on_victim(
        "a rank raises an exception",
        processes.planted("--inject", "raise@second"),
        "planted by --inject raise",
    ),
    _on_victim(
        "a rank ends by itself", processes.planted("--inject", "exit@second"), "SystemExit: 3"
    ),
    _on_victim(SELF, processes.planted("--inject", "kill@second"), "signal 9", places=TOLD),
    _on_victim(SELF, processes.planted("--inject", "kill@second"), places=HOSTS),
    _on_victim(
        "a rank hangs",
        processes.planted("--inject", "hang@second", "--set", "launch.timeout=2"),
        "its timeout is 2 s",
    ),
    Fault(
        "a result is wrong on one rank",
        processes.planted("--inject", "corrupt-message@second"),
        1,
        ("check",),
        ALL,
        goes_on=True,
    ),
    _on_victim(
        "a rank has not the memory that it wants (OOM)",
        surroundings.memory_short,
        "signal 9",
        places=ONE,
    ),
    Fault("the clock of a rank is an hour ahead", surroundings.clock_apart, 0, (), TWO),
    _on_victim(
        "the workers are missing for one rank",
        surroundings.without_its_library,
        "spbench_workers",
        places=TWO,
        goes_on=False,
    ),
    _with("a rank prints 1 MB", "setup=['yes a line of its own | head -c 1000000']", 0),
    Fault(
        "the relay of a node is killed",
        surroundings.relay_killed,
        4,
        ("the relay of",),
        HERE_ONLY,
        goes_on=True,
        chance=True,
    ),
)

LAUNCHERS = (
    Fault(
        "the launcher is killed",
        processes.launcher_killed,
        4,
        ("the launcher",),
        TWO,
        goes_on=True,
        chance=True,
    ),
    Fault("the launcher prints 100 MB", surroundings.launcher_floods, 0, (), RSH),
    _with("the interpreter is missing", "python=/no/such/python", 3, "/no/such/python"),
    _with("a setup line fails", "setup=['cd /no/such']", 3, "setup line failed: cd /no/such"),
    _with("ranks end before they connect", "setup=['[ -z \"$SPBENCH_TOKEN\" ] || exit 7']", 4, "7"),
    _with(
        "the launcher knows no such option",
        "args=[--no-such-option]",
        4,
        "no-such-option",
        places=HERE_ONLY,
    ),
    Fault(
        "the launcher is not installed",
        processes.with_environment(
            "--set", "launch.launcher=mpirun_rsh", "--launcher", "mpirun_rsh", PATH="/usr/bin:/bin"
        ),
        3,
        ("mpirun_rsh is not installed",),
    ),
    _on_victim(
        "the ssh session of a node is killed",
        remote.ssh_session_killed,
        "lost its connection to this host",
        places=(*RSH, *HOSTS),
        chance=True,
    ),
    _on_victim(
        "the mpispawn of a node is killed",
        remote.mpispawn_killed,
        "its parent process (mpispawn) has ended",
        places=RSH,
        chance=True,
    ),
    Fault(
        "the launcher ends the job at its own time limit",
        processes.with_environment(suite=LONG, MPIEXEC_TIMEOUT="8"),
        4,
        ("MPIEXEC_TIMEOUT",),
        RSH,
        goes_on=True,
    ),
    Fault(
        "hosts have names that ssh alone knows",
        remote.aliases,
        3,
        ("alias.invalid", "alias of ssh's"),
        RSH,
    ),
    Fault(
        "a host has no MVAPICH2",
        remote.without_mvapich2,
        4,
        ("192.0.2.7", "mpispawn"),
        RSH,
    ),
    _with(
        "a library path with a blank", "env.LD_LIBRARY_PATH=/a b", 2, "LD_LIBRARY_PATH", places=RSH
    ),
    _with(
        "-fastssh, of which a shell would run parts", "args=[-fastssh]", 2, "fastssh", places=RSH
    ),
)

CONSOLE = (
    Fault("the console is killed", processes.console_killed, 256 - 9, (), ALL, chance=True),
    Fault("the console is stopped for 2 s", surroundings.paused(False, 2), 0, (), HERE_ONLY),
    Fault("Ctrl-C", processes.interrupted(signal.SIGINT), 130, ("Ctrl-C",), ALL),
    Fault("Ctrl-C twice", processes.interrupted(signal.SIGINT, 2), 130, ("Ctrl-C",), HERE_ONLY),
    Fault("SIGTERM", processes.interrupted(signal.SIGTERM), 143, ("SIGTERM",), ALL),
    Fault(
        "the terminal hangs up", processes.interrupted(signal.SIGHUP), 143, ("SIGHUP",), HERE_ONLY
    ),
    Fault(
        "the budget is used up",
        processes.planted("--budget", "4s", suite=LONG),
        124,
        ("budget",),
        ALL,
    ),
    Fault("two consoles at once in one home", processes.two_consoles, 0, (), HERE_ONLY),
    Fault("an empty HOME", processes.with_environment(HOME=""), 0, (), HERE_ONLY),
    Fault("stdout is closed", surroundings.wrapped("", ">&-"), 0, ()),
    Fault("too few open files", surroundings.wrapped("ulimit -n 40"), 3, ("open files", "40"), TWO),
    Fault("400 strangers and a wrong token", surroundings.strangers, 0, (), TWO),
    Fault("the home is removed during the run", surroundings.home_removed, 4, ("home",)),
    Fault("the home is read-only", surroundings.on_disk("ro"), 3, ("Read-only",)),
    Fault("the disk is full", surroundings.on_disk("size=16k"), 4, ("No space left",)),
    Fault("the report cannot be written", surroundings.report_in_the_way, 4, ("cannot write",)),
)

NETWORKS = (
    _on_victim("a link is cut", remote.link_cut, "silent", places=HOSTS, chance=True),
    # Nobody has the one address; at the other, the console's, no sshd listens.
    Fault("a host cannot be reached", remote.first_host(".99"), 3, ("cannot reach",), HOSTS),
    Fault("a host's sshd refuses", remote.first_host(".254"), 3, ("refused",), HOSTS),
    Fault("the key is wrong", remote.wrong_key, 3, ("denied",), HOSTS),
    Fault(
        "a host is gone between two jobs",
        remote.gone_between_jobs,
        4,
        ("cannot be reached by ssh",),
        HOSTS,
    ),
    _on_victim(
        "a setup line fails on one host",
        remote.setup_fails_on_one_host,
        "setup line failed",
        places=HOSTS,
        goes_on=False,
    ),
    _on_victim(
        "a rank of one host ends before it connects",
        remote.ends_early_on_one_host,
        "status 7",
        places=HOSTS,
        goes_on=False,
    ),
)

BATCH = (
    Fault(
        "the job is cancelled (scancel)",
        remote.job_cancelled,
        4,
        ("Slurm cancelled the job", "scancel"),
        SRUN,
    ),
    _on_victim(
        "a rank of a batch job is killed", remote.batch_rank_killed, "signal 9", places=SRUN
    ),
    Fault("a batch job is cancelled", remote.batch_job_cancelled, 143, ("SIGTERM",), SRUN),
    Fault("a batch job's time is used up", remote.batch_time_limit, 143, ("SIGTERM",), SRUN),
    Fault("a batch job is requeued", remote.batch_job_requeued, 0, (), SRUN, goes_on=True),
)

RECORDS = (
    Fault("a line of the events is broken", records.damaged(records.line_broken), 0, ("left out",)),
    Fault("the events are a FIFO", records.damaged(records.fifo), 2, ("events.jsonl", "pipe")),
    Fault("names of a foreign run move the cursor", records.damaged(records.escapes), 0, ()),
    Fault("a suite asks for 1e9 ranks", records.suite(_SUITE.format("1000000000")), 2, ("np",)),
    Fault("a suite has a NUL in a variable", records.suite(_NUL), 2, ("U+0000",)),
    Fault(
        "100,000 broken lines of hosts",
        records.hostfile("a b c d\n" * 100_000),
        2,
        ("unknown word",),
    ),
)

FAULT_TABLE = (*RANKS, *LAUNCHERS, *CONSOLE, *NETWORKS, *BATCH, *RECORDS)
