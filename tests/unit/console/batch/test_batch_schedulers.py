"""Tests of the directives of each scheduler; only Slurm's were tried for real."""

from pathlib import Path

import pytest

from spbench.batch.schedulers.flux import FluxRun
from spbench.batch.schedulers.scheduler import Allocation, choose_scheduler, load_scheduler
from spbench.errors import UsageError
from spbench.launch.launcher import JobSpec
from spbench.suites.settings import SCHEDULERS, BatchSettings, LaunchSettings

FULL = {
    "account": "proj42",
    "partition": "compute",
    "time": "1:30:00",
    "nodes": 4,
    "gpus": 2,
}


def list_directives(scheduler, np=8, ranks_per_host=None, **keys):
    settings = BatchSettings.model_validate(keys)
    allocation = Allocation("spbench-halo", np, ranks_per_host, settings, Path("/b/job.log"))
    return list(load_scheduler(scheduler).directives(allocation))


SNAPSHOTS = {
    "slurm": """
        --job-name=spbench-halo
        --output=/b/job.log
        --open-mode=append
        --account=proj42
        --partition=compute
        --time=1:30:00
        --nodes=4
        --ntasks-per-node=2
        --gres=gpu:2
        --signal=B:TERM@60
    """,
    "pbs": """
        -N spbench-halo
        -o /b/job.log
        -j oe
        -V
        -A proj42
        -q compute
        -l walltime=1:30:00
        -l select=4:ncpus=2:mpiprocs=2:ngpus=2
        -l place=scatter
    """,
    "lsf": """
        -J spbench-halo
        -o /b/job.log
        -P proj42
        -q compute
        -W 1:30
        -wa TERM
        -wt 1
        -n 8
        -R "span[ptile=2]"
        -gpu "num=2"
    """,
    "flux": """
        --job-name=spbench-halo
        --output=/b/job.log
        --bank=proj42
        --queue=compute
        --time-limit=5400s
        --nodes=4
        --nslots=4
        --cores-per-slot=2
        --gpus-per-slot=2
        --signal=SIGTERM@60s
    """,
}


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_directives_contain_all_settings(scheduler):
    assert list_directives(scheduler, **FULL) == [
        line.strip() for line in SNAPSHOTS[scheduler].strip().splitlines()
    ]


SMALL = {
    "slurm": ["--ntasks=3", "--signal=B:TERM@60"],
    "pbs": ["-V", "-l select=3:ncpus=1:mpiprocs=1"],
    "lsf": ["-o /b/job.log", "-n 3"],
    "flux": ["--nslots=3", "--signal=SIGTERM@60s"],
}


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_default_directives_request_slots_for_the_ranks(scheduler):
    assert list_directives(scheduler, np=3)[-2:] == SMALL[scheduler]


def test_ranks_per_host_sets_the_number_of_nodes():
    assert {"--nodes=3", "--ntasks-per-node=2"} <= {*list_directives("slurm", 5, 2)}
    assert "-l select=3:ncpus=2:mpiprocs=2" in list_directives("pbs", 5, 2)


def test_short_job_gets_its_signal_later():
    assert list_directives("slurm", time="2m")[-1] == "--signal=B:TERM@30"


def test_only_slurm_has_qos(messages):
    assert "--qos=high" in list_directives("slurm", qos="high")
    for scheduler in ("pbs", "lsf", "flux"):
        with messages.raises(UsageError):
            list_directives(scheduler, qos="high")


def test_script_sends_the_early_signal_under_pbs():
    settings = BatchSettings.model_validate({"time": "10m"})
    allocation = Allocation("n", 2, None, settings, Path("/b/job.log"))
    assert load_scheduler("pbs").early_signal(allocation) == (
        "{ timeout 540 tail --pid=$$ -f /dev/null; [ $? = 124 ] && kill -TERM $$; } &"
    )
    assert load_scheduler("slurm").early_signal(allocation) is None


def test_scheduler_is_from_option_settings_or_path(tmp_path, messages):
    settings = BatchSettings.model_validate({"scheduler": "lsf"})
    assert choose_scheduler("pbs", settings, "").name == "pbs"
    assert choose_scheduler(None, settings, "").name == "lsf"
    (tmp_path / "qsub").write_text("#!/bin/sh\n")
    (tmp_path / "qsub").chmod(0o755)
    assert choose_scheduler(None, BatchSettings(), str(tmp_path)).name == "pbs"
    with pytest.raises(UsageError, match="--scheduler"):
        choose_scheduler(None, BatchSettings(), str(tmp_path / "none"))
    with messages.raises(UsageError):
        choose_scheduler("sge", BatchSettings(), "")


def test_flux_binds_ranks_and_uses_pmix():
    settings = LaunchSettings.model_validate(
        {"ranks_per_host": 2, "bind": "core", "env": {"A": "1"}, "args": ["-o", "x"]}
    )
    spec = JobSpec(5, (), settings, ("python", "-m", "w"), {"E": ""}, False, None, "openmpi")
    command = FluxRun().command(Path("flux"), spec, {"PATH": "/bin"})
    assert " ".join(command.argv) == (
        "flux run --ntasks=5 --nodes=3 --setopt=cpu-affinity=per-task --setopt=pmi=pmix "
        "-o x python -m w"
    )
    assert command.env == {"PATH": "/bin", "A": "1", "E": ""}
