"""Commands that lack what a shell gives: standard streams (closed by ``>&-``), or HOME."""

import os
import pwd
import subprocess
import sys
from pathlib import Path

import pytest

from running import python_path
from spbench.__main__ import _name_home
from unit.events import recorded, whole_run


def status(words, closed, *, cwd):
    """The exit status of a command for which the shell has closed these streams."""
    shell = f'exec "$@" {closed}'
    env = os.environ | {"PYTHONPATH": python_path()}
    command = ["sh", "-c", shell, "sh", sys.executable, "-m", "spbench", *words]
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, check=False)
    return done.returncode, (done.stdout + done.stderr).decode()


@pytest.mark.slow
@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&- <&-"])
def test_a_command_ends_as_with_its_streams(tmp_path, closed):
    folder = recorded(tmp_path / "home", whole_run(), verdict="passed")
    words = ["results", "export", "--home", "home", "--output", "run.csv"]
    assert status(words, closed, cwd=tmp_path) == (0, "")
    assert folder.id in (tmp_path / "run.csv").read_text()


@pytest.mark.slow
def test_a_mistake_keeps_its_exit_code_where_nobody_can_be_told(tmp_path):
    assert status(["results", "show", "no-such-run"], "2>&-", cwd=tmp_path) == (2, "")


@pytest.mark.parametrize("missing", [None, ""])
def test_a_service_without_home_has_the_users(monkeypatch, missing):
    monkeypatch.delenv("HOME")
    if missing is not None:
        monkeypatch.setenv("HOME", missing)
    _name_home()
    assert os.environ["HOME"] == pwd.getpwuid(os.getuid()).pw_dir


@pytest.fixture
def no_home(monkeypatch, tmp_path):
    """A user whom the system gives no home."""
    monkeypatch.setenv("HOME", "")
    monkeypatch.setenv("SPBENCH_PRIVATE_HOME", "")
    monkeypatch.setattr("os.path.expanduser", lambda path: "/no/such/home")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def test_a_user_without_a_home_has_a_new_private_folder(no_home, tmp_path):
    _name_home()
    home = Path(os.environ["HOME"])
    assert home.parent == tmp_path
    assert (home.stat().st_mode & 0o777, home.stat().st_uid) == (0o700, os.getuid())
    assert list(home.iterdir()) == []


def test_a_private_folder_that_was_inherited_is_not_used(no_home):
    _name_home()
    first = os.environ["HOME"]
    _name_home()
    assert os.environ["HOME"] != first, "it is removed with the process that made it"


def test_without_a_folder_of_temporary_files_the_home_is_none(no_home, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", "/no/such/folder")
    _name_home()
    assert os.environ["HOME"] == "/nonexistent"


HOMELESS = """
import os
os.path.expanduser = lambda path: "/no/such/home"
from spbench.__main__ import _name_home
_name_home()
print(os.environ["HOME"])
"""


def test_a_private_folder_is_removed_at_the_end(tmp_path):
    env = {"PYTHONPATH": python_path(), "TMPDIR": str(tmp_path)}
    words = [sys.executable, "-c", HOMELESS]
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=True)
    assert Path(done.stdout).parent == tmp_path
    assert list(tmp_path.iterdir()) == []


def test_a_home_that_is_set_stays(monkeypatch):
    monkeypatch.setenv("HOME", "/somewhere")
    _name_home()
    assert os.environ["HOME"] == "/somewhere"
