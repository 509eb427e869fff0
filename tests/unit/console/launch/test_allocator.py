import pytest

from spbench.errors import MissingError, UsageError
from spbench.launch import allocator
from spbench.launch.allocator import TCMALLOC, preload_allocator
from spbench.launch.launcher import RankBlock
from spbench.suites.settings import LaunchSettings


@pytest.fixture
def installed(tmp_path):
    """The environment of a machine with tcmalloc."""
    (tmp_path / TCMALLOC[0]).touch()
    return {"LD_LIBRARY_PATH": f"/nonexistent:{tmp_path}"}


def preloaded(around, launcher="openmpi", placement=(), here=True, **given):
    settings = preload_allocator(
        LaunchSettings(**given), launcher, placement, around, is_local_job=here
    )
    return settings.env.get("LD_PRELOAD")


def test_auto_takes_tcmalloc_where_all_ranks_are_here_and_it_is_installed(installed):
    assert preloaded(installed) == TCMALLOC[0]
    assert preloaded(installed, placement=[RankBlock("localhost", 2)], here=False) == TCMALLOC[0]
    assert preloaded({}) is None


@pytest.mark.parametrize(
    "surroundings",
    [
        {"here": False},
        {"placement": [RankBlock("localhost", 1), RankBlock("node02", 1)]},
        {"launcher": "mpirun_rsh"},
        {"container": "apptainer exec image.sif"},
        {"allocator": "system"},
    ],
)
def test_else_it_leaves_the_systems_own(installed, surroundings):
    assert preloaded(installed, **surroundings) is None


def test_what_the_user_preloads_stays(installed):
    assert preloaded(installed, env={"LD_PRELOAD": "mine.so"}) == "mine.so"
    assert preloaded(installed | {"LD_PRELOAD": "mine.so"}) is None
    with pytest.raises(UsageError, match="has an LD_PRELOAD already; put tcmalloc into it"):
        preloaded(installed, allocator="tcmalloc", env={"LD_PRELOAD": "mine.so"})


def test_tcmalloc_that_is_asked_for_is_loaded_on_other_hosts_too(installed):
    assert preloaded(installed, allocator="tcmalloc") == TCMALLOC[0]
    assert preloaded({}, allocator="tcmalloc", placement=[RankBlock("node02", 1)]) == TCMALLOC[0]
    with pytest.raises(MissingError, match="tcmalloc: no libtcmalloc_min"):
        preloaded({}, allocator="tcmalloc")


def test_the_folders_of_the_system_are_looked_into(tmp_path, monkeypatch):
    monkeypatch.setattr(allocator, "FOLDERS", (tmp_path,))
    (tmp_path / TCMALLOC[1]).touch()
    assert preloaded({}) == TCMALLOC[1]
