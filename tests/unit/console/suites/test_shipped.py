"""The suites and hostfiles that come with spbench."""

import shutil
from pathlib import Path

import pytest

from places import ROOT, SUITES
from spbench.errors import FailedRunError, UsageError
from spbench.suites import shipped
from spbench.suites.shipped import (
    comes_with_spbench,
    copy_shipped,
    is_installed,
    shipped_suites,
    suite_path,
)


def test_a_suite_is_found_by_its_name():
    assert suite_path(Path("shipped:halo")) == SUITES / "halo.yaml"
    assert suite_path(Path("suites/halo.yaml")) == Path("suites/halo.yaml")
    with pytest.raises(UsageError, match=r"no suite 'hallo' comes .* \(did you mean halo\?\)"):
        suite_path(Path("shipped:hallo"))


def test_all_suites_and_hostfiles_are_copied_and_what_is_there_stays(tmp_path):
    (tmp_path / "suites").mkdir()
    mine = tmp_path / "suites" / "halo.yaml"
    mine.write_text("mine")
    copied = copy_shipped(tmp_path)
    assert copied.kept == (mine,)
    assert mine.read_text() == "mine"
    names = {path.name for path in SUITES.iterdir()} | {
        p.name for p in (ROOT / "hostfiles").iterdir()
    }
    assert {path.name for path in (*copied.written, *copied.kept)} == names
    assert copy_shipped(tmp_path).written == ()
    assert copy_shipped(tmp_path, force=True).kept == ()
    assert mine.read_text() == (SUITES / "halo.yaml").read_text()


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path):
    (tmp_path / "suites").write_text("a file")
    with pytest.raises(FailedRunError, match=r"cannot write .*suites"):
        copy_shipped(tmp_path)


def test_an_installed_package_has_them_inside(tmp_path, monkeypatch):
    package = tmp_path / "spbench"
    shutil.copytree(SUITES, package / "shipped" / "suites")
    shutil.copytree(ROOT / "hostfiles", package / "shipped" / "hostfiles")
    monkeypatch.setattr(shipped, "_PACKAGE", package)
    assert shipped_suites()["halo"] == package / "shipped" / "suites" / "halo.yaml"
    assert is_installed(shipped_suites()["halo"])
    assert not is_installed(SUITES / "halo.yaml")
    assert not comes_with_spbench(tmp_path / "mine.yaml")
