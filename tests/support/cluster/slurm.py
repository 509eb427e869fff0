"""A private Slurm on this machine: two nodes, its own munge, loopback only."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from support.cluster.requirements import MissingRequirementError

_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
DAEMONS = ("munged", "slurmctld", "slurmd")
COMMANDS = ("srun", "sbatch", "salloc", "scancel", "scontrol", "sinfo", "squeue")
NODES = ("n1", "n2")

# SlurmctldHost must be the name of this machine or localhost. Each node has its own port.
_CONF = """
ClusterName=probe
SlurmctldHost=localhost(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/ctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/ctld.log
SlurmdLogFile={folder}/%n.log
SlurmctldPort={ports[0]}
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=1
InactiveLimit=0
KillWait=2
MinJobAge=60
NodeName=n1 NodeHostname=localhost NodeAddr=127.0.0.1 Port={ports[1]} CPUs=4 RealMemory=500
NodeName=n2 NodeHostname=localhost NodeAddr=127.0.0.1 Port={ports[2]} CPUs=4 RealMemory=500
PartitionName=debug Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:4
"""


@dataclass(frozen=True)
class Slurm:
    """A running Slurm: its configuration file, None for the machine's, and nodes."""

    conf: Path | None
    nodes: tuple[str, ...]

    def list_jobs(self) -> str:
        """Return the jobs in the queue, one per line."""
        return _run_command("squeue", "-h", env=self._env()) or ""

    def _env(self) -> dict[str, str]:
        return dict(os.environ) | ({"SLURM_CONF": str(self.conf)} if self.conf else {})


def find_running_slurm() -> Slurm | None:
    """Return the Slurm of this machine if at least two of its nodes respond."""
    nodes = _list_usable_nodes(dict(os.environ))
    return Slurm(None, nodes) if len(nodes) >= 2 else None


@contextmanager
def start_private_slurm(folder: Path) -> Iterator[Slurm]:
    """Start a Slurm with two nodes; end it and all its jobs at the end.

    Raises:
        MissingRequirementError: This machine cannot run a private Slurm.
    """
    _check_programs()
    for name in ("state", "spool/n1", "spool/n2"):
        (folder / name).mkdir(parents=True)
    conf = folder / "slurm.conf"
    conf.write_text(_CONF.format(folder=folder, ports=_find_free_ports(3)))
    slurm = Slurm(conf, NODES)
    with ExitStack() as stack:
        stack.callback(_kill_steps, folder)
        stack.enter_context(_start_munged(folder))
        stack.enter_context(_start_daemon("slurmctld", "-D", "-i", "-f", str(conf), folder=folder))
        for node in NODES:
            stack.enter_context(
                _start_daemon("slurmd", "-D", "-f", str(conf), "-N", node, folder=folder)
            )
        _wait_for_nodes(conf, folder)
        yield slurm


def _check_programs() -> None:
    if os.geteuid() != 0:
        raise MissingRequirementError("a private Slurm needs root")
    names = (*DAEMONS, *COMMANDS)
    missing = [name for name in names if shutil.which(name, path=_PATH) is None]
    if missing:
        raise MissingRequirementError(f"not installed: {', '.join(missing)} (slurm-wlm)")


def _find_free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for bound_socket in sockets:
            bound_socket.bind(("127.0.0.1", 0))
        return [bound_socket.getsockname()[1] for bound_socket in sockets]


@contextmanager
def _start_munged(folder: Path) -> Iterator[None]:
    key = folder / "munge.key"
    key.write_bytes(secrets.token_bytes(128))
    key.chmod(0o600)
    arguments = [
        f"--{name}={folder}/munge.{name.split('-')[0]}" for name in ("key-file", "pid-file")
    ]
    arguments += [f"--seed-file={folder}/munge.seed", f"--log-file={folder}/munge.log"]
    arguments += [f"--socket={folder}/munge.socket", "--foreground", "--force"]
    with _start_daemon("munged", *arguments, folder=folder):
        deadline = time.monotonic() + 5
        while not (folder / "munge.socket").exists():
            if time.monotonic() > deadline:
                raise MissingRequirementError(
                    f"munged does not start: {_read_last_line(folder / 'munged.out')}"
                )
            time.sleep(0.05)
        yield


@contextmanager
def _start_daemon(name: str, *arguments: str, folder: Path) -> Iterator[None]:
    program = shutil.which(name, path=_PATH) or name
    with (folder / f"{name}.out").open("ab") as out:
        process = subprocess.Popen(
            [program, *arguments], stdin=subprocess.DEVNULL, stdout=out, stderr=out
        )
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_for_nodes(conf: Path, folder: Path) -> None:
    env = {**os.environ, "SLURM_CONF": str(conf)}
    deadline = time.monotonic() + 20
    while len(_list_usable_nodes(env)) < len(NODES):
        if time.monotonic() > deadline:
            outputs = "; ".join(_read_last_line(path) for path in sorted(folder.glob("*.out")))
            raise MissingRequirementError(f"its nodes do not come up: {outputs}")
        time.sleep(0.2)


def _list_usable_nodes(env: dict[str, str]) -> tuple[str, ...]:
    arguments = ("-h", "-N", "-t", "idle,alloc,mix", "-o", "%N")
    return tuple(sorted(set((_run_command("sinfo", *arguments, env=env) or "").split())))


def _run_command(name: str, *arguments: str, env: dict[str, str]) -> str | None:
    program = shutil.which(name, path=_PATH)
    if program is None:
        return None
    try:
        process = subprocess.run(
            [program, *arguments], env=env, capture_output=True, text=True, timeout=5, check=False
        )
    except subprocess.TimeoutExpired:
        return None
    return process.stdout if process.returncode == 0 else None


def _kill_steps(folder: Path) -> None:
    """Kill the step daemons and tasks that outlived slurmd. They name the folder."""
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            text = (entry / "environ").read_bytes() + (entry / "cmdline").read_bytes()
            if str(folder).encode() in text and int(entry.name) != os.getpid():
                os.kill(int(entry.name), signal.SIGKILL)


def _read_last_line(path: Path) -> str:
    lines = path.read_text(errors="replace").strip().splitlines() if path.exists() else []
    return f"{path.stem}: {lines[-1] if lines else 'it printed nothing'}"
