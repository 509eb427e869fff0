"""Tests of the script of a batch job: its text, and runs with stand-in launchers."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from spbench.batch.schedulers.scheduler import Allocation, load_scheduler
from spbench.batch.script import BatchScript
from spbench.launch.detect import InstalledLauncher
from spbench.launch.jobs import Job, Launch
from spbench.launch.launcher import Command, JobSpec
from spbench.launch.launchers.mpirun_rsh import MpirunRsh
from spbench.launch.launchers.srun import Srun
from spbench.launch.mpi_probe import MpiLibrary
from spbench.suites.case import Case
from spbench.suites.settings import BatchSettings, LaunchSettings
from spbench_core.catalog import BENCHMARKS
from support.paths import ROOT
from support.sample_events import rank_event


def build_job(number, *names, **keys):
    settings = LaunchSettings.model_validate({"python": "python3", **keys})
    params = BENCHMARKS["link.pingpong"].complete({})
    cases = (Case(name, name, "link.pingpong", params, 2, 1, (), settings, 1) for name in names)
    return Job(number, tuple(cases), 2, settings)


def build_launch(job, argv, launcher=None, hostfile=None, env=None):
    spec = JobSpec(job.np, (), job.settings, ("python3",), {}, False, hostfile, "mpich")
    installed = InstalledLauncher(launcher or Srun(), Path("srun"), "srun 22.05.8")
    library = MpiLibrary("mpich", "MPICH 5.0.2")
    return Launch(installed, library, spec, Command(argv, env or {}), None)


def build_script(folder, launches, scheduler_name="slurm", **keys):
    settings = BatchSettings.model_validate(keys)
    allocation = Allocation("spbench-s", 2, None, settings, folder / "job.log")
    scheduler = load_scheduler(scheduler_name)
    return BatchScript("s", scheduler, allocation, folder, "/tmp", launches, {"SEEN": "1"}).render()


def test_script_begins_and_ends_as_expected():
    job = build_job(1, "a", "b", "c", "d", timeout=10, start_timeout=20)
    launch = build_launch(job, ("srun", "-n", "2", "it's"), env={"SEEN": "1", "X": "a b"})
    keys = {"modules": ["mpi/4", "py"], "directives": ["--constraint=ib"], "lines": ["ulimit -l 1"]}
    lines = build_script(Path("/b"), [(job, launch)], account="proj42", **keys).splitlines()
    assert lines[:15] == [
        "#!/bin/bash -l",
        "#SBATCH --job-name=spbench-s",
        "#SBATCH --output=/b/job.log",
        "#SBATCH --open-mode=append",
        "#SBATCH --account=proj42",
        "#SBATCH --ntasks=2",
        "#SBATCH --signal=B:TERM@60",
        "#SBATCH --constraint=ib",
        lines[8],
        "",
        "cd /tmp || exit",
        "module load mpi/4 py || exit",
        "ulimit -l 1",
        "dir=/b",
        "",
    ]
    assert lines[8].endswith(", suite s: spbench collect /b")
    assert lines[-7:] == [
        "# job 1: 2 ranks, srun 22.05.8: a, b, c, ...",
        "remaining=(python3 -m spbench_workers.remaining)",
        "variables=('X=a b')",
        """run 1 140 srun -n 2 'it'"'"'s'""",
        "",
        '[ -z "$stopped" ] || exit 143',
        'exit "$worst"',
    ]


class Folder:
    """The folder of a batch job with shell lines as launchers, and its results."""

    def __init__(self, path, *launchers):
        self.path = path
        launches = []
        for number, line in enumerate(launchers, 1):
            job = build_job(number, "a", "b")
            job_folder = path / "jobs" / str(number)
            job_folder.mkdir(parents=True)
            cases = [{"id": name, "repeat": 0} for name in "ab"]
            (job_folder / "cases.json").write_text(json.dumps(cases))
            launches.append((job, build_launch(job, ("bash", "-c", line))))
        self.script = path / "job.sh"
        self.script.write_text(build_script(path, launches))

    def start(self):
        # The script uses any python3 in PATH.
        workers = f"{ROOT / 'core'}:{ROOT / 'workers'}"
        return subprocess.Popen(
            ["bash", str(self.script)], env={**os.environ, "PYTHONPATH": workers}
        )

    def run(self):
        with self.start() as process:
            return process.wait(20)

    def read_words(self, name):
        path = self.path / name
        return path.read_text().split() if path.exists() else None

    def launches(self, job=1):
        paths = (self.path / "jobs" / str(job)).glob("[0-9]*")
        return sorted(path.name for path in paths)


def write_events_line(*cases):
    """Return a shell line that writes the events of a rank that starts these cases."""
    events = [rank_event("case_start", 0, case=case) for case in cases]
    text = "".join(json.dumps(event) + "\n" for event in events)
    return f"mkdir -p $SPBENCH_EVENTS_DIR; printf '%s' '{text}' >$SPBENCH_EVENTS_DIR/0.jsonl; "


def test_arguments_show_no_values_of_variables(tmp_path):
    folder = Folder(tmp_path)
    # cat's arguments come from a pattern, so that the shell of the test shows no value itself
    line = 'printf "%s %s\\n" "$NOTE" "$dir"; grep -lz "^NOTE=s3cret" /proc/[0-9]*/cmdline; exit 0'
    job = build_job(1, "a", "b")
    job_folder = tmp_path / "jobs" / "1"
    job_folder.mkdir(parents=True)
    (job_folder / "cases.json").write_text("[]")
    env = {"NOTE": "s3cret; it's $HOME", "dir": "a name of the script's own"}
    launch = build_launch(job, ("bash", "-c", line), env=env)
    folder.script.write_text(build_script(tmp_path, [(job, launch)]))
    assert folder.run() == 0
    output = (job_folder / "1" / "stdout.log").read_text()
    assert output == "s3cret; it's $HOME a name of the script's own\n"


def test_failed_job_does_not_stop_the_next(tmp_path):
    folder = Folder(
        tmp_path, write_events_line("a", "b") + "echo out; echo err >&2; exit 7", "exit 0"
    )
    assert folder.run() == 7
    assert folder.read_words("jobs/1/1/status")[0] == "7"
    assert folder.read_words("jobs/1/1/stdout.log") == ["out"]
    assert folder.read_words("jobs/1/1/stderr.log") == ["err"]
    assert (folder.launches(1), folder.launches(2)) == (["1"], ["1"])
    assert folder.read_words("jobs/2/1/status")[0] == "0"
    assert len(folder.read_words("ended")) == 1


def test_cases_after_a_fault_are_launched_again(tmp_path):
    folder = Folder(
        tmp_path, write_events_line("a") + "grep -q '\"a\"' $SPBENCH_CASES && exit 1; exit 0"
    )
    assert folder.run() == 1
    assert folder.launches() == ["1", "2"]
    assert json.loads((tmp_path / "jobs/1/2/cases.json").read_text()) == [{"id": "b", "repeat": 0}]


def test_launch_that_starts_no_case_is_tried_twice(tmp_path):
    folder = Folder(tmp_path, "exit 3")
    assert folder.run() == 3
    assert folder.launches() == ["1", "2"]


@pytest.mark.parametrize("line", ["exec sleep 60", "trap '' INT; sleep 60"])
def test_signal_ends_the_launch_and_prevents_others(tmp_path, line):
    folder = Folder(tmp_path, f"touch begun; {line}".replace("begun", str(tmp_path / "b")), "exit")
    process = folder.start()
    deadline = time.monotonic() + 10
    while not (tmp_path / "b").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    assert process.wait(10) == 143
    status, _, name, _ = folder.read_words("jobs/1/1/status")
    assert (status, name) == ("143", "TERM")
    assert folder.read_words("ended")[1] == "TERM"
    assert folder.launches(2) == []
    # a second submission repeats the interrupted launch and continues with the next
    (tmp_path / "job.sh").write_text(folder.script.read_text().replace("sleep 60", "true"))
    assert folder.run() == 0
    assert (folder.launches(1), folder.launches(2)) == (["1", "2"], ["1"])
    assert len(folder.read_words("ended")) == 1


def test_hanging_launch_is_killed(tmp_path):
    folder = Folder(tmp_path, write_events_line("a", "b") + "exec sleep 60")
    text = folder.script.read_text()
    folder.script.write_text(text.replace("run 1 420 ", "run 1 0.2 "))
    assert folder.run() == 124
    assert folder.read_words("jobs/1/1/status")[0] == "124"


@pytest.mark.parametrize(
    ("args", "hosts"), [("4", "n1:2 n2:2"), ("3 1", "n1:1 n2:1"), ("3 2", "n1:2 n2:1")]
)
def test_mpirun_rsh_gets_the_hosts_of_the_allocation(tmp_path, args, hosts):
    job = build_job(1, "a", ranks_per_host=2)
    launch = build_launch(job, ("true",), MpirunRsh(), tmp_path / "jobs/1/hostfile")
    text = build_script(tmp_path, [(job, launch)], "pbs")
    assert 'hosts 2 2 >"$dir/jobs/1/hostfile"' in text
    functions = text[text.index("# hosts RANKS") : text.index("# job 1")]
    (tmp_path / "nodes").write_text("n1\nn1\nn2\nn2\n")
    process = subprocess.run(
        ["bash", "-c", f"{functions}\nhosts {args}"],
        env=os.environ | {"PBS_NODEFILE": str(tmp_path / "nodes")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert process.stdout.split() == hosts.split()
