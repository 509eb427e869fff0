"""Tests of launcher traits, the only other place that names launchers."""

from importlib import import_module
from pkgutil import iter_modules
from types import SimpleNamespace

import pytest

from spbench.launch import launchers
from spbench.launch.detect import list_launchers, load_launcher, load_traits
from spbench.launch.launcher import LauncherTraits, get_traits
from spbench.launch.mpi_probe import LIBRARIES
from spbench.suites.launcher_names import AUTO, LAUNCHERS


def test_names_match_the_modules_that_define_a_launcher():
    names = [info.name for info in iter_modules(launchers.__path__)]
    modules = {name: import_module(f"{launchers.__name__}.{name}") for name in names}
    assert sorted(LAUNCHERS) == [name for name in names if hasattr(modules[name], "LAUNCHER")]


@pytest.mark.parametrize("name", LAUNCHERS)
def test_each_launcher_has_a_program_and_texts(name):
    traits = load_traits(name)
    assert traits.program
    assert traits.title
    assert traits.starts


@pytest.mark.parametrize("name", LAUNCHERS)
def test_launcher_starts_ranks_of_the_libraries_it_prefers(name):
    launcher = load_launcher(name)
    assert get_traits(launcher).preference.keys() <= launcher.libraries


@pytest.mark.parametrize(
    ("library", "launchers"),
    [
        ("openmpi", ("openmpi",)),
        ("mpich", ("hydra",)),
        ("intelmpi", ("hydra",)),
        ("mvapich", ("hydra", "mpirun_rsh")),
        ("mvapich2", ("mpirun_rsh", "hydra")),
    ],
)
def test_preferred_launcher_of_a_library_is_first(library, launchers):
    assert list_launchers(library) == launchers


def test_each_library_has_a_launcher():
    assert all(map(list_launchers, LIBRARIES))


def test_only_srun_places_ranks():
    assert [name for name in LAUNCHERS if load_traits(name).places_ranks] == ["srun"]


def test_auto_and_plug_ins_have_default_traits():
    assert load_traits(AUTO) == get_traits(SimpleNamespace(name="other")) == LauncherTraits()
