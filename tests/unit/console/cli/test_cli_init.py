"""Tests of ``spbench init`` and of suites named ``shipped:NAME``."""

import pytest

from support.paths import SUITES


def test_new_folder_gets_suites_and_hostfiles(spbench, tmp_path, monkeypatch, messages):
    monkeypatch.chdir(tmp_path)
    done = spbench("init", "here")
    assert (done.status, done.err) == (0, "")
    messages.check(done.out.splitlines()[-1])
    text = (tmp_path / "here" / "suites" / "halo.yaml").read_text()
    assert text == (SUITES / "halo.yaml").read_text()
    repeated = spbench("init", "here")
    wrote, skipped, following = repeated.out.splitlines()
    messages.check(wrote)
    assert "suites/halo.yaml" in skipped
    assert "hostfiles/slurm.hosts" in skipped
    assert following.startswith("next: ")
    assert following.endswith("; or, in here, spbench tui to change one")
    assert spbench("init").out.endswith("; or spbench tui to change one\n")


def test_force_replaces_files_that_are_otherwise_kept(spbench, tmp_path, monkeypatch, messages):
    monkeypatch.chdir(tmp_path)
    changed = tmp_path / "suites" / "halo.yaml"
    changed.parent.mkdir()
    changed.write_text("mine")
    messages.check(spbench("init").out)
    assert changed.read_text() == "mine"
    assert "kept" not in spbench("init", "--force").out
    assert changed.read_text() == (SUITES / "halo.yaml").read_text()


def test_shipped_suite_is_found_by_name(spbench, tmp_path, monkeypatch, messages):
    pytest.importorskip("mpi4py")
    monkeypatch.chdir(tmp_path)
    assert "no errors" in spbench("validate", "shipped:halo").out
    assert spbench("command", "shipped:smoke").status == 0
    done = spbench("run", "shipped:hallo")
    assert done.status == 2
    messages.check(done.err)


@pytest.mark.parametrize("command", [("validate",), ("command",), ("run", "--dry-run")])
def test_error_in_a_shipped_suite_has_its_name_and_line(
    spbench, tmp_path, monkeypatch, command, messages
):
    monkeypatch.chdir(tmp_path)
    done = spbench(*command, "shipped:halo", "--set", "halo_len=-1")
    assert done.status == 2
    messages.check(done.err)
