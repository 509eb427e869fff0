"""Tests of the allocator that ranks preload."""

import pytest

from spbench.errors import MissingError, UsageError
from spbench.launch import allocator
from spbench.launch.allocator import TCMALLOC, preload_allocator
from spbench.launch.launcher import RankBlock
from spbench.suites.settings import LaunchSettings


@pytest.fixture
def tcmalloc_env(tmp_path):
    """Return the environment of a machine with tcmalloc."""
    (tmp_path / TCMALLOC[0]).touch()
    return {"LD_LIBRARY_PATH": f"/nonexistent:{tmp_path}"}


def find_preload(environ, launcher="openmpi", placement=(), is_local=True, **keys):
    settings = preload_allocator(
        LaunchSettings(**keys), launcher, placement, environ, is_local_job=is_local
    )
    return settings.env.get("LD_PRELOAD")


def test_auto_preloads_installed_tcmalloc_for_local_ranks(tcmalloc_env):
    assert find_preload(tcmalloc_env) == TCMALLOC[0]
    assert (
        find_preload(tcmalloc_env, placement=[RankBlock("localhost", 2)], is_local=False)
        == TCMALLOC[0]
    )
    assert find_preload({}) is None


@pytest.mark.parametrize(
    "options",
    [
        {"is_local": False},
        {"placement": [RankBlock("localhost", 1), RankBlock("node02", 1)]},
        {"launcher": "mpirun_rsh"},
        {"container": "apptainer exec image.sif"},
        {"allocator": "system"},
    ],
)
def test_auto_keeps_the_system_allocator_otherwise(tcmalloc_env, options):
    assert find_preload(tcmalloc_env, **options) is None


def test_preload_of_the_user_is_kept(tcmalloc_env, messages):
    assert find_preload(tcmalloc_env, env={"LD_PRELOAD": "mine.so"}) == "mine.so"
    assert find_preload(tcmalloc_env | {"LD_PRELOAD": "mine.so"}) is None
    with messages.raises(UsageError):
        find_preload(tcmalloc_env, allocator="tcmalloc", env={"LD_PRELOAD": "mine.so"})


def test_requested_tcmalloc_is_preloaded_on_other_hosts(tcmalloc_env, messages):
    assert find_preload(tcmalloc_env, allocator="tcmalloc") == TCMALLOC[0]
    assert find_preload({}, allocator="tcmalloc", placement=[RankBlock("node02", 1)]) == TCMALLOC[0]
    with messages.raises(MissingError):
        find_preload({}, allocator="tcmalloc")


def test_system_folders_are_searched(tmp_path, monkeypatch):
    monkeypatch.setattr(allocator, "FOLDERS", (tmp_path,))
    (tmp_path / TCMALLOC[1]).touch()
    assert find_preload({}) == TCMALLOC[1]
