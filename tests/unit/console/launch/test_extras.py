"""Tests of the findings of doctor about extras."""

import shlex
import sys
import tomllib

import pytest

from spbench.launch import doctor
from spbench.launch.doctor import check_extras
from spbench.launch.mpi_probe import MpiLibrary, read_library
from support.paths import ROOT

PROBED = {
    "mpi4py": "4.1.0",
    "library": "Open MPI v5.0.11",
    "worker": True,
    "torch": "2.6.0",
    "lacks": [],
}


def find_extras(library, serve=True, monkeypatch=None):
    monkeypatch.setattr(doctor, "find_spec", lambda name: object() if serve else None)
    return check_extras("/ranks/python", library, "/console/python")


def test_installed_extras_take_one_line(monkeypatch, messages):
    (finding,) = find_extras(read_library("p", PROBED), monkeypatch=monkeypatch)
    assert finding.status == "ok"
    messages.check(finding.text)


@pytest.mark.parametrize(
    ("module", "status", "name"), [("numpy", "missing", "numpy"), ("PIL", "note", "pillow")]
)
def test_missing_module_is_reported_with_its_extra(monkeypatch, module, status, name, messages):
    library = read_library("p", PROBED | {"lacks": [module]})
    (finding,) = find_extras(library, monkeypatch=monkeypatch)
    assert (finding.status, finding.subject) == (status, "extra workers")
    assert finding.text.startswith(f"{name} is not installed: ")
    messages.check(finding.remedy)


@pytest.mark.parametrize(("files", "subjects"), [(0, ["extras"]), (2, ["extra gpu"])])
def test_missing_gpu_extra_is_a_note_on_a_host_with_gpus(monkeypatch, files, subjects, messages):
    gpus = {"cards": [], "undriven": [], "files": files}
    library = read_library("p", PROBED | {"lacks": ["pynvml"], "gpus": gpus})
    findings = find_extras(library, monkeypatch=monkeypatch)
    assert [finding.subject for finding in findings] == subjects
    assert all(finding.status in ("note", "ok") for finding in findings)
    messages.check(f"{findings[0].text}\n{findings[0].remedy or 'no remedy'}")


def test_missing_serve_extra_is_a_note(monkeypatch, messages):
    (finding,) = find_extras(read_library("p", PROBED), serve=False, monkeypatch=monkeypatch)
    assert (finding.status, finding.subject) == ("note", "extra serve")
    messages.check(finding.remedy)


@pytest.mark.parametrize("library", [None, MpiLibrary("openmpi", "Open MPI", torch=None)])
def test_missing_library_gives_no_finding_on_extras(monkeypatch, library):
    assert find_extras(library, monkeypatch=monkeypatch) == []


def test_extras_match_pyproject(monkeypatch):
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (everything,) = declared["optional-dependencies"]["all"]
    assert everything == "spbench[workers,mpi,serve,gpu]"
    (finding,) = find_extras(read_library("p", PROBED), monkeypatch=monkeypatch)
    assert finding.text.endswith("workers, mpi, serve")


def test_bare_interpreter_gets_an_install_command(tmp_path, capsys):
    from spbench.cli.app import run_command_line

    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -I -S "$@"\n')
    bare.chmod(0o755)
    assert run_command_line(["doctor", "--python", str(bare)]) == 3
    out = capsys.readouterr().out
    assert f"{bare} has no mpi4py\n" in out
    assert f"fix: {bare} -m pip install 'spbench[workers,mpi]'\n" in out
