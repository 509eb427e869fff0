"""Tests of the folder of a batch job that `spbench script` and `submit` write."""

import json
import os
import shlex
import shutil
import subprocess
import sys

import pytest

from spbench.batch import launches, site
from spbench.batch.plan_file import read_plan
from spbench.cli.app import run_command_line
from spbench.errors import UsageError
from spbench.launch.mpi_probe import MpiLibrary
from spbench.suites import site_file
from spbench_core.events.batch_files import read_cases, read_words
from support.paths import STANDINS, SUITES

MPIRUN = shutil.which("mpirun", path=f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}")
pytestmark = pytest.mark.skipif(MPIRUN is None, reason="Open MPI is not installed")
SUITE = """
schema: spbench.suite/1
name: Small.Suite
launch: {{{launch}}}
cases:
  - {{name: two, benchmark: link.pingpong, np: 2, repeat: 2, launch: {{timeout: 7}}}}
  - {{name: four, benchmark: link.pingpong, np: 4}}
  - {{name: all, benchmark: memory.copy}}
"""


@pytest.fixture
def write(tmp_path, monkeypatch, capsys):
    """Return a function that runs `spbench script`: exit code, folder and stderr."""
    monkeypatch.setattr(site, "find_user_site", lambda: tmp_path / "none.yaml")
    monkeypatch.setattr(
        launches, "detect_mpi_library", lambda *_: MpiLibrary("openmpi", "Open MPI 5")
    )
    monkeypatch.setenv("PATH", f"{STANDINS}:{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_JOB_ID", "99")  # as if the tests ran in an allocation

    def write(launch, *args, out="job", suite_text=SUITE):
        suite = tmp_path / "suite.yaml"
        suite.write_text(suite_text.format(launch=launch))
        folder = tmp_path / out
        options = ("--output", str(folder), "--home", str(tmp_path / "home"))
        code = run_command_line(["script", str(suite), *options, *args])
        return code, folder, capsys.readouterr().err

    return write


def find_lines(folder, begin):
    text = (folder / "job.sh").read_text()
    return [line for line in text.splitlines() if line.startswith(begin)]


PBS = ("--scheduler", "pbs", "-k", "not all")


def test_untrusted_site_file_adds_no_line(write, tmp_path):
    path = tmp_path / "home" / "site.yaml"
    path.parent.mkdir()
    path.write_text("schema: spbench.site/1\nbatch: {lines: [touch planted]}\n")
    code, folder, stderr = write("batch: {nodes: 2}", *PBS)
    assert (code, find_lines(folder, "touch planted")) == (0, ["touch planted"])
    path.chmod(0o666)
    code, folder, stderr = write("batch: {nodes: 2}", *PBS, out="second")
    assert (code, find_lines(folder, "touch planted")) == (0, [])
    assert stderr.startswith(
        f"spbench: warning: {path} was skipped: it is world-writable; run chmod"
    )


EXPECTING = """
schema: spbench.suite/1
name: expecting
cases:
  - name: two
    benchmark: link.pingpong
    np: 2
    expect:
      time_ms:
        systems: {big: {reference: 10, upper: 0.5}, vm: {reference: 40, upper: 0.5}}
"""


@pytest.mark.parametrize(
    ("args", "system", "limit"),
    [
        ([], "login", None),
        (["--site", "vm.yaml"], "vm", 60.0),
        (["--site", "vm.yaml", "--system", "big"], "big", 15.0),
    ],
)
@pytest.mark.usefixtures("write")
def test_plan_has_the_system_and_its_references(args, system, limit, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(site_file, "find_user_site", lambda: tmp_path / "none.yaml")
    monkeypatch.setattr("socket.gethostname", lambda: "login2.example.org")
    (tmp_path / "suite.yaml").write_text(EXPECTING)
    (tmp_path / "vm.yaml").write_text("schema: spbench.site/1\nname: vm\n")
    out = ["--out", "job", "--home", "home", "--scheduler", "pbs"]
    assert run_command_line(["script", "suite.yaml", *out, *args]) == 0
    plan = read_plan(tmp_path / "job")
    (expectation,) = plan.cases[0]["expect"]
    assert (plan.system, expectation["limit"]) == (system, limit)


def test_folder_contains_all_files_of_a_job(write):
    code, folder, stderr = write("batch: {nodes: 2}", *PBS)
    assert code == 0, stderr
    assert "2 cases in 2 jobs for pbs" in stderr
    plan = read_plan(folder)
    assert (plan.suite, plan.scheduler, plan.mark[:12]) == ("Small.Suite", "pbs", "small-suite-")
    assert [(job.np, job.cases) for job in plan.jobs] == [(2, ("two",)), (4, ("four",))]
    assert plan.jobs[0].timeouts == {"two": 7}
    assert "PBS_NODEFILE" not in json.dumps([job.env for job in plan.jobs])
    cases = json.loads((folder / "jobs/1/cases.json").read_text())
    assert [(c["id"], c["repeat"], c["timeout"], c["start_timeout"]) for c in cases] == [
        ("two", 0, 7, 120),
        ("two", 1, 7, 120),
    ]
    assert find_lines(folder, "#PBS -l select") == ["#PBS -l select=2:ncpus=2:mpiprocs=2"]
    assert "-x SPBENCH_EVENTS_DIR -x SPBENCH_CASES" in find_lines(folder, "run 1 ")[0]
    assert os.access(folder / "job.sh", os.X_OK)
    subprocess.run(["bash", "-n", folder / "job.sh"], check=True)


def test_huge_files_of_a_folder_are_not_read(write, messages):
    folder = write("batch: {nodes: 2}", *PBS)[1]
    os.truncate(folder / "plan.json", 40 * 10**9)
    with messages.raises(UsageError):
        read_plan(folder)
    os.truncate(folder / "jobs/1/cases.json", 40 * 10**9)
    assert read_cases(folder / "jobs/1") == []
    (folder / "ended").touch()
    os.truncate(folder / "ended", 10**10)
    assert read_words(folder / "ended") == []


@pytest.mark.usefixtures("write")
def test_shipped_suite_keeps_its_name(tmp_path):
    folder = tmp_path / "shipped"
    options = ("--scheduler", "slurm", "--output", str(folder), "--home", str(tmp_path / "home"))
    assert run_command_line(["script", "shipped:smoke", *options]) == 0
    assert read_plan(folder).file == "shipped:smoke"
    assert (folder / "suite.yaml").read_text() == (SUITES / "smoke.yaml").read_text()


def test_auto_uses_the_launcher_of_the_scheduler(write):
    slurm = write("", "--scheduler", "slurm", "-k", "two", out="slurm")[1]
    (line,) = find_lines(slurm, "run 1 ")
    launcher = [str(STANDINS / "srun"), "-n", "2", "--export=ALL", "-K", "--mpi=pmix"]
    assert shlex.split(line)[3:9] == launcher
    flux = write("", "--scheduler", "flux", "-k", "two", out="flux")[1]
    assert " flux run --ntasks=2 " in f" {find_lines(flux, 'run 1 ')[0]}"


def test_all_slots_need_a_number_of_nodes(write, messages):
    code, _, stderr = write("", "--scheduler", "pbs")
    assert code == 2
    messages.check(stderr)
    code, folder, stderr = write("ranks_per_host: 3, batch: {nodes: 4}", "--scheduler", "pbs")
    assert code == 0, stderr
    assert [job.np for job in read_plan(folder).jobs] == [2, 4, 12]


def test_rejects_adaptive_repeats(write, messages):
    until = "until: {{interval: 0.1, max_time: 60}}"
    suite_text = SUITE.replace("repeat: 2", until)
    code, folder, stderr = write("batch: {nodes: 2}", *PBS, suite_text=suite_text)
    assert code == 2
    messages.check(stderr)
    assert not folder.exists()


def test_rejects_more_ranks_than_slots_of_the_nodes(write, messages):
    code, folder, stderr = write("ranks_per_host: 1, batch: {nodes: 2}", *PBS)
    assert code == 2
    messages.check(stderr)
    assert not folder.exists()


def test_hosts_are_those_of_the_allocation(write):
    code, folder, stderr = write("hostfile: none.hosts, launcher: openmpi", *PBS)
    assert code == 0
    assert "note: launch.hostfile is not used" in stderr
    assert "hostfile" not in (folder / "job.sh").read_text()


def test_script_writes_the_hostfile_of_mpirun_rsh(write):
    code, folder, stderr = write("ranks_per_host: 2", *PBS, "--launcher", "mpirun_rsh")
    assert code == 0, stderr
    assert find_lines(folder, "hosts 2") == ['hosts 2 2 >"$dir/jobs/1/hostfile"']
    assert f"-hostfile {folder}/jobs/1/hostfile " in find_lines(folder, "run 1 ")[0]


def test_container_mounts_the_folder(write):
    code, folder, stderr = write("container: {image: a.sif}", *PBS)
    assert code == 0, stderr
    for line in (find_lines(folder, "run 1 ")[0], find_lines(folder, "remaining=")[0]):
        assert f"--bind {folder}:{folder} " in line


@pytest.mark.parametrize(
    ("args", "out", "message"),
    [
        (("--scheduler", "sge"), "job", "no scheduler is called 'sge'"),
        (("--scheduler", "pbs", "--set", "launch.batch.qos=high"), "job", "PBS has no option"),
        (("--scheduler", "pbs"), "two words", "name a folder without blanks"),
        (("--scheduler", "pbs"), ".", "is there already; name a new folder"),
        (("--scheduler", "pbs", "--site", "none.yaml"), "job", "there is no such file"),
        (("--scheduler", "pbs", "-k", "nothing"), "job", "nothing"),
    ],
)
def test_errors_are_reported_before_files_are_written(write, tmp_path, args, out, message):
    code, _, stderr = write("batch: {nodes: 2}, ranks_per_host: 4", *args, out=out)
    assert code in (2, 5)
    assert message in stderr
    assert not list(tmp_path.rglob("job.sh"))


def test_submit_without_the_scheduler_names_the_script(write, tmp_path, monkeypatch, capsys):
    suite = tmp_path / "suite.yaml"
    suite.write_text(SUITE.format(launch=""))
    args = ["submit", str(suite), *PBS, "--output", str(tmp_path / "job")]
    assert run_command_line(args) == 3
    assert f"qsub is not installed here: submit {tmp_path}/job/job.sh" in capsys.readouterr().err
    qsub = tmp_path / "bin/qsub"
    qsub.parent.mkdir()
    qsub.write_text("#!/bin/sh\necho 12.server\n")
    qsub.chmod(0o755)
    monkeypatch.setenv("PATH", f"{qsub.parent}:{os.environ['PATH']}")
    assert run_command_line([*args[:-1], str(tmp_path / "other")]) == 0
    assert capsys.readouterr().out.strip() == f"12.server {tmp_path}/other"


def test_bsub_gets_the_script_on_stdin(write, tmp_path, monkeypatch, capsys):
    bsub = tmp_path / "bin/bsub"
    bsub.parent.mkdir()
    bsub.write_text("#!/bin/sh\ngrep -c '#BSUB -n 2$'\n")
    bsub.chmod(0o755)
    monkeypatch.setenv("PATH", f"{bsub.parent}:{os.environ['PATH']}")
    suite = tmp_path / "suite.yaml"
    suite.write_text(SUITE.format(launch=""))
    args = ["submit", str(suite), "--scheduler", "lsf", "-k", "two"]
    assert run_command_line([*args, "--output", str(tmp_path / "job")]) == 0
    assert capsys.readouterr().out.startswith("1 ")
