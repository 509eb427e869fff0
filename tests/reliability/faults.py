"""The faults that spbench is tried with: what is done, and what it has to say of it."""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

from places import DATA
from reliability.trial import Trial
from running import Ended
from spbench.engine.processes import members

LONG = (DATA / "long.yaml").read_text()
FAULTS = (DATA / "faults.yaml").read_text()
ALL = ("openmpi", "hydra", "mpirun_rsh", "srun", "openmpi-hosts")
HERE_ONLY = ("openmpi", "hydra", "mpirun_rsh")
ONE = ("openmpi",)
HOSTS = ("openmpi-hosts",)


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
    act: Callable[[Trial], Ended]
    code: int
    told: tuple[str, ...]
    places: tuple[str, ...] = ONE
    victim: bool = False
    goes_on: bool = False
    chance: bool = False


def _signalled(number: signal.Signals) -> Callable[[Trial], Ended]:
    def act(trial: Trial) -> Ended:
        trial.start(LONG)
        trial.strike(trial.measuring(), number)
        return trial.end()

    return act


def _killed_before_a_case(trial: Trial) -> Ended:
    trial.start(LONG)
    trial.strike(trial.pid_of(trial.victim), signal.SIGKILL)
    return trial.end()


def _stopped_before_a_case(trial: Trial) -> Ended:
    trial.start(LONG)
    trial.strike(trial.pid_of(trial.victim), signal.SIGSTOP)
    return trial.end()


def _launcher_killed(trial: Trial) -> Ended:
    trial.start(LONG)
    trial.measuring()
    console = trial.place.console(trial.run)
    trial.strike(_children(console)[0], signal.SIGKILL)
    return trial.end()


def _console_killed(trial: Trial) -> Ended:
    trial.start(LONG)
    trial.measuring()
    run_id = trial.run.folder.name
    trial.strike(trial.place.console(trial.run), signal.SIGKILL)
    deadline = time.monotonic() + 15
    while members(run_id) and time.monotonic() < deadline:
        time.sleep(0.1)
    return trial.end()


def _interrupted(number: signal.Signals, times: int = 1) -> Callable[[Trial], Ended]:
    def act(trial: Trial) -> Ended:
        trial.start(LONG)
        trial.measuring()
        for _ in range(times):
            trial.strike(trial.place.console(trial.run), number)
            time.sleep(0.2)
        return trial.end()

    return act


def _planted(*words: str, suite: str = FAULTS) -> Callable[[Trial], Ended]:
    """Run a suite with words that break it."""

    def act(trial: Trial) -> Ended:
        trial.victim, trial.host = 1, ""
        trial.start(suite, *words)
        ended = trial.end()
        for event in ended.events if ended.code not in (2, 3) else ():
            if event["event"] == "ready" and event["rank"] == trial.victim:
                trial.host = str(event["host"])
        return ended

    return act


def _with_environment(**env: str) -> Callable[[Trial], Ended]:
    def act(trial: Trial) -> Ended:
        trial.start(FAULTS, env=env)
        return trial.end()

    return act


def _link_cut(trial: Trial) -> Ended:
    trial.start(LONG)
    trial.measuring()
    assert trial.place.hosts is not None
    lost = next(host for host in trial.place.hosts.hosts if host.name == trial.host)
    with trial.place.hosts.cut(lost):
        trial.since = time.monotonic()
        trial.run.wait_for("job_end")
        return trial.end()


def _host_refuses(trial: Trial) -> Ended:
    assert trial.place.hosts is not None
    hostfile = trial.folder / "hostfile"
    nobody = trial.place.hosts.address.replace(".254", ".99")
    hostfile.write_text(f"{nobody}\n" + trial.place.hosts.lines())
    trial.start(LONG, "--hostfile", str(hostfile))
    return trial.end()


def _setup_fails_on_one_host(trial: Trial) -> Ended:
    assert trial.place.hosts is not None
    trial.victim, trial.host = 1, trial.place.hosts.hosts[1].name
    line = f"test $(hostname) != {trial.host}"
    trial.start(LONG, "--set", f"launch.setup=['{line}']")
    return trial.end()


def _home_removed(trial: Trial) -> Ended:
    trial.start(LONG)
    trial.measuring()
    trial.since = time.monotonic()
    shutil.rmtree(trial.run.home)
    return trial.end()


def _disk_full(trial: Trial) -> Ended:
    home = trial.folder / "home"
    home.mkdir()
    with ExitStack() as stack:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "none", str(home)], check=True)
        stack.callback(subprocess.run, ["umount", "-l", str(home)], check=False)
        trial.start(FAULTS)
        return trial.end()


def _two_consoles(trial: Trial) -> Ended:
    """Another run in the same home: both pass."""
    trial.start(FAULTS)
    first = trial.run
    trial.start(FAULTS)
    one, other = first.end(), trial.end()
    return one if one.code else other


def _children(pid: int) -> list[int]:
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(word) for word in file.read().split()]


FAULT_TABLE = (
    Fault(
        "a rank is killed (SIGKILL) while it measures",
        _signalled(signal.SIGKILL),
        4,
        ("signal 9",),
        ALL,
        victim=True,
        goes_on=True,
        chance=True,
    ),
    Fault(
        "a rank breaks a rule of memory (SIGSEGV)",
        _signalled(signal.SIGSEGV),
        4,
        ("signal 11",),
        HERE_ONLY,
        victim=True,
        goes_on=True,
        chance=True,
    ),
    Fault(
        "a rank is stopped (SIGSTOP) while it measures",
        _signalled(signal.SIGSTOP),
        4,
        ("silent",),
        ALL,
        victim=True,
        goes_on=True,
        chance=True,
    ),
    Fault(
        "a rank is killed before the first case",
        _killed_before_a_case,
        4,
        ("signal 9",),
        HERE_ONLY,
        victim=True,
        goes_on=True,
    ),
    Fault(
        "a rank is stopped between ready and the first case",
        _stopped_before_a_case,
        4,
        ("silent",),
        HERE_ONLY,
        victim=True,
        goes_on=True,
    ),
    Fault(
        "the launcher is killed",
        _launcher_killed,
        4,
        ("the launcher",),
        ("openmpi", "mpirun_rsh"),
        goes_on=True,
        chance=True,
    ),
    Fault("the console is killed", _console_killed, 256 - 9, (), ALL, chance=True),
    Fault("Ctrl-C", _interrupted(signal.SIGINT), 130, ("Ctrl-C",), ALL),
    Fault("Ctrl-C twice", _interrupted(signal.SIGINT, 2), 130, ("Ctrl-C",), HERE_ONLY),
    Fault("SIGTERM to the console", _interrupted(signal.SIGTERM), 143, ("SIGTERM",), ALL),
    Fault("the terminal hangs up", _interrupted(signal.SIGHUP), 143, ("SIGHUP",), HERE_ONLY),
    Fault(
        "a rank raises an exception",
        _planted("--inject", "raise@second"),
        4,
        ("planted by --inject raise",),
        ALL,
        victim=True,
        goes_on=True,
    ),
    Fault(
        "a rank ends by itself",
        _planted("--inject", "exit@second"),
        4,
        ("SystemExit: 3",),
        ALL,
        victim=True,
        goes_on=True,
    ),
    Fault(
        "a rank kills itself",
        _planted("--inject", "kill@second"),
        4,
        ("signal 9",),
        ALL,
        victim=True,
        goes_on=True,
    ),
    Fault(
        "a rank hangs",
        _planted("--inject", "hang@second", "--set", "launch.timeout=2"),
        4,
        ("its timeout is 2 s",),
        ALL,
        victim=True,
        goes_on=True,
    ),
    Fault(
        "a result is wrong on one rank",
        _planted("--inject", "corrupt-message@second"),
        1,
        ("check",),
        ALL,
        goes_on=True,
    ),
    Fault("the budget is used up", _planted("--budget", "4s", suite=LONG), 124, ("budget",), ALL),
    Fault(
        "the interpreter is missing",
        _planted("--set", "launch.python=/no/such/python"),
        3,
        ("/no/such/python",),
        ONE,
    ),
    Fault(
        "a setup line fails",
        _planted("--set", "launch.setup=['cd /no/such']"),
        3,
        ("setup line failed: cd /no/such",),
        ("openmpi", "mpirun_rsh"),
    ),
    Fault(
        "ranks end before they connect",
        _planted("--set", "launch.setup=['[ -z \"$SPBENCH_TOKEN\" ] || exit 7']"),
        4,
        ("7",),
        ("openmpi", "mpirun_rsh"),
    ),
    Fault(
        "the launcher knows no such option",
        _planted("--set", "launch.args=[--no-such-option]"),
        4,
        ("no-such-option",),
        HERE_ONLY,
    ),
    Fault("a link is cut", _link_cut, 4, ("silent",), HOSTS, victim=True, chance=True),
    Fault("a host cannot be reached", _host_refuses, 3, ("cannot be reached",), HOSTS),
    Fault(
        "a setup line fails on one host",
        _setup_fails_on_one_host,
        4,
        ("setup line failed", "{host}"),
        HOSTS,
    ),
    Fault("the home is removed during the run", _home_removed, 4, ("home",), ONE),
    Fault("the disk is full", _disk_full, 4, ("No space left",), ONE),
    Fault("two consoles at once", _two_consoles, 0, (), HERE_ONLY),
    Fault("an empty HOME", _with_environment(HOME=""), 0, (), HERE_ONLY),
)
