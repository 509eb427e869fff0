"""Tests of ``spbench completion --install`` in a temporary home."""

import os
import shutil
import stat
import subprocess

import pytest

from spbench.cli.completion import MARK, completion_files

RC = {"bash": ".bashrc", "zsh": ".zshrc"}


@pytest.fixture
def user_home(tmp_path, monkeypatch):
    home = tmp_path / "a user"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "ZDOTDIR"):
        monkeypatch.delenv(name, raising=False)
    return home


@pytest.mark.parametrize("shell", RC)
def test_install_writes_a_script_and_one_configuration_line(spbench, user_home, shell):
    configuration = user_home / RC[shell]
    configuration.write_text("alias ll='ls -l'")  # without an end of line
    done = spbench("completion", shell, "--install")
    script = user_home / ".local" / "share" / "spbench" / f"completion.{shell}"
    assert (done.status, done.err) == (0, "")
    assert done.out.splitlines() == [
        f"wrote {script}",
        f"added a line to {configuration}",
        f"open a new {shell} to use it",
    ]
    assert script.read_text() == spbench("completion", shell).out
    first, added = configuration.read_text().splitlines()
    assert first == "alias ll='ls -l'"
    assert added.endswith(MARK)


@pytest.mark.parametrize("shell", RC)
def test_second_installation_changes_nothing(spbench, user_home, shell, messages):
    spbench("completion", shell, "--install")
    before = (user_home / RC[shell]).read_text()
    done = spbench("completion", shell, "--install")
    messages.check(done.out)
    assert (user_home / RC[shell]).read_text() == before


def test_fish_needs_no_configuration_line(spbench, user_home):
    done = spbench("completion", "fish", "--install")
    script = user_home / ".config" / "fish" / "completions" / "spbench.fish"
    assert done.out.splitlines()[0] == f"wrote {script}"
    assert script.read_text() == spbench("completion", "fish", "--show").out
    assert sorted(path.name for path in user_home.iterdir()) == [".config"]


def test_linked_configuration_keeps_link_and_mode(spbench, user_home):
    dotfiles = user_home / "dotfiles"
    dotfiles.write_text("# mine\n")
    dotfiles.chmod(0o600)
    (user_home / ".bashrc").symlink_to(dotfiles)
    assert spbench("completion", "bash", "--install").status == 0
    assert (user_home / ".bashrc").is_symlink()
    assert dotfiles.read_text().startswith("# mine\n[ ! -r ")
    assert stat.S_IMODE(dotfiles.stat().st_mode) == 0o600


def test_bash_completes_after_installation(spbench, user_home):
    spbench("completion", "bash", "--install")
    command = ". ~/.bashrc && complete -p spbench"
    done = subprocess.run(
        ["bash", "--norc", "-c", command],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ,
    )
    assert "_spbench_completion" in done.stdout


@pytest.mark.skipif(not shutil.which("zsh"), reason="zsh is not installed")
def test_zsh_completes_after_installation(spbench, user_home):
    spbench("completion", "zsh", "--install")
    done = subprocess.run(
        ["zsh", "-i", "-c", "echo $_comps[spbench]"], capture_output=True, text=True, check=True
    )
    assert "_spbench_completion" in done.stdout


def test_folders_from_shell_variables_are_used():
    environ = {"HOME": "/h", "XDG_CONFIG_HOME": "/c", "XDG_DATA_HOME": "/d", "ZDOTDIR": "/z"}
    zsh = completion_files("zsh", environ)
    assert [str(zsh.script), str(zsh.configuration)] == ["/d/spbench/completion.zsh", "/z/.zshrc"]
    assert str(completion_files("fish", environ).script) == "/c/fish/completions/spbench.fish"


@pytest.mark.parametrize(
    ("variable", "mark"), [("/bin/zsh", "#compdef"), ("/bin/tcsh", "COMPREPLY"), ("", "COMPREPLY")]
)
def test_default_shell_is_that_of_the_user(spbench, monkeypatch, variable, mark):
    monkeypatch.setenv("SHELL", variable)
    assert mark in spbench("completion").out


def test_unwritable_configuration_is_reported(spbench, user_home):
    (user_home / ".bashrc").mkdir()
    done = spbench("completion", "bash", "--install")
    assert done.status == 4
    assert f"cannot write {user_home}/.bashrc" in done.error_line


def test_rejects_install_with_show(spbench):
    assert "give one of them" in spbench("completion", "--install", "--show").error_line
