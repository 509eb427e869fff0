"""Launch lines for MPI libraries that are not installed here."""

import pytest

from places import HOSTFILES, SUITES
from spbench.engine.commands import build_commands
from spbench.engine.plan import Request, plan_run
from spbench.errors import UsageError
from spbench.launch.choice import LaunchChoice
from spbench.launch.detect import find_assumed_launcher, list_launchers, parse_assumed_library
from spbench.launch.mpi_probe import LIBRARIES
from spbench.suites.launcher_names import LAUNCHERS
from spbench.suites.settings import LaunchSettings


def settings(launcher="auto"):
    return LaunchSettings.model_validate({"launcher": launcher})


@pytest.mark.parametrize("name", LIBRARIES)
def test_each_library_has_its_own_launcher(name):
    library = parse_assumed_library(f"{name}-4.1.2")
    assert (library.name, library.version_text) == (name, f"{library.title} 4.1.2")
    found = find_assumed_launcher(settings(), library)
    assert found.launcher.name == list_launchers(name)[0]
    assert found.version.endswith("4.1.2 (assumed, not run)")
    assert not found.executable.is_absolute(), "the cluster's own PATH has it"


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_launcher_that_is_named_is_taken_or_refused(launcher):
    for name in LIBRARIES:
        library = parse_assumed_library(f"{name}-3.0")
        if launcher in list_launchers(name):
            assert find_assumed_launcher(settings(launcher), library).launcher.name == launcher
    if launcher != "openmpi":
        return
    with pytest.raises(UsageError, match=r"--assume: launcher openmpi .* does not start ranks of"):
        find_assumed_launcher(settings(launcher), parse_assumed_library("mvapich2-2.3.7"))


def test_mvapich_has_mpirun_rsh_up_to_3_and_hydra_from_4_on():
    three = parse_assumed_library("mvapich-3.0rc")
    four = parse_assumed_library("mvapich-4.0")
    assert find_assumed_launcher(settings(), three).launcher.name == "mpirun_rsh"
    assert find_assumed_launcher(settings(), four).launcher.name == "hydra"
    with pytest.raises(UsageError, match=r"MVAPICH 4\.0 has no mpirun_rsh; it comes with hydra"):
        find_assumed_launcher(settings("mpirun_rsh"), four)


@pytest.mark.parametrize(
    ("word", "near"),
    [("mvapich2", ""), ("mvapich2-", ""), ("lam-7.1", ""), ("opnmpi-5", "openmpi"), ("", "")],
)
def test_what_names_no_library_is_refused(word, near):
    with pytest.raises(UsageError, match=rf"--assume {word}: write LIBRARY-VERSION.*{near}"):
        parse_assumed_library(word)


def test_the_line_of_a_cluster_is_written_where_nothing_of_it_is_installed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # mpirun_rsh takes no folder with a space
    chosen = LaunchChoice(
        hostfile=HOSTFILES / "mvapich2.hosts", launcher="mpirun_rsh", assume="mvapich2-2.3.7"
    )
    environ = {"PATH": str(tmp_path)}
    request = Request(SUITES / "halo.yaml", tmp_path / "home", environ, launch_choice=chosen)
    first, *_ = build_commands(plan_run(request))
    assert " mpirun_rsh --export-all -np 4 -hostfile " in first.line
    assert first.heading.endswith("mpirun_rsh of MVAPICH2 2.3.7 (assumed, not run)")
