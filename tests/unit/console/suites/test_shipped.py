"""The suites and hostfiles that come with spbench."""

import shutil
from dataclasses import replace
from pathlib import Path

from spbench.engine.plan import Request, plan_run
from spbench.errors import FailedRunError, SuiteError, UsageError
from spbench.suites import shipped
from spbench.suites.loader import load_suite_file
from spbench.suites.shipped import (
    copy_shipped,
    is_installed,
    is_shipped,
    list_shipped_suites,
    needs_copy,
    require_suite_file,
    resolve_suite_path,
)
from support.paths import ROOT, SUITES


def test_finds_suite_by_name(messages):
    assert require_suite_file(Path("shipped:halo")) == SUITES / "halo.yaml"
    assert require_suite_file(Path("suites/halo.yaml")) == Path("suites/halo.yaml")
    with messages.raises(UsageError):
        require_suite_file(Path("shipped:hallo"))


def test_copies_all_files_and_keeps_existing_ones(tmp_path):
    (tmp_path / "suites").mkdir()
    user_suite = tmp_path / "suites" / "halo.yaml"
    user_suite.write_text("mine")
    copied = copy_shipped(tmp_path)
    assert copied.existing == (user_suite,)
    assert user_suite.read_text() == "mine"
    names = {path.name for path in SUITES.iterdir()} | {
        p.name for p in (ROOT / "hostfiles").iterdir()
    }
    assert {path.name for path in (*copied.copied, *copied.existing)} == names
    assert copy_shipped(tmp_path).copied == ()
    assert copy_shipped(tmp_path, force=True).existing == ()
    assert user_suite.read_text() == (SUITES / "halo.yaml").read_text()


def test_unwritable_folder_is_an_error(tmp_path, messages):
    (tmp_path / "suites").write_text("a file")
    with messages.raises(FailedRunError):
        copy_shipped(tmp_path)


def test_installed_package_contains_the_suites(tmp_path, monkeypatch):
    package = tmp_path / "spbench"
    shutil.copytree(SUITES, package / "shipped" / "suites")
    shutil.copytree(ROOT / "hostfiles", package / "shipped" / "hostfiles")
    monkeypatch.setattr(shipped, "_PACKAGE", package)
    assert list_shipped_suites()["halo"] == package / "shipped" / "suites" / "halo.yaml"
    assert is_installed(list_shipped_suites()["halo"])
    assert not is_installed(SUITES / "halo.yaml")
    assert not is_shipped(tmp_path / "mine.yaml")
    # The folder of the user's suites holds the virtual environment.
    assert needs_copy(list_shipped_suites()["halo"], tmp_path)
    assert not needs_copy(tmp_path / "suites" / "halo.yaml", tmp_path)


def test_suites_of_the_tree_need_a_copy_elsewhere(tmp_path):
    assert needs_copy(SUITES / "halo.yaml", tmp_path)
    assert not needs_copy(SUITES / "halo.yaml", ROOT)


def test_shipped_name_is_the_same_in_each_folder(tmp_path):
    assert resolve_suite_path(tmp_path, Path("shipped:halo")) == Path("shipped:halo")
    assert resolve_suite_path(tmp_path, Path("halo.yaml")) == tmp_path / "halo.yaml"


def test_suite_loaded_by_name_keeps_the_name(messages):
    suite = load_suite_file(Path("shipped:links"))
    assert suite.path == Path("shipped:links")
    assert suite.text == (SUITES / "links.yaml").read_text()
    with messages.raises(SuiteError):
        load_suite_file(Path("shipped:links"), ["iterations=0"])


def test_finds_the_hostfile_of_a_shipped_suite():
    request = Request(suite=Path("shipped:halo"), home=ROOT, environ={})
    line = "launch.hostfile=../hostfiles/local.hosts"
    planned = plan_run(replace(request, overrides=(line,)))
    assert planned.find_hosts(planned.jobs[0]) is not None


def test_does_not_write_through_a_broken_link(tmp_path):
    target = tmp_path / "elsewhere.yaml"
    link = tmp_path / "mine" / "suites" / "halo.yaml"
    link.parent.mkdir(parents=True)
    link.symlink_to(target)
    assert copy_shipped(tmp_path / "mine").existing == (link,)
    assert not target.exists()
