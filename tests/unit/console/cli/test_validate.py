"""`spbench validate` without options, which is answered before command lines can be read."""

import gc
import subprocess
import sys

import pytest

from places import SUITES
from spbench import __main__
from spbench.__main__ import plain_suites
from spbench.cli.app import run_command_line

HALO = str(SUITES / "halo.yaml")
AS_A_PROGRAM = """
import sys
from spbench.__main__ import main
try:
    main()
finally:
    print("typer" in sys.modules)
"""


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["validate", "a.yaml", "shipped:b"], ["a.yaml", "shipped:b"]),
        (["validate", "a.yaml", "-v"], []),
        (["validate", "--set", "a=1", "a.yaml"], []),
        (["validate", "--help"], []),
        (["validate"], []),
        (["run", "a.yaml"], []),
        ([], []),
    ],
)
def test_suites_and_nothing_else_are_a_plain_line(words, found):
    assert [str(path) for path in plain_suites(words)] == found


@pytest.mark.parametrize("name", ["right", "wrong", "none", "both", "unknown"])
def test_a_plain_line_says_what_the_command_says(name, tmp_path, monkeypatch, capsys):
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("schema: spbench.suite/1\nname: n\ncases: 3\n")
    suites = {
        "right": [HALO],
        "wrong": [str(wrong)],
        "none": [str(tmp_path / "none.yaml")],
        "both": [str(wrong), HALO],
        "unknown": ["shipped:hallo"],
    }[name]
    code = run_command_line(["validate", *suites])
    said = capsys.readouterr()
    monkeypatch.setattr(sys, "argv", ["spbench", "validate", *suites])
    monkeypatch.setattr(gc, "disable", lambda: None)  # this process goes on
    with pytest.raises(SystemExit) as end:
        __main__.main()
    assert end.value.code == code == (0 if name == "right" else 2)
    assert capsys.readouterr() == said
    assert said.out or said.err


@pytest.mark.slow
def test_a_plain_line_loads_no_library_of_command_lines():
    for words, loaded in (([HALO], "False"), ([HALO, "-v"], "True")):
        argv = [sys.executable, "-c", AS_A_PROGRAM, "validate", *words]
        ended = subprocess.run(argv, capture_output=True, text=True, check=True)
        assert ended.stdout.splitlines()[-1] == loaded


@pytest.mark.slow
def test_a_reader_that_goes_is_no_error():
    many = [HALO] * 1200  # more than a pipe holds
    argv = [sys.executable, "-m", "spbench", "validate", *many]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 0


@pytest.mark.slow
def test_a_wrong_suite_is_told_by_the_exit_code_to_a_reader_that_went(tmp_path):
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("schema: spbench.suite/1\nname: n\ncases: 3\n")
    argv = [sys.executable, "-m", "spbench", "validate", *[HALO] * 1200, str(wrong)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.readline()
        process.stdout.close()
        assert b"wrong.yaml" in process.stderr.read()
        assert process.wait() == 2
