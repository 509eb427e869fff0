"""Commands that lack what a shell gives: standard streams (closed by ``>&-``), or HOME."""

import os
import pwd
import subprocess
import sys

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


def test_a_user_without_a_home_has_the_folder_of_temporary_files(monkeypatch):
    monkeypatch.delenv("HOME")
    monkeypatch.setattr("os.path.expanduser", lambda path: "/no/such/home")
    _name_home()
    assert os.environ["HOME"] == "/tmp"


def test_a_home_that_is_set_stays(monkeypatch):
    monkeypatch.setenv("HOME", "/somewhere")
    _name_home()
    assert os.environ["HOME"] == "/somewhere"
