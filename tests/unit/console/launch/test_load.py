"""Tests of the load of this machine and other runs of spbench on it."""

import os
import shutil
import socket

import pytest

from spbench.launch import load as load_module
from spbench.launch.load import (
    OwnRun,
    describe_busy_host,
    describe_other_work,
    find_other_runs,
    find_other_work,
    read_load,
)


@pytest.fixture
def proc(tmp_path, monkeypatch):
    monkeypatch.setattr(load_module, "count_cores", lambda: 2)

    def write_proc(loadavg="0.10 0.2 0.3 1/200 99", **processes):
        (tmp_path / "loadavg").write_text(loadavg)
        for pid, cmdline in processes.items():
            (tmp_path / pid.removeprefix("pid")).mkdir()
            (tmp_path / pid.removeprefix("pid") / "cmdline").write_bytes(cmdline)
        return tmp_path

    return write_proc


def list_findings(proc):
    return [(finding.status, finding.subject, finding.text) for finding in find_other_work(proc)]


def test_idle_machine_reports_its_load(proc):
    assert list_findings(proc()) == [
        ("ok", "load", "load 0.1 on 2 cores in the last minute, within the limit of 1")
    ]


def test_high_load_is_a_note(proc, messages):
    (finding,) = find_other_work(proc("13.80 9 8 15/400 99"))
    assert finding.status == "note"
    messages.check(finding.text)
    assert finding.remedy is not None


def test_load_without_running_processes_is_ok(proc):
    text = "load 13.8 on 2 cores in the last minute, but now 0 processes, within the limit of 1"
    assert list_findings(proc("13.80 9 8 1/400 99")) == [("ok", "load", text)]


def test_only_other_runs_are_noted(proc, messages):
    home = proc(
        pid11=b"/venv/bin/python\0/venv/bin/spbench\0run\0a.yaml\0",
        pid12=b"python\0-m\0spbench\0run\0a.yaml\0--headless\0",
        pid13=b"/venv/bin/python\0/venv/bin/spbench\0tui\0",
        pid14=b"vi\0spbench\0",
        pid15=b"",
    )
    (home / str(os.getpid())).mkdir()
    (home / str(os.getpid()) / "cmdline").write_bytes(b"spbench\0run\0")
    assert find_other_runs(home) == [11, 12]
    *_, (status, subject, text) = list_findings(home)
    assert (status, subject) == ("note", "other runs")
    messages.check(text)


def test_own_run_is_part_of_the_load_and_no_other_run(proc):
    home = proc("3.67 3 2 5/400 99", pid11=b"spbench\0run\0a.yaml\0", pid12=b"spbench\0run\0b\0")
    findings = list(find_other_work(home, [OwnRun("your run three", 11)]))
    assert [finding.text for finding in findings] == [
        "load 3.67 on 2 cores, in part from your run three",
        "another run of spbench: process 12",
    ]
    assert [finding.status for finding in findings] == ["ok", "note"]


def test_remedy_agrees_with_the_number_of_other_runs(proc, messages):
    home = proc(pid11=b"spbench\0run\0a.yaml\0", pid12=b"spbench\0run\0a.yaml\0")
    messages.check(list(find_other_work(home))[-1].remedy)
    shutil.rmtree(home / "12")
    messages.check(list(find_other_work(home))[-1].remedy)


@pytest.mark.parametrize("content", ["", "a b c d", "1.0 2 3"])
def test_unreadable_load_is_ignored(proc, content):
    assert read_load(proc(content)) is None
    assert list_findings(proc(content)) == []


def test_describes_only_the_load_of_this_host(proc, monkeypatch, messages):
    proc_folder = proc("13.80 9 8 15/400 99")
    monkeypatch.setattr(load_module, "read_load", lambda: read_load(proc_folder))
    messages.check(describe_busy_host(socket.gethostname()))
    assert describe_busy_host("elsewhere") == ""
    proc("0.10 9 8 15/400 99")
    assert describe_busy_host(socket.gethostname()) == ""


def test_parent_process_is_not_another_run(proc):
    """``timeout 60 spbench run x.yaml`` contains a run in its own command line."""
    cmdline = b"timeout\x0060\x00spbench\x00run\x00x.yaml"
    proc_folder = proc(pid77=cmdline)
    assert find_other_runs(proc_folder) == [77]
    (proc_folder / str(os.getpid())).mkdir()
    (proc_folder / str(os.getpid()) / "stat").write_text(f"{os.getpid()} (a ) b) S 77 1 1")
    assert find_other_runs(proc_folder) == []


def test_description_of_other_work_has_no_fix(proc, messages):
    messages.check(describe_other_work(proc("13.80 9 8 15/400 99")))
    assert describe_other_work(proc()) == []
