"""Cases that the workers are asked about before a launch."""

import asyncio
import os
import re
import sys
import time
from pathlib import Path

import pytest

from places import TESTS
from spbench.engine import checked_cases
from spbench.engine.checked_cases import check_cases
from spbench.errors import UsageError
from spbench.suites.loader import load_text

NETWORK = {"network": "own_networks:UNet", "image_size": 32, "batch_size": 4, "iterations": 1}


def suite_of(*cases, **launch):
    text = ["schema: spbench.suite/1", "name: s", f"launch: {launch}", "cases:"]
    for number, params in enumerate(cases):
        text.append(f"  - {{name: c{number}, benchmark: model.network, params: {params}}}")
    return load_text("\n".join(text).replace("True", "true"), Path("s.yaml"))


async def checked(monkeypatch, suite):
    """What is said while a suite's cases are checked."""
    monkeypatch.chdir(TESTS)
    said = []
    await check_cases(suite.path, suite.cases, os.environ, said.append)
    return said


@pytest.mark.slow
async def test_what_cannot_be_imported_is_told_at_its_line(monkeypatch):
    suite = suite_of(
        NETWORK,
        NETWORK | {"network": "own_networks:Choosing"},
        NETWORK | {"split_size": 9},
    )
    with pytest.raises(UsageError) as told:
        await checked(monkeypatch, suite)
    first, second = str(told.value).splitlines()
    assert re.match(r"s.yaml:6: case c1: network own_networks:Choosing: own_networks.py:\d+", first)
    assert second == (
        "s.yaml:7: case c2: network own_networks:UNet: 9 stages are more than the 6 layers of the "
        "model: take 6 at most"
    )


async def test_cases_of_other_benchmarks_start_no_process(monkeypatch):
    def refuse(*_):
        raise AssertionError("nothing is asked")

    monkeypatch.setattr(checked_cases, "_output", refuse)
    text = "schema: spbench.suite/1\nname: s\ncases: [{name: a, benchmark: halo.exchange}]"
    suite = load_text(text, Path("s.yaml"))
    assert await checked(monkeypatch, suite) == []


@pytest.mark.parametrize(
    ("program", "says"),
    [
        ("#!/bin/sh\necho no torch here >&2; exit 1\n", "(no torch here)"),
        ("#!/bin/sh\ncat > /dev/null; echo nothing\n", "(exit status 0)"),
        (None, "No such file or directory)"),
    ],
)
async def test_where_nobody_answers_the_ranks_find_out(monkeypatch, tmp_path, program, says):
    python = tmp_path / "python"
    if program is not None:
        python.write_text(program)
        python.chmod(0o755)
    (line,) = await checked(monkeypatch, suite_of(NETWORK, python=str(python)))
    assert line.startswith("networks cannot be checked before the launch (")
    assert says in line


async def test_a_checker_that_never_answers_is_told_and_ended(monkeypatch, tmp_path):
    python, pid = tmp_path / "python", tmp_path / "pid"
    python.write_text(f"#!/bin/sh\necho $$ > {pid}; exec sleep 60\n")
    python.chmod(0o755)
    monkeypatch.setattr(checked_cases, "_SILENCE", 0.1)
    monkeypatch.setattr(checked_cases, "_PATIENCE", 0.5)
    started = time.monotonic()
    first, second = await checked(monkeypatch, suite_of(NETWORK, python=str(python)))
    assert first == "importing the networks of 1 case"
    assert "no answer within 0.5 s" in second
    assert time.monotonic() - started < 20
    process = int(pid.read_text())
    while Path(f"/proc/{process}").exists():
        assert time.monotonic() - started < 30


async def test_a_console_that_is_cancelled_leaves_no_checker(monkeypatch, tmp_path):
    python, pid = tmp_path / "python", tmp_path / "pid"
    python.write_text(f"#!/bin/sh\necho $$ > {pid}; exec sleep 60\n")
    python.chmod(0o755)
    checking = asyncio.ensure_future(checked(monkeypatch, suite_of(NETWORK, python=str(python))))
    started = time.monotonic()
    while not (pid.exists() and pid.read_text().endswith("\n")):
        await asyncio.sleep(0.01)
        assert time.monotonic() - started < 30
    checking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await checking
    assert not Path(f"/proc/{int(pid.read_text())}").exists()


def test_the_checker_reads_cases_and_marks_its_answer(monkeypatch, capsys):
    from io import StringIO

    from spbench_workers import checking

    monkeypatch.setattr(sys, "stdin", StringIO("[]"))
    checking.main()
    assert capsys.readouterr().out == checked_cases._MARK + "[]\n"
