"""Tests of `spbench validate` without options, which does not import Typer."""

import gc
import subprocess
import sys

import pytest

from spbench import __main__
from spbench.__main__ import plain_suites
from spbench.cli.app import run_command_line
from support.paths import SUITES

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
    ("args", "suites"),
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
def test_plain_line_has_only_suites(args, suites):
    assert [str(path) for path in plain_suites(args)] == suites


@pytest.mark.parametrize("name", ["right", "wrong", "none", "both", "unknown"])
def test_plain_line_prints_what_the_command_prints(name, tmp_path, monkeypatch, capsys):
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
    output = capsys.readouterr()
    monkeypatch.setattr(sys, "argv", ["spbench", "validate", *suites])
    monkeypatch.setattr(gc, "disable", lambda: None)  # this process continues
    with pytest.raises(SystemExit) as end:
        __main__.main()
    assert end.value.code == code == (0 if name == "right" else 2)
    assert capsys.readouterr() == output
    assert output.out or output.err


@pytest.mark.slow
def test_plain_line_does_not_load_typer():
    for args, loaded in (([HALO], "False"), ([HALO, "-v"], "True")):
        argv = [sys.executable, "-c", AS_A_PROGRAM, "validate", *args]
        process = subprocess.run(argv, capture_output=True, text=True, check=True)
        assert process.stdout.splitlines()[-1] == loaded


@pytest.mark.slow
def test_closed_pipe_is_no_error():
    many = [HALO] * 1200  # more than the buffer of a pipe
    argv = [sys.executable, "-m", "spbench", "validate", *many]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 0


@pytest.mark.slow
def test_invalid_suite_sets_the_exit_code_with_a_closed_pipe(tmp_path):
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("schema: spbench.suite/1\nname: n\ncases: 3\n")
    argv = [sys.executable, "-m", "spbench", "validate", *[HALO] * 1200, str(wrong)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.readline()
        process.stdout.close()
        assert b"wrong.yaml" in process.stderr.read()
        assert process.wait() == 2


NETWORKS = """\
schema: spbench.suite/1
name: networks
cases:
  - name: mine
    benchmark: model.network
    params: {network: "nets:Net", image_size: 32}
  - {name: links, benchmark: link.pingpong}
"""
NETS = """\
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Conv2d(3, 4, 32)

    def forward(self, images):
        return images if images.sum() > 0 else self.head(images)
"""


@pytest.fixture
def networks(tmp_path, monkeypatch):
    """Write a suite of a network with a data-dependent forward pass."""
    pytest.importorskip("torch")
    (tmp_path / "nets.py").write_text(NETS)
    suite = tmp_path / "networks.yaml"
    suite.write_text(NETWORKS)
    monkeypatch.chdir(tmp_path)
    return suite


CHECKING_COMMANDS = [
    pytest.param(["validate"], id="validate"),
    pytest.param(["run", "--dry-run"], id="dry-run", marks=pytest.mark.long),
]


@pytest.mark.slow
@pytest.mark.parametrize("args", CHECKING_COMMANDS)
def test_untraceable_network_is_an_error_of_its_suite(networks, args, capsys):
    command, *options = args
    assert run_command_line([command, networks.name, *options]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    error = err.splitlines()[-1]
    assert error.startswith(
        "networks.yaml:6:23: error: case mine: network nets:Net: nets.py:10: the forward pass"
    )


@pytest.mark.slow
@pytest.mark.parametrize("args", CHECKING_COMMANDS)
def test_dry_run_does_not_import_unselected_networks(networks, args, capsys):
    pytest.importorskip("mpi4py", reason="a launch is prepared with the MPI of the ranks")
    command, *options = args
    selection = ["-k", "links"] if command == "run" else []
    code = run_command_line([command, networks.name, *options, *selection])
    assert code == (0 if selection else 2)


def test_missing_interpreter_is_reported(networks, capsys, messages):
    args = ["validate", networks.name, "--set", "launch.python=/nowhere/python"]
    assert run_command_line(args) == 0
    for text in capsys.readouterr():
        messages.check(text)


@pytest.mark.parametrize("args", [["validate"], ["run", "--dry-run"]], ids=["validate", "dry-run"])
def test_suites_without_networks_start_no_process(args, monkeypatch, capsys):
    """The probe of the MPI library may run, since its result is cached per process."""
    from spbench.engine import case_check

    async def refuse(*_, **__):
        raise AssertionError("a process was started")

    monkeypatch.setattr(case_check, "_run_program", refuse)
    monkeypatch.setattr("asyncio.create_subprocess_exec", refuse)
    if args == ["validate"]:
        monkeypatch.setattr(subprocess, "Popen", refuse)
    else:
        pytest.importorskip("mpi4py", reason="a launch is prepared with the MPI of the ranks")
    command, *options = args
    assert run_command_line([command, HALO, *options]) == 0
    assert "Error" not in capsys.readouterr().err
