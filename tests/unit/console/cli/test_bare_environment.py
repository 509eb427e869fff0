"""Tests of commands without standard streams (closed by ``>&-``) or without HOME."""

import os
import pwd
import subprocess
import sys
from pathlib import Path

import pytest

from spbench.__main__ import _name_home
from support.runs import build_python_path
from support.sample_events import make_complete_run, record_run


def run_with_closed_streams(args, closed, *, cwd):
    """Return exit status and output of a command; the shell closes these streams."""
    shell = f'exec "$@" {closed}'
    env = os.environ | {"PYTHONPATH": build_python_path()}
    command = ["sh", "-c", shell, "sh", sys.executable, "-m", "spbench", *args]
    process = subprocess.run(command, cwd=cwd, env=env, capture_output=True, check=False)
    return process.returncode, (process.stdout + process.stderr).decode()


@pytest.mark.slow
@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&- <&-"])
def test_closed_streams_do_not_change_the_exit_code(tmp_path, closed):
    folder = record_run(tmp_path / "home", make_complete_run(), verdict="passed")
    args = ["results", "export", "--home", "home", "--output", "run.csv"]
    assert run_with_closed_streams(args, closed, cwd=tmp_path) == (0, "")
    assert folder.id in (tmp_path / "run.csv").read_text()


@pytest.mark.slow
def test_error_keeps_its_exit_code_without_stderr(tmp_path):
    assert run_with_closed_streams(["results", "show", "no-such-run"], "2>&-", cwd=tmp_path) == (
        2,
        "",
    )


@pytest.mark.parametrize("missing", [None, ""])
def test_missing_home_is_read_from_the_user_database(monkeypatch, missing):
    monkeypatch.delenv("HOME")
    if missing is not None:
        monkeypatch.setenv("HOME", missing)
    _name_home()
    assert os.environ["HOME"] == pwd.getpwuid(os.getuid()).pw_dir


@pytest.fixture
def no_home(monkeypatch, tmp_path):
    """Simulate a user without a home."""
    monkeypatch.setenv("HOME", "")
    monkeypatch.setenv("SPBENCH_PRIVATE_HOME", "")
    monkeypatch.setattr("os.path.expanduser", lambda path: "/no/such/home")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def test_user_without_a_home_gets_a_private_folder(no_home, tmp_path):
    _name_home()
    home = Path(os.environ["HOME"])
    assert home.parent == tmp_path
    assert (home.stat().st_mode & 0o777, home.stat().st_uid) == (0o700, os.getuid())
    assert list(home.iterdir()) == []


def test_inherited_private_folder_is_not_reused(no_home):
    _name_home()
    first = os.environ["HOME"]
    _name_home()
    assert os.environ["HOME"] != first, "it is removed with the process that made it"


def test_home_is_nonexistent_without_a_temporary_folder(no_home, monkeypatch):
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


def test_private_folder_is_removed_at_exit(tmp_path):
    env = {"PYTHONPATH": build_python_path(), "TMPDIR": str(tmp_path)}
    args = [sys.executable, "-c", HOMELESS]
    process = subprocess.run(args, env=env, capture_output=True, text=True, check=True)
    assert Path(process.stdout).parent == tmp_path
    assert list(tmp_path.iterdir()) == []


def test_existing_home_is_kept(monkeypatch):
    monkeypatch.setenv("HOME", "/somewhere")
    _name_home()
    assert os.environ["HOME"] == "/somewhere"
