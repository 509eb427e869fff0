"""Tests of launch lines for MPI libraries that are not installed here."""

import pytest

from spbench.engine.commands import build_commands
from spbench.engine.plan import Request, plan_run
from spbench.errors import UsageError
from spbench.launch.choice import LaunchChoice
from spbench.launch.detect import find_assumed_launcher, list_launchers, parse_assumed_library
from spbench.launch.mpi_probe import LIBRARIES, VERSION_BY_LIBRARY
from spbench.suites.launcher_names import LAUNCHERS
from spbench.suites.settings import LaunchSettings
from support.paths import HOSTFILES, SUITES


def make_settings(launcher="auto"):
    return LaunchSettings.model_validate({"launcher": launcher})


@pytest.mark.parametrize("name", LIBRARIES)
def test_each_library_has_its_own_launcher(name):
    library = parse_assumed_library(f"{name}-4.1.2")
    assert (library.name, library.version_text) == (name, f"{library.title} 4.1.2")
    installed = find_assumed_launcher(make_settings(), library)
    assert installed.launcher.name == list_launchers(name)[0]
    assert installed.version.endswith("4.1.2 (assumed, not run)")
    assert not installed.executable.is_absolute(), "the cluster's own PATH has it"


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_named_launcher_must_start_ranks_of_the_library(launcher, messages):
    for name in LIBRARIES:
        library = parse_assumed_library(f"{name}-3.0")
        if launcher in list_launchers(name):
            assert find_assumed_launcher(make_settings(launcher), library).launcher.name == launcher
    if launcher != "openmpi":
        return
    with messages.raises(UsageError):
        find_assumed_launcher(make_settings(launcher), parse_assumed_library("mvapich2-2.3.7"))


def test_mvapich_uses_mpirun_rsh_before_version_4(messages):
    three = parse_assumed_library("mvapich-3.0rc")
    four = parse_assumed_library("mvapich-4.0")
    assert find_assumed_launcher(make_settings(), three).launcher.name == "mpirun_rsh"
    assert find_assumed_launcher(make_settings(), four).launcher.name == "hydra"
    with messages.raises(UsageError):
        find_assumed_launcher(make_settings("mpirun_rsh"), four)


@pytest.mark.parametrize(
    ("text", "suggestion"),
    [("mvapich2-", ""), ("lam-7.1", ""), ("opnmpi-5", "openmpi"), ("", "")],
)
def test_rejects_invalid_library_names(text, suggestion):
    with pytest.raises(UsageError, match=rf"--assume {text}: write LIBRARY-VERSION.*{suggestion}"):
        parse_assumed_library(text)


def test_library_without_a_version_has_the_default():
    assert parse_assumed_library("mvapich2") == parse_assumed_library("mvapich2-2.3.7")
    for name, version in VERSION_BY_LIBRARY.items():
        assert parse_assumed_library(name).version_text.endswith(version)
    assert set(VERSION_BY_LIBRARY) == set(LIBRARIES)


def test_launch_line_needs_no_installed_library(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # mpirun_rsh takes no folder with a space
    choice = LaunchChoice(
        hostfile=HOSTFILES / "mvapich2.hosts", launcher="mpirun_rsh", assume="mvapich2-2.3.7"
    )
    environ = {"PATH": str(tmp_path)}
    request = Request(SUITES / "halo.yaml", tmp_path / "home", environ, launch_choice=choice)
    first, *_ = build_commands(plan_run(request))
    assert " mpirun_rsh --export-all -np 4 -hostfile " in first.line
    assert first.heading.endswith("mpirun_rsh of MVAPICH2 2.3.7 (assumed, not run)")
