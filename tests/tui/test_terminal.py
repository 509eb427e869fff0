"""The console in a real terminal, driven by tmux."""

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

GREYS = {16, 59, 102, 145, 188, 231, *range(232, 256)}
"""The colours of 256 that have no hue."""


def list_documented_commands():
    """Return the commands of ``text`` blocks, which need a terminal or do not end."""
    texts = [page.read_text() for page in PAGES]
    blocks = [
        block for text in texts for block in re.findall(r"```text\n(.*?)```", text, re.DOTALL)
    ]
    return sorted({line for block in blocks for line in block.splitlines()})


@pytest.fixture
def tmux(tmp_path):
    terminals = []

    def open_terminal(command, width=120, height=40, **env):
        terminals.append(
            Tmux(tmp_path, width, height, [str(argument) for argument in command], **env)
        )
        return terminals[-1]

    yield open_terminal
    for terminal in terminals:
        terminal.close()


def test_console_reacts_to_keys_in_a_terminal(tmux, tmp_path):
    terminal = tmux([SPBENCH, "tui", SUITES / "smoke.yaml", "--home", tmp_path])
    screen = terminal.wait_for_text("link.pingpong")
    assert "smoke.yaml" in screen
    terminal.press("F1")
    terminal.wait_for_text("The row above")
    terminal.press("Escape")
    terminal.wait_for_text("The row above", is_absent=True)
    terminal.press("C-p")
    terminal.wait_for_text("Search for commands")
    terminal.press("theme: spbench-l", "Enter")
    terminal.wait_for_text("Search for commands", is_absent=True)
    # A key that comes while the palette closes is lost.
    wait_for_text(tmp_path / "console.yaml", "spbench-light")
    terminal.press("C-q")
    terminal.wait_for_text("left with 0")


def wait_for_text(path, text):
    end_time = time.monotonic() + 30
    while not path.exists() or text not in path.read_text():
        assert time.monotonic() < end_time, f"{text!r} is not in {path}"
        time.sleep(0.05)


@pytest.mark.parametrize("line", list_documented_commands())
def test_documented_commands_open_the_console(tmux, tmp_path, line, monkeypatch):
    monkeypatch.chdir(ROOT)
    name, *arguments = shlex.split(line)
    assert name == "spbench"
    terminal = tmux([SPBENCH, *arguments], SPBENCH_HOME=str(tmp_path))
    if arguments[0] == "serve":
        terminal.wait_for_text("http://127.0.0.1:8000/")
        terminal.wait_for_text("/?token=")
        terminal.press("C-c")
    else:
        terminal.wait_for_text("Quit")
        terminal.press("C-q")
    terminal.wait_for_text("left with 0")


@pytest.mark.long
def test_demo_plays_without_mpi_and_colour(tmux, tmp_path):
    terminal = tmux([SPBENCH, "tui", "--demo", "--home", tmp_path], 80, 24, NO_COLOR="1")
    terminal.wait_for_text("sim01")
    terminal.press("+", "+")  # from 1x to 5x: otherwise it plays for 24 s
    terminal.wait_for_text("✓ passed")
    colours = {int(number) for number in re.findall(r"38;5;(\d+)", terminal.read_screen("-e"))}
    assert colours
    assert colours <= GREYS
    terminal.press("C-q")
    terminal.wait_for_text("left with 0")


def test_recorded_run_replays_at_full_speed_to_its_end(tmux, tmp_path):
    runs = tmp_path / "home" / "runs"
    runs.mkdir(parents=True)
    demo = Path(__import__("spbench").__file__).parent / "demo"
    shutil.copytree(demo, runs / "20260101-000000-demo-0000")
    home = ("--home", tmp_path / "home")
    terminal = tmux([SPBENCH, "replay", "last", "--speed", "max", *home], 200, 60)
    terminal.wait_for_text("! fault found")
    assert "damaged" in terminal.wait_for_text("largest error")
    terminal.press("C-q")
    terminal.wait_for_text("left with 0")


def test_closing_the_terminal_ends_only_the_console(tmux, tmp_path):
    """Closing a terminal ends the console, and nothing else."""
    terminal = tmux([SPBENCH, "tui", "--home", tmp_path])
    terminal.wait_for_text("Suites")
    terminal.close()
    assert not (tmp_path / "console.yaml").exists()
