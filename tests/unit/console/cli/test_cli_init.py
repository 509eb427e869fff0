"""``spbench init`` and suites named ``shipped:NAME``."""

import re

import pytest

from places import SUITES


def test_a_new_folder_gets_suites_and_hostfiles(spbench, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = spbench("init", "here")
    assert (done.status, done.err) == (0, "")
    assert done.out.splitlines()[-1].startswith("next: spbench run here/suites/halo.yaml")
    text = (tmp_path / "here" / "suites" / "halo.yaml").read_text()
    assert text == (SUITES / "halo.yaml").read_text()
    again = spbench("init", "here")
    wrote, kept, following = again.out.splitlines()
    assert wrote.startswith("wrote 0 files")
    assert "suites/halo.yaml" in kept
    assert "hostfiles/slurm.hosts" in kept
    assert following.startswith("next: ")
    assert following.endswith("; or, in here, spbench tui to change one")
    assert spbench("init").out.endswith("; or spbench tui to change one\n")


def test_files_that_stay_are_named_and_force_replaces_them(spbench, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    mine = tmp_path / "suites" / "halo.yaml"
    mine.parent.mkdir()
    mine.write_text("mine")
    assert "kept as before, --force replaces: suites/halo.yaml\n" in spbench("init").out
    assert mine.read_text() == "mine"
    assert "kept" not in spbench("init", "--force").out
    assert mine.read_text() == (SUITES / "halo.yaml").read_text()


def test_a_shipped_suite_is_taken_by_its_name(spbench, tmp_path, monkeypatch):
    pytest.importorskip("mpi4py")
    monkeypatch.chdir(tmp_path)
    assert "no errors" in spbench("validate", "shipped:halo").out
    assert spbench("command", "shipped:smoke").status == 0
    done = spbench("run", "shipped:hallo")
    assert done.status == 2
    assert "did you mean halo?" in done.err


@pytest.mark.parametrize("command", [("validate",), ("command",), ("run", "--dry-run")])
def test_an_error_in_it_is_at_a_line_of_its_name(spbench, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    done = spbench(*command, "shipped:halo", "--set", "halo_len=-1")
    assert done.status == 2
    assert re.match(r"shipped:halo:\d+:\d+: error: --set halo_len=-1", done.err), done.err
