"""Tests of finding and reading hostfiles."""

from __future__ import annotations

import os
from pathlib import Path

from spbench.errors import UsageError
from spbench.launch.hosts.hostfiles import find_hostfiles, read_host_options, read_hostfiles
from support.paths import ROOT


def list_hostfiles(folder: Path) -> list[str]:
    return [str(path.relative_to(folder)) for path in find_hostfiles(folder)]


def test_finds_hostfiles_by_name_and_folder(tmp_path):
    (tmp_path / "hostfiles/deeper").mkdir(parents=True)
    for name in (
        "b.hosts",
        "hostfile",
        "hostfile.old",
        "x.hostfile",
        "hosts",
        "suite.yaml",
        ".hidden.hosts",
        "b.hosts~",
        "hostfiles/any",
        "hostfiles/.hidden",
        "hostfiles/deeper/c.hosts",
    ):
        (tmp_path / name).write_text("node01\n")
    os.mkfifo(tmp_path / "pipe.hosts")
    assert list_hostfiles(tmp_path) == [
        "b.hosts",
        "hostfile",
        "hostfile.old",
        "x.hostfile",
        "hostfiles/any",
    ]


def test_finds_nothing_in_an_empty_or_missing_folder(tmp_path):
    assert list_hostfiles(tmp_path) == []
    assert list_hostfiles(tmp_path / "nowhere") == []


def test_invalid_hostfiles_are_listed_with_errors(tmp_path, messages):
    (tmp_path / "good.hosts").write_text("node[01-02] slots=4\n")
    (tmp_path / "bad.hosts").write_text("node01:0\n")
    (tmp_path / "lost.hosts").symlink_to(tmp_path / "nowhere")
    (tmp_path / "raw.hosts").write_bytes(b"\xff\xfe")
    bad, good, lost, raw = read_hostfiles(tmp_path)
    assert good.hosts is not None
    assert (good.hosts.slots, good.hosts.names, good.error) == (8, ("node01", "node02"), "")
    assert [bad.hosts, lost.hosts, raw.hosts] == [None] * 3
    messages.check(bad.error)
    messages.check(lost.error)
    assert "UTF-8" in raw.error


def test_examples_are_found_and_valid():
    files = read_hostfiles(ROOT)
    assert {file.path.name for file in files} >= {"local.hosts", "slurm.hosts"}
    assert [file.error for file in files if file.error] == []


def test_reads_host_options(tmp_path, messages):
    (tmp_path / "h").write_text("node01:2\n")
    assert read_host_options(None, None) is None
    assert read_host_options(tmp_path / "h", None).names == ("node01",)
    assert read_host_options(None, "node[1-2]").names == ("node1", "node2")
    with messages.raises(UsageError):
        read_host_options(tmp_path / "h", "node1")
