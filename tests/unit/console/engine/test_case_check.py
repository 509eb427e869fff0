"""Cases that the workers check before a launch."""

import asyncio
import json
import os
import re
import sys
import time
from pathlib import Path
from unittest.mock import Mock

import pytest

from spbench.engine import case_check
from spbench.engine.case_check import check_cases
from spbench.errors import SuiteError
from spbench.suites.loader import load_suite_text
from spbench.suites.yaml_nodes import parse_yaml
from support.paths import TESTS

NETWORK = {
    "network": "support.networks.own_networks:UNet",
    "image_size": 32,
    "batch_size": 4,
    "iterations": 1,
}


def build_suite(*cases, **launch):
    lines = ["schema: spbench.suite/1", "name: s", f"launch: {launch}", "cases:"]
    for number, params in enumerate(cases):
        lines.append(f"  - {{name: c{number}, benchmark: model.network, params: {params}}}")
    return load_suite_text("\n".join(lines).replace("True", "true"), Path("s.yaml"))


async def run_check(monkeypatch, suite, **times):
    """Check the cases of a suite and return all messages."""
    monkeypatch.chdir(TESTS)
    messages = []
    messages += await check_cases(suite, suite.cases, os.environ, messages.append, **times)
    return messages


@pytest.mark.slow
async def test_reports_import_errors_at_their_lines(monkeypatch, messages):
    suite = build_suite(
        NETWORK,
        NETWORK | {"network": "support.networks.own_networks:ValueBranch"},
        NETWORK | {"split_size": 9},
    )
    with pytest.raises(SuiteError) as caught:
        await run_check(monkeypatch, suite)
    first, second = caught.value.diagnostics
    columns = [
        line.index("'support.networks.own_networks:") + 1 for line in suite.text.splitlines()[5:]
    ]
    assert [(diagnostic.line, diagnostic.column) for diagnostic in (first, second)] == [
        (6, columns[0]),
        (7, columns[1]),
    ]
    assert re.match(
        r"case c1: network support.networks.own_networks:ValueBranch: "
        r"support/networks/own_networks.py:\d+",
        first.message,
    )
    messages.check(second.message)


@pytest.mark.slow
async def test_misspelled_class_in_a_matrix_has_a_suggestion(monkeypatch):
    text = (
        "schema: spbench.suite/1\nname: s\ncases:\n  - name: a\n    benchmark: model.network\n"
        "    params: {image_size: 32}\n    matrix: {network: "
        "['support.networks.own_networks:UNet', 'support.networks.own_networks:Unet']}\n"
    )
    with pytest.raises(SuiteError) as caught:
        await run_check(monkeypatch, load_suite_text(text, Path("s.yaml")))
    (error,) = caught.value.diagnostics
    assert (error.line, error.column) == (7, 62)
    assert error.message.endswith("did you mean UNet?")


@pytest.fixture
def missing_modules(tmp_path, monkeypatch):
    """Return a suite of networks with modules that are misspelt or not installed."""
    (tmp_path / "mynets.py").write_text("import nowhere_to_be_found\n")
    text = "schema: spbench.suite/1\nname: s\ncases:\n"
    for name, module in (("inner", "mynets"), ("outer", "zoolander"), ("misspelt", "mynet")):
        params = f"{{network: '{module}:Net', image_size: 32}}"
        text += f"  - {{name: {name}, benchmark: model.network, params: {params}}}\n"
    monkeypatch.chdir(tmp_path)
    return load_suite_text(text, Path("s.yaml"))


@pytest.mark.slow
async def test_missing_module_is_an_error_only_on_this_machine(missing_modules, messages):
    suite = missing_modules
    with pytest.raises(SuiteError) as caught:
        await check_cases(suite, suite.cases, os.environ)
    positions = [(error.line, error.column) for error in caught.value.diagnostics]
    assert positions == [(4, 63), (5, 63), (6, 66)]
    with pytest.raises(SuiteError) as caught:
        await check_cases(suite, suite.cases, os.environ, on_other_hosts=True)
    (error,) = caught.value.diagnostics
    assert error.line == 6
    messages.check(error.message)
    for message in await check_cases(suite, suite.cases[:2], os.environ, on_other_hosts=True):
        messages.check(message)


async def test_parses_the_suite_once_for_all_missing_modules(missing_modules, monkeypatch):
    async def answer(*_):
        reasons = [{"missing_module": "no module"}] * len(missing_modules.cases)
        return case_check._ANSWER_MARKER + json.dumps(reasons), ""

    monkeypatch.setattr(case_check, "_run_program", answer)
    parse = Mock(wraps=parse_yaml)
    monkeypatch.setattr(case_check, "parse_yaml", parse)
    messages = await check_cases(
        missing_modules, missing_modules.cases, os.environ, on_other_hosts=True
    )
    assert len(messages) == 3
    assert parse.call_count == 1


async def test_cases_of_other_benchmarks_start_no_process(monkeypatch):
    def refuse(*_):
        raise AssertionError("nothing is asked")

    monkeypatch.setattr(case_check, "_run_program", refuse)
    text = "schema: spbench.suite/1\nname: s\ncases: [{name: a, benchmark: halo.exchange}]"
    suite = load_suite_text(text, Path("s.yaml"))
    assert await run_check(monkeypatch, suite) == []


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("#!/bin/sh\necho no disk here >&2; exit 1\n", "no disk here"),
        (
            "#!/bin/sh\necho \"ModuleNotFoundError: No module named 'torch'\" >&2; exit 1\n",
            "the workers' Python PYTHON has no torch",
        ),
        ("#!/bin/sh\ncat > /dev/null; echo nothing\n", "PYTHON ended with exit status 0"),
        (None, "cannot start PYTHON: No such file or directory"),
    ],
)
async def test_returns_the_reason_of_a_failed_check(monkeypatch, tmp_path, program, message):
    python = tmp_path / "python"
    if program is not None:
        python.write_text(program)
        python.chmod(0o755)
    (line,) = await run_check(monkeypatch, build_suite(NETWORK, python=str(python)))
    assert line == (
        f"the networks of 1 case are not checked: {message.replace('PYTHON', str(python))}"
    )


@pytest.mark.slow
async def test_ends_and_reports_a_checker_that_never_answers(monkeypatch, tmp_path, messages):
    python = tmp_path / "python"
    pid = tmp_path / "pid"
    python.write_text(f"#!/bin/sh\necho $$ > {pid}; exec sleep 60\n")
    python.chmod(0o755)
    suite = build_suite(NETWORK, python=str(python))
    started = time.monotonic()
    first, second = await run_check(monkeypatch, suite, timeout_seconds=0.5, progress_seconds=0.1)
    messages.check(first)
    assert second.endswith(f"the workers' Python {python} gave no answer within 0.5 s")
    assert time.monotonic() - started < 20
    process = int(pid.read_text())
    while Path(f"/proc/{process}").exists():
        assert time.monotonic() - started < 30


async def test_cancelled_check_leaves_no_process(monkeypatch, tmp_path):
    python = tmp_path / "python"
    pid = tmp_path / "pid"
    python.write_text(f"#!/bin/sh\necho $$ > {pid}; exec sleep 60\n")
    python.chmod(0o755)
    checking = asyncio.ensure_future(
        run_check(monkeypatch, build_suite(NETWORK, python=str(python)))
    )
    started = time.monotonic()
    while not (pid.exists() and pid.read_text().endswith("\n")):
        await asyncio.sleep(0.01)
        assert time.monotonic() - started < 30
    checking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await checking
    assert not Path(f"/proc/{int(pid.read_text())}").exists()


def test_checker_reads_cases_and_marks_its_answer(monkeypatch, capsys):
    from io import StringIO

    from spbench_workers import checking

    monkeypatch.setattr(sys, "stdin", StringIO("[]"))
    checking.main()
    assert capsys.readouterr().out == case_check._ANSWER_MARKER + "[]\n"
