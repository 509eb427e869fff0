"""Private folders of ranks in shared memory: one for each process, removed when it is gone."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from spbench_workers.shared_memory import VARIABLES, remove_abandoned, set_private_folder

CREATE = """
import os, sys
from pathlib import Path
from spbench_workers.shared_memory import set_private_folder
folder = set_private_folder({}, Path(sys.argv[1]))
print(folder, flush=True)
if sys.argv[2] == "killed":
    (folder / "segment").write_bytes(bytes(4096))
    os.kill(os.getpid(), 9)
if sys.argv[2] == "waits":
    sys.stdin.read()
"""


def created(memory: Path, how: str) -> Path:
    argv = [sys.executable, "-c", CREATE, str(memory), how]
    done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=False)
    return Path(done.stdout.strip())


def test_the_folder_is_named_to_open_mpi(tmp_path: Path) -> None:
    environ: dict[str, str] = {}
    folder = set_private_folder(environ, tmp_path)
    assert folder is not None
    assert folder.parent == tmp_path
    assert folder.stat().st_mode & 0o777 == 0o700
    assert environ == dict.fromkeys(VARIABLES, str(folder))
    assert set_private_folder({}, tmp_path) != folder


def test_folders_of_users_choice_are_kept(tmp_path: Path) -> None:
    environ = {VARIABLES[0]: "/chosen"}
    folder = set_private_folder(environ, tmp_path)
    assert environ == {**dict.fromkeys(VARIABLES, str(folder)), VARIABLES[0]: "/chosen"}
    assert set_private_folder(dict.fromkeys(VARIABLES, "/chosen"), tmp_path) is None


def test_without_a_file_system_in_memory_open_mpi_takes_its_default(tmp_path: Path) -> None:
    environ: dict[str, str] = {}
    assert set_private_folder(environ, tmp_path / "none") is None
    assert environ == {}


def test_without_locks_no_folder_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    assert set_private_folder({}, tmp_path) is None
    assert list(tmp_path.iterdir()) == []


def test_a_process_removes_its_empty_folder_at_its_end(tmp_path: Path) -> None:
    assert created(tmp_path, "ends").parent == tmp_path
    assert list(tmp_path.iterdir()) == []


def test_folders_of_the_dead_are_removed_and_those_of_the_living_stay(tmp_path: Path) -> None:
    killed = created(tmp_path, "killed")
    assert (killed / "segment").exists()
    argv = [sys.executable, "-c", CREATE, str(tmp_path), "waits"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as alive:
        assert alive.stdout is not None
        folder = Path(alive.stdout.readline().strip())
        remove_abandoned(tmp_path)
        assert list(tmp_path.iterdir()) == [folder]
    assert list(tmp_path.iterdir()) == []


def test_links_and_folders_of_others_are_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = tmp_path / "memory"
    elsewhere = tmp_path / "elsewhere"
    memory.mkdir()
    elsewhere.mkdir()
    (elsewhere / "file").touch()
    mine = memory / f"spbench-{os.getuid()}-link"
    mine.symlink_to(elsewhere)
    (memory / "other").mkdir()
    remove_abandoned(memory)
    assert (elsewhere / "file").exists()
    assert {path.name for path in memory.iterdir()} == {mine.name, "other"}
    # A folder with the prefix of a user, but of another owner.
    other = os.getuid() + 1
    foreign = memory / f"spbench-{other}-folder"
    foreign.mkdir()
    monkeypatch.setattr(os, "getuid", lambda: other)
    remove_abandoned(memory)
    assert foreign.exists()
