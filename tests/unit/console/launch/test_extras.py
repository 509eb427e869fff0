"""The doctor's lines about extras."""

import shlex
import sys
import tomllib

import pytest

from places import ROOT
from spbench.launch import doctor
from spbench.launch.doctor import check_extras
from spbench.launch.mpi_probe import MpiLibrary, read_library

PROBED = {
    "mpi4py": "4.1.0",
    "library": "Open MPI v5.0.11",
    "worker": True,
    "torch": "2.6.0",
    "lacks": [],
}


def told(library, serve=True, monkeypatch=None):
    monkeypatch.setattr(doctor, "find_spec", lambda name: object() if serve else None)
    return check_extras("/ranks/python", library, "/console/python")


def test_all_extras_that_are_here_are_one_line(monkeypatch):
    (finding,) = told(read_library("p", PROBED), monkeypatch=monkeypatch)
    assert (finding.status, finding.text) == ("ok", "nothing is missing: workers, mpi, serve")


@pytest.mark.parametrize(
    ("module", "status", "name"), [("numpy", "missing", "numpy"), ("PIL", "note", "pillow")]
)
def test_a_module_that_the_ranks_lack_is_named_with_its_extra(monkeypatch, module, status, name):
    library = read_library("p", PROBED | {"lacks": [module]})
    (finding,) = told(library, monkeypatch=monkeypatch)
    assert (finding.status, finding.subject) == (status, "extra workers")
    assert finding.text.startswith(f"{name} is not installed: ")
    assert finding.mend == "/ranks/python -m pip install 'spbench[workers]'"


def test_the_console_in_a_browser_has_an_extra(monkeypatch):
    (finding,) = told(read_library("p", PROBED), serve=False, monkeypatch=monkeypatch)
    assert (finding.status, finding.subject) == ("note", "extra serve")
    assert finding.mend == "/console/python -m pip install 'spbench[serve]'"


@pytest.mark.parametrize("library", [None, MpiLibrary("openmpi", "Open MPI", torch=None)])
def test_what_other_lines_name_as_missing_is_not_said_to_be_here(monkeypatch, library):
    assert told(library, monkeypatch=monkeypatch) == []


def test_the_extras_of_pyproject_are_those_of_the_doctor(monkeypatch):
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (everything,) = declared["optional-dependencies"]["all"]
    assert everything == "spbench[workers,mpi,serve]"
    (finding,) = told(read_library("p", PROBED), monkeypatch=monkeypatch)
    assert finding.text.endswith("workers, mpi, serve")


def test_an_interpreter_without_anything_is_told_the_line(tmp_path, capsys):
    from spbench.cli.app import run_command_line

    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -I -S "$@"\n')
    bare.chmod(0o755)
    assert run_command_line(["doctor", "--python", str(bare)]) == 3
    out = capsys.readouterr().out
    assert f"{bare} has no mpi4py\n" in out
    assert f"fix: {bare} -m pip install 'spbench[workers,mpi]'\n" in out
