"""Facts about launchers outside of their modules; nothing else knows a launcher by its name."""

from importlib import import_module
from pkgutil import iter_modules
from types import SimpleNamespace

import pytest

from spbench.launch import launchers
from spbench.launch.detect import list_launchers, load_launcher, load_traits
from spbench.launch.launcher import LauncherTraits, get_traits
from spbench.launch.mpi_probe import LIBRARIES
from spbench.suites.launcher_names import AUTO, LAUNCHERS


def test_names_the_modules_that_define_a_launcher():
    names = [info.name for info in iter_modules(launchers.__path__)]
    modules = {name: import_module(f"{launchers.__name__}.{name}") for name in names}
    assert sorted(LAUNCHERS) == [name for name in names if hasattr(modules[name], "LAUNCHER")]


@pytest.mark.parametrize("name", LAUNCHERS)
def test_each_launcher_has_words_for_people_and_a_program(name):
    traits = load_traits(name)
    assert traits.program
    assert traits.title
    assert traits.starts


@pytest.mark.parametrize("name", LAUNCHERS)
def test_a_launcher_starts_the_ranks_of_the_libraries_that_it_comes_with(name):
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
def test_the_best_launcher_of_a_library_comes_first(library, launchers):
    assert list_launchers(library) == launchers


def test_each_library_comes_with_a_launcher():
    assert all(map(list_launchers, LIBRARIES))


def test_only_the_launcher_of_slurm_places_ranks():
    assert [name for name in LAUNCHERS if load_traits(name).places_ranks] == ["srun"]


def test_neither_auto_nor_a_plug_in_needs_traits():
    assert load_traits(AUTO) == get_traits(SimpleNamespace(name="other")) == LauncherTraits()
