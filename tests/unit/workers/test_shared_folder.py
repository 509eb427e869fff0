"""Private folders of ranks in shared memory: one for each process.

A folder is removed after the end of its process.
"""

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


def run_process(memory: Path, ending: str) -> Path:
    argv = [sys.executable, "-c", CREATE, str(memory), ending]
    completed = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=False)
    return Path(completed.stdout.strip())


def test_sets_the_variables_of_open_mpi(tmp_path: Path) -> None:
    environ: dict[str, str] = {}
    folder = set_private_folder(environ, tmp_path)
    assert folder is not None
    assert folder.parent == tmp_path
    assert folder.stat().st_mode & 0o777 == 0o700
    assert environ == dict.fromkeys(VARIABLES, str(folder))
    assert set_private_folder({}, tmp_path) != folder


def test_keeps_folders_that_the_user_chose(tmp_path: Path) -> None:
    environ = {VARIABLES[0]: "/chosen"}
    folder = set_private_folder(environ, tmp_path)
    assert environ == {**dict.fromkeys(VARIABLES, str(folder)), VARIABLES[0]: "/chosen"}
    assert set_private_folder(dict.fromkeys(VARIABLES, "/chosen"), tmp_path) is None


def test_sets_nothing_without_a_file_system_in_memory(tmp_path: Path) -> None:
    environ: dict[str, str] = {}
    assert set_private_folder(environ, tmp_path / "none") is None
    assert environ == {}


def test_leaves_no_folder_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    assert set_private_folder({}, tmp_path) is None
    assert list(tmp_path.iterdir()) == []


def test_a_process_removes_its_empty_folder_at_its_end(tmp_path: Path) -> None:
    assert run_process(tmp_path, "ends").parent == tmp_path
    assert list(tmp_path.iterdir()) == []


def test_removes_only_folders_of_ended_processes(tmp_path: Path) -> None:
    killed = run_process(tmp_path, "killed")
    assert (killed / "segment").exists()
    argv = [sys.executable, "-c", CREATE, str(tmp_path), "waits"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as alive:
        assert alive.stdout is not None
        folder = Path(alive.stdout.readline().strip())
        remove_abandoned(tmp_path)
        assert list(tmp_path.iterdir()) == [folder]
    assert list(tmp_path.iterdir()) == []


def test_keeps_links_and_folders_of_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = tmp_path / "memory"
    elsewhere = tmp_path / "elsewhere"
    memory.mkdir()
    elsewhere.mkdir()
    (elsewhere / "file").touch()
    own_link = memory / f"spbench-{os.getuid()}-link"
    own_link.symlink_to(elsewhere)
    (memory / "other").mkdir()
    remove_abandoned(memory)
    assert (elsewhere / "file").exists()
    assert {path.name for path in memory.iterdir()} == {own_link.name, "other"}
    # A folder with the prefix of a user and a different owner.
    other_user = os.getuid() + 1
    foreign = memory / f"spbench-{other_user}-folder"
    foreign.mkdir()
    monkeypatch.setattr(os, "getuid", lambda: other_user)
    remove_abandoned(memory)
    assert foreign.exists()
