"""Faults of hosts, of the network between them, and of a batch system."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from spbench.engine.processes import find_processes
from support.reliability.trial import LONG, MEDIUM, FaultTrial
from support.runs import RunResult, read_parent_pid

TWO_JOBS = """\
schema: spbench.suite/1
name: two-jobs
launch: {timeout: 60}
cases:
  - {name: first, benchmark: link.pingpong, np: 2, params: {sizes: [8], iterations: 10000}}
  - {name: second, benchmark: compute.gemm, np: 1, params: {n: 32, iterations: 5}}
"""


def cut_link(trial: FaultTrial) -> RunResult:
    """Cut the link of the victim's host until the job has ended."""
    trial.start(LONG)
    trial.wait_until_timing()
    assert trial.testbed.hosts is not None
    lost = next(host for host in trial.testbed.hosts.hosts if host.name == trial.host)
    with trial.testbed.hosts.cut_link(lost):
        trial.fault_time = time.monotonic()
        trial.run.wait_for("job_end")
    return trial.wait()


def add_first_host(last_number: str) -> Callable[[FaultTrial], RunResult]:
    """Run a suite with an additional first host; its address ends with this number."""

    def act(trial: FaultTrial) -> RunResult:
        assert trial.testbed.hosts is not None
        hostfile = trial.folder / "hostfile"
        address = trial.testbed.hosts.address.replace(".254", last_number)
        hostfile.write_text(f"{address}\n" + trial.testbed.hosts.render_hostfile())
        trial.start(LONG, "--hostfile", str(hostfile))
        return trial.wait()

    return act


def use_wrong_key(trial: FaultTrial) -> RunResult:
    """Log in with a key that the hosts do not accept."""
    assert trial.testbed.hosts is not None
    key = trial.folder / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    config = (trial.testbed.hosts.bin.parent / "ssh_config").read_text()
    user_key = trial.testbed.hosts.bin.parent / "user_key"
    (trial.folder / "config").write_text(config.replace(str(user_key), str(key)))
    path = _write_ssh(trial.folder, f'exec {shutil.which("ssh")} -F {trial.folder}/config "$@"')
    trial.start(LONG, env={"PATH": path})
    return trial.wait()


def lose_host_between_jobs(trial: FaultTrial) -> RunResult:
    """Make ssh fail for all hosts after the first of two jobs has started to measure."""
    assert trial.testbed.hosts is not None
    marker = trial.folder / "gone"
    path = _write_ssh(
        trial.folder,
        f"if [ -e {marker} ]; then\n"
        "  echo 'ssh: connect to host: No route to host' >&2; exit 255\n"
        "fi\n"
        f'exec {trial.testbed.hosts.bin}/ssh "$@"',
    )
    trial.start(TWO_JOBS, env={"PATH": path})
    trial.run.wait_for_timing()
    marker.touch()
    trial.fault_time = time.monotonic()
    return trial.wait()


def _write_ssh(folder: Path, script: str) -> str:
    ssh = folder / "bin" / "ssh"
    ssh.parent.mkdir()
    ssh.write_text(f"#!/bin/sh\n{script}\n")
    ssh.chmod(0o755)
    return f"{ssh.parent}:{os.environ['PATH']}"


NODES = ("127.0.0.2", "127.0.0.3")
"""Hosts that the stand-in of mpirun_rsh reaches by ssh, with one rank on each."""


def kill_ssh_session(trial: FaultTrial) -> RunResult:
    """Kill the ssh session of the victim's node, of the stand-in or of a real sshd."""
    if trial.testbed.hosts is None:
        _measure_on_nodes(trial)
        command = f"sshd-session\0{NODES[trial.victim]}\0".encode()
        run = trial.run.folder.name
        (session,) = (
            pid for pid in find_processes(run) if _read_command_line(pid).endswith(command)
        )
    else:
        trial.start(LONG)
        session = trial.wait_until_timing()
        while b"@notty" not in _read_command_line(session):
            session = read_parent_pid(session)
    trial.inject_signal(session, signal.SIGKILL)
    return trial.wait()


def kill_mpispawn(trial: FaultTrial) -> RunResult:
    """Kill the mpispawn that started the victim."""
    rank = _measure_on_nodes(trial)
    mpispawn = read_parent_pid(rank)
    assert Path(f"/proc/{mpispawn}/comm").read_text() == "mpispawn\n"
    trial.inject_signal(mpispawn, signal.SIGKILL)
    trial.run.wait_for("job_end")
    trial.job_end_seconds = time.monotonic() - trial.fault_time
    return trial.wait()


def _measure_on_nodes(trial: FaultTrial) -> int:
    """Start a run on two nodes; return the victim's pid once it measures."""
    trial.start(LONG, "--hosts", ",".join(f"{node}:1" for node in NODES))
    return trial.wait_until_timing()


def _read_command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def fail_setup_on_one_host(trial: FaultTrial) -> RunResult:
    """Make a line of ``launch.setup`` fail on the second host."""
    assert trial.testbed.hosts is not None
    second = trial.testbed.hosts.hosts[1]
    trial.victim = 1
    trial.host = second.address
    trial.start(LONG, "--set", f"launch.setup=['test $(hostname) != {second.name}']")
    return trial.wait()


def end_rank_early_on_one_host(trial: FaultTrial) -> RunResult:
    """End the rank of the second host before it connects."""
    assert trial.testbed.hosts is not None
    second = trial.testbed.hosts.hosts[1]
    trial.victim = 1
    trial.host = second.address
    line = f'[ -z "$SPBENCH_TOKEN" ] || [ $(hostname) != {second.name} ] || exit 7'
    trial.start(LONG, "--set", f"launch.setup=['{line}']")
    return trial.wait()


def use_ssh_aliases(trial: FaultTrial) -> RunResult:
    """Use names that only ssh resolves with a launcher that resolves names itself."""
    path = f"{_write_ssh(trial.folder, 'exit 0')}:{dict(trial.testbed.env)['PATH']}"
    trial.start(LONG, "--hosts", "alias.invalid:2", env={"PATH": path})
    return trial.wait()


def add_host_without_mvapich2(trial: FaultTrial) -> RunResult:
    """Use a host without MVAPICH2."""
    ssh = _write_ssh(trial.folder, 'for word; do last=$word; done\nexec sh -c "$last"')
    path = f"{ssh}:{dict(trial.testbed.env)['PATH']}"
    trial.start(LONG, "--hosts", "192.0.2.7:2", env={"PATH": path})
    return trial.wait()


def cancel_job(trial: FaultTrial) -> RunResult:
    """Cancel the Slurm job of a run."""
    trial.start(LONG)
    trial.wait_until_timing()
    assert trial.testbed.slurm is not None
    for line in trial.testbed.slurm.list_jobs().splitlines():
        trial.fault_time = time.monotonic()
        subprocess.run(["scancel", line.split()[0]], env=_build_env(trial), check=True)
    return trial.wait()


def _build_env(trial: FaultTrial) -> dict[str, str]:
    return os.environ | dict(trial.testbed.env)


class BatchJob:
    """A job that `spbench submit` submits to Slurm."""

    def __init__(self, trial: FaultTrial, suite: str, *arguments: str) -> None:
        self._trial = trial
        (trial.folder / "suite.yaml").write_text(suite)
        settings = [text for text in trial.testbed.arguments if text.startswith("launch.")]
        settings.append("launch.batch.nodes=2")
        options = [option for setting in settings for option in ("--set", setting)]
        suite_path = str(trial.folder / "suite.yaml")
        result = self._run_spbench("submit", suite_path, *options, *arguments)
        assert result.code == 0, result.stderr
        self.number, folder = result.stdout.split()
        self.folder = Path(folder)

    def _run_spbench(self, *arguments: str) -> RunResult:
        return self._trial.run_spbench(*arguments, "--home", str(self._trial.folder / "home"))

    def wait_until_timing(self) -> None:
        """Wait until a rank measures."""
        self.wait_until(
            lambda: any(
                '"phase":"timing"' in path.read_text()
                for path in self.folder.glob("jobs/*/*/events/*.jsonl")
            )
        )

    def wait_until(self, condition: Callable[[], object], limit: float = 60.0) -> None:
        """Wait until a condition is true."""
        deadline = time.monotonic() + limit
        while not condition():
            assert time.monotonic() < deadline, (self.folder / "job.log").read_text()
            time.sleep(0.1)

    def collect(self) -> RunResult:
        """Wait for the end of the job; return the results of `spbench collect`."""
        self.wait_until((self.folder / "ended").exists)
        report_path = str(self._trial.report_path)
        return self._run_spbench("collect", str(self.folder), "--json", report_path)


def kill_batch_rank(trial: FaultTrial) -> RunResult:
    """Kill a rank of a batch job."""
    job = BatchJob(trial, LONG)
    job.wait_until_timing()
    for path in job.folder.glob("jobs/*/*/events/*.jsonl"):
        for line in path.read_text().splitlines():
            event = json.loads(line)
            if (event["event"], event.get("rank")) == ("ready", trial.victim):
                trial.host = str(event["host"])
                trial.inject_signal(int(event["pid"]), signal.SIGKILL)
    return job.collect()


def cancel_batch_job(trial: FaultTrial) -> RunResult:
    """Cancel a batch job."""
    job = BatchJob(trial, LONG)
    job.wait_until_timing()
    trial.fault_time = time.monotonic()
    subprocess.run(["scancel", job.number], env=_build_env(trial), check=True)
    return job.collect()


def reach_batch_time_limit(trial: FaultTrial) -> RunResult:
    """Send the batch job the signal that Slurm sends shortly before the time limit."""
    job = BatchJob(trial, LONG)
    job.wait_until_timing()
    trial.fault_time = time.monotonic()
    command = ["scancel", "--batch", "--signal=TERM", job.number]
    subprocess.run(command, env=_build_env(trial), check=True)
    return job.collect()


def requeue_batch_job(trial: FaultTrial) -> RunResult:
    """Requeue a batch job that measures."""
    job = BatchJob(trial, MEDIUM)
    job.wait_until_timing()
    env = _build_env(trial)
    trial.fault_time = time.monotonic()
    subprocess.run(["scontrol", "requeue", job.number], env=env, check=True)
    job.wait_until((job.folder / "ended").exists)
    state = ["squeue", "-h", "-o", "%T", "-j", job.number]
    job.wait_until(lambda: "PENDING" in subprocess.check_output(state, env=env, text=True))
    time.sleep(3)  # right after the end, slurmd treats a new start as one that was killed
    start_now = ["scontrol", "update", f"jobid={job.number}", "StartTime=now"]
    subprocess.run(start_now, env=env, check=True)
    job.wait_until(lambda: len((job.folder / "starts").read_text().splitlines()) == 2)
    return job.collect()
