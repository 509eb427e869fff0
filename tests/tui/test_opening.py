"""Tests of the line before the TUI opens, and of plain command lines."""

import os
import pty
import re
import select
import subprocess
import sys

import pytest
import typer
from benchmarks.synthetic_run import write_recorded

from spbench.cli import tui_commands
from spbench.cli.app import app, run_command_line
from spbench.cli.error_reporting import run_reporting_errors
from spbench.cli.opening_line import OPENING_LINE, OpeningLine
from spbench.cli.tui_opening import find_plain_command
from support.paths import ROOT

ENTERS_SCREEN = "\x1b[?1049h"
LEAVES_SCREEN = "\x1b[?1049l"
TUI_WITH_IMPORTS = """
import os, sys

class ImportPrinter:
    def find_spec(self, name, path=None, target=None):
        if name in ("typer", "textual", "pydantic", "yaml"):
            os.write(1, f"<import {name}>".encode())

sys.meta_path.insert(0, ImportPrinter())
from spbench.__main__ import main
main()
"""
"""A TUI that prints the name of a large library when it is first imported."""
IMPORT = re.compile(r"<import \w+>")


def run_in_terminal(*arguments, **environ):
    """Return the output of a TUI in a terminal, until it ends."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", TUI_WITH_IMPORTS, *arguments],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        cwd=ROOT,
        env={**os.environ, "TERM": "xterm-256color", **environ},
    )
    os.close(slave)
    output = b""
    try:
        while process.poll() is None or select.select([master], [], [], 0)[0]:
            if select.select([master], [], [], 0.05)[0]:
                output += os.read(master, 1 << 16)
    except OSError:  # on Linux, the end of the output
        pass
    finally:
        os.close(master)
        process.wait()
    return output.decode(errors="replace")


def render_lines(output):
    """Return the lines that a terminal shows after output without escape sequences."""
    lines = []
    for line in output.split("\n"):
        shown = ""
        for text in line.split("\r"):
            shown = text + shown[len(text) :]
        lines.append(shown.rstrip())
    return lines


@pytest.mark.slow
def test_line_comes_before_large_imports_and_goes_before_the_screen(tmp_path):
    output = run_in_terminal("tui", "--home", str(tmp_path), TEXTUAL_PRESS="ctrl+q")
    before, _, screen = output.partition(ENTERS_SCREEN)
    assert before.startswith(OPENING_LINE)
    assert "<import textual>" in before
    assert "<import typer>" not in output
    assert render_lines(IMPORT.sub("", before)) == [""]
    assert OPENING_LINE not in screen
    assert LEAVES_SCREEN in screen


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("tui", "--nonsense"), "--nonsense"),
        (("tui", "shipped:nonsense"), "nonsense"),
        (("replay", "nonsense"), "nonsense"),
    ],
)
def test_error_before_the_tui_replaces_the_line(tmp_path, arguments, message):
    output = run_in_terminal(*arguments, "--home", str(tmp_path))
    assert output.startswith(OPENING_LINE)
    lines = render_lines(IMPORT.sub("", output))
    assert message in lines[0]
    assert lines[0].startswith("spbench: error: ")
    assert not any("opening" in line for line in lines)


@pytest.mark.parametrize(
    ("arguments", "environ", "shown"),
    [
        (["tui"], {}, True),
        (["tui", "--demo"], {}, True),
        (["replay", "last"], {}, True),
        (["tui", "--help"], {}, False),
        (["replay", "-h"], {}, False),
        (["replay", "--headless"], {}, False),
        (["tui"], {"TERM": "dumb"}, False),
        (["tui"], {"TEXTUAL_DRIVER": "a browser's"}, False),
        (["serve"], {}, False),
        (["run", "tui"], {}, False),
        ([], {}, False),
    ],
)
def test_line_is_shown_only_if_a_terminal_opens(monkeypatch, capsys, arguments, environ, shown):
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.delenv("TEXTUAL_DRIVER", raising=False)
    for name, value in ({"TERM": "xterm"} | environ).items():
        monkeypatch.setenv(name, value)
    line = OpeningLine()
    line.show(arguments)
    output = capsys.readouterr().out
    assert output == (f"{OPENING_LINE}\r" if shown else "")
    line.erase()
    assert render_lines(output + capsys.readouterr().out) == [""]


def test_line_is_not_shown_without_a_terminal(capsys):
    OpeningLine().show(["tui"])
    assert capsys.readouterr().out == ""


class TuiDouble:
    """A function that would open the TUI."""

    def __init__(self):
        self.opened = []

    def __call__(self, **options):
        self.opened.append(options)
        return 0


@pytest.fixture
def open_tui(monkeypatch):
    double = TuiDouble()
    monkeypatch.setenv("TEXTUAL_DRIVER", "a browser's")  # pytest has no terminal
    full_app = typer.Typer(add_completion=False)
    tui_commands.register(full_app, double, lambda *args, **options: None)
    monkeypatch.setattr(app, "registered_commands", full_app.registered_commands)
    return double


PLAIN = (
    "tui",
    "tui suites/halo.yaml",
    "tui a.yaml --home h --readonly",
    "tui --demo",
    "tui --demo a.yaml",
    "tui a.yaml --hostfile f.hosts --launcher openmpi",
    "tui --hosts node[01-08]:4,other --exclude-hosts node03",
    "replay",
    "replay last --speed max",
    "replay --speed 2 last",
    "replay unknown",
    "replay last --speed nonsense",
)


@pytest.mark.parametrize("line", PLAIN)
def test_plain_arguments_open_what_the_option_parser_opens(open_tui, capsys, line, tmp_path):
    write_recorded(tmp_path / "runs" / "20260101-000000-halo-0000", ranks=2, events=100)
    arguments = line.split()
    if "--home" not in arguments:
        arguments += ["--home", str(tmp_path)]
    expected = run_command_line(arguments), capsys.readouterr(), list(open_tui.opened)
    open_tui.opened.clear()
    command = find_plain_command(arguments, open_tui)
    assert command is not None
    assert (run_reporting_errors(command), capsys.readouterr(), open_tui.opened) == expected


@pytest.mark.parametrize(
    "line",
    [
        "tui a.yaml b.yaml",
        "tui --demo --demo",
        "tui --home",
        "tui --home --demo",
        "tui --home=h",
        "tui -- a.yaml",
        "tui --help",
        "tui --port-range 5000-5010",
        "tui shipped:smoke",
        "replay --demo",
        "replay --headless",
        "run a.yaml",
        "",
    ],
)
def test_other_arguments_need_the_option_parser(open_tui, line):
    assert find_plain_command(line.split(), open_tui) is None
