"""The version of a source tree: with tags, without them, and without git."""

import os
import shutil
import subprocess

import pytest
from packaging.version import Version

from build_hooks.version import tree_version
from support.paths import ROOT

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
CHANGELOG = "# Changelog\n\n## Unreleased\n\n- New.\n\n## 1.2.0 - 2026-01-01\n\n## 1.1.0\n"


def git(folder, *arguments):
    no_config = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    identity = ("-c", "user.name=n", "-c", "user.email=n@example.org", "-c", "commit.gpgsign=false")
    command = ("git", "-C", str(folder), *identity, *arguments)
    completed = subprocess.run(
        command, env=os.environ | no_config, capture_output=True, text=True, check=True
    )
    return completed.stdout.strip()


@pytest.fixture
def tree(tmp_path):
    folder = tmp_path / "tree"
    folder.mkdir()
    (folder / "CHANGELOG.md").write_text(CHANGELOG)
    git(folder, "init", "--quiet")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message", "Add a changelog")
    return folder


def commit(tree):
    git(tree, "commit", "--quiet", "--allow-empty", "--message", "Change nothing")
    return git(tree, "rev-parse", "--short", "HEAD")


def test_version_of_a_tagged_commit_is_its_tag(tree):
    git(tree, "tag", "v1.3.0")
    assert tree_version(tree) == "1.3.0"


def test_commit_after_a_tag_has_a_version_before_the_next_patch(tree):
    git(tree, "tag", "v1.3.0")
    commit(tree)
    last = commit(tree)
    assert tree_version(tree) == f"1.3.1.dev2+g{last}"
    assert Version("1.3.0") < Version(tree_version(tree)) < Version("1.3.1")


def test_uncommitted_changes_are_marked_as_dirty(tree):
    git(tree, "tag", "v1.3.0")
    (tree / "CHANGELOG.md").write_text(CHANGELOG + "\n")
    assert tree_version(tree).startswith("1.3.1.dev0+g")
    assert tree_version(tree).endswith(".dirty")


def test_ignores_tags_that_are_not_versions(tree):
    git(tree, "tag", "nightly")
    git(tree, "tag", "vendor")
    assert tree_version(tree).startswith("1.2.0+untagged.g")


def test_untagged_clone_has_the_newest_release_of_the_changelog(tree):
    last = git(tree, "rev-parse", "--short", "HEAD")
    assert tree_version(tree) == f"1.2.0+untagged.g{last}"
    assert str(Version(tree_version(tree))) == tree_version(tree)


def test_shallow_clone_without_tags_has_a_version(tree, tmp_path):
    git(tree, "tag", "v1.3.0")
    last = commit(tree)
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "--quiet", "--depth", "1", tree.as_uri(), str(clone))
    assert tree_version(clone) == f"1.2.0+untagged.g{last}"


def test_copy_inside_another_repository_ignores_its_tags(tree):
    git(tree, "tag", "v9.0.0")
    copy = tree / "copy"
    copy.mkdir()
    (copy / "CHANGELOG.md").write_text(CHANGELOG)
    assert tree_version(copy) == "1.2.0+untagged"


def test_tree_without_git_has_a_version(tree, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    assert tree_version(tree) == "1.2.0+untagged"


def test_rejects_a_tree_without_any_version(tmp_path, messages):
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## Unreleased\n")
    with messages.raises(ValueError):
        tree_version(tmp_path)


def test_changelog_lists_releases_newest_first_below_unreleased():
    text = (ROOT / "CHANGELOG.md").read_text()
    headings = [line for line in text.splitlines() if line.startswith("## ")]
    assert headings[0] == "## Unreleased"
    releases = [Version(heading.split()[1]) for heading in headings[1:]]
    assert releases
    assert releases == sorted(releases, reverse=True)
