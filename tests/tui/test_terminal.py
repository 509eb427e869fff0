"""The console in a real terminal: tmux sends the keys and reads the screen back."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
import time
from pathlib import Path

import pytest

from support.paths import DOCS, ROOT, SUITES
from support.tui.tmux import Tmux

pytestmark = [
    pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed"),
]
SPBENCH = Path(sys.executable).parent / "spbench"


PAGES = (ROOT / "README.md", DOCS / "console.md")


def commands_of_the_docs():
    """Each command of the pages' ``text`` blocks: they need a terminal, or do not end."""
    texts = [page.read_text() for page in PAGES]
    blocks = [
        block for text in texts for block in re.findall(r"```text\n(.*?)```", text, re.DOTALL)
    ]
    return sorted({line for block in blocks for line in block.splitlines()})


@pytest.fixture
def tmux(tmp_path):
    opened = []

    def open_(words, width=120, height=40, **env):
        opened.append(Tmux(tmp_path, width, height, [str(word) for word in words], **env))
        return opened[-1]

    yield open_
    for one in opened:
        one.close()


def test_keys_reach_the_console_and_its_screen_can_be_read_back(tmux, tmp_path):
    terminal = tmux([SPBENCH, "tui", SUITES / "smoke.yaml", "--home", tmp_path])
    screen = terminal.wait_for("link.pingpong")
    assert "smoke.yaml" in screen
    terminal.press("F1")
    terminal.wait_for("The row above")
    terminal.press("Escape")
    terminal.wait_for("The row above", gone=True)
    terminal.press("C-p")
    terminal.wait_for("Search for commands")
    terminal.press("theme: spbench-l", "Enter")
    terminal.wait_for("Search for commands", gone=True)
    # A key that comes while the palette closes is lost.
    wait_for_text(tmp_path / "console.yaml", "spbench-light")
    terminal.press("C-q")
    terminal.wait_for("left with 0")


def wait_for_text(path, text):
    ends = time.monotonic() + 30
    while not path.exists() or text not in path.read_text():
        assert time.monotonic() < ends, f"{text!r} is not in {path}"
        time.sleep(0.05)


@pytest.mark.parametrize("line", commands_of_the_docs())
def test_the_commands_of_the_docs_open_the_console(tmux, tmp_path, line, monkeypatch):
    monkeypatch.chdir(ROOT)
    name, *words = shlex.split(line)
    assert name == "spbench"
    terminal = tmux([SPBENCH, *words], SPBENCH_HOME=str(tmp_path))
    if words[0] == "serve":
        terminal.wait_for("http://127.0.0.1:8000/")
        terminal.wait_for("/?token=")
        terminal.press("C-c")
    else:
        terminal.wait_for("Palette")
        terminal.press("C-q")
    terminal.wait_for("left with 0")


@pytest.mark.long
def test_the_demo_plays_without_mpi_and_needs_no_colour(tmux, tmp_path):
    terminal = tmux([SPBENCH, "tui", "--demo", "--home", tmp_path], 80, 24, NO_COLOR="1")
    terminal.wait_for("sim01")
    terminal.press("+", "+")  # from 1x to 5x: it is played for 24 s else
    terminal.wait_for("✓ passed")
    coloured = [word for word in terminal.screen("-e").split("\x1b[") if word.startswith("38;")]
    assert coloured == [] or all("m" in word for word in coloured)
    terminal.press("q")
    terminal.wait_for("left with 0")


def test_a_recorded_run_is_replayed_at_full_speed_to_its_verdict(tmux, tmp_path):
    runs = tmp_path / "home" / "runs"
    runs.mkdir(parents=True)
    demo = Path(__import__("spbench").__file__).parent / "demo"
    shutil.copytree(demo, runs / "20260101-000000-demo-0000")
    home = ("--home", tmp_path / "home")
    terminal = tmux([SPBENCH, "replay", "last", "--speed", "max", *home], 200, 60)
    screen = terminal.wait_for("largest error")
    assert "failed 7/9" in screen
    assert "damaged" in screen
    terminal.press("q")
    terminal.wait_for("left with 0")


def test_a_killed_console_leaves_the_run_alone(tmux, tmp_path):
    """A terminal that is closed takes the console with it, and nothing else."""
    terminal = tmux([SPBENCH, "tui", "--home", tmp_path])
    terminal.wait_for("Suites")
    terminal.close()
    assert not (tmp_path / "console.yaml").exists()
