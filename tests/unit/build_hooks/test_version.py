"""The version of a tree, by tags, in clones that see none, and without git."""

import os
import shutil
import subprocess

import pytest
from packaging.version import Version

from build_hooks.version import tree_version
from support.paths import ROOT

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
CHANGELOG = "# Changelog\n\n## Unreleased\n\n- New.\n\n## 1.2.0 - 2026-01-01\n\n## 1.1.0\n"


def git(tree, *words):
    of_nobody = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    who = ("-c", "user.name=n", "-c", "user.email=n@example.org", "-c", "commit.gpgsign=false")
    words = ("git", "-C", str(tree), *who, *words)
    done = subprocess.run(
        words, env=os.environ | of_nobody, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.fixture
def tree(tmp_path):
    made = tmp_path / "tree"
    made.mkdir()
    (made / "CHANGELOG.md").write_text(CHANGELOG)
    git(made, "init", "--quiet")
    git(made, "add", ".")
    git(made, "commit", "--quiet", "--message", "Begin")
    return made


def commit(tree):
    git(tree, "commit", "--quiet", "--allow-empty", "--message", "Go on")
    return git(tree, "rev-parse", "--short", "HEAD")


def test_a_tagged_commit_is_the_release(tree):
    git(tree, "tag", "v1.3.0")
    assert tree_version(tree) == "1.3.0"


def test_commits_after_a_tag_are_versions_between_it_and_the_next_patch(tree):
    git(tree, "tag", "v1.3.0")
    commit(tree)
    last = commit(tree)
    assert tree_version(tree) == f"1.3.1.dev2+g{last}"
    assert Version("1.3.0") < Version(tree_version(tree)) < Version("1.3.1")


def test_changes_that_are_not_committed_are_no_release(tree):
    git(tree, "tag", "v1.3.0")
    (tree / "CHANGELOG.md").write_text(CHANGELOG + "\n")
    assert tree_version(tree).startswith("1.3.1.dev0+g")
    assert tree_version(tree).endswith(".dirty")


def test_other_tags_are_no_versions(tree):
    git(tree, "tag", "nightly")
    git(tree, "tag", "vendor")
    assert tree_version(tree).startswith("1.2.0+untagged.g")


def test_an_untagged_clone_has_the_newest_release_of_the_changelog(tree):
    last = git(tree, "rev-parse", "--short", "HEAD")
    assert tree_version(tree) == f"1.2.0+untagged.g{last}"
    assert str(Version(tree_version(tree))) == tree_version(tree)


def test_a_shallow_clone_that_sees_no_tag_builds_too(tree, tmp_path):
    git(tree, "tag", "v1.3.0")
    last = commit(tree)
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "--quiet", "--depth", "1", tree.as_uri(), str(clone))
    assert tree_version(clone) == f"1.2.0+untagged.g{last}"


def test_a_copy_without_git_inside_another_repository_is_not_that_ones(tree):
    git(tree, "tag", "v9.0.0")
    copy = tree / "copy"
    copy.mkdir()
    (copy / "CHANGELOG.md").write_text(CHANGELOG)
    assert tree_version(copy) == "1.2.0+untagged"


def test_a_tree_on_a_machine_without_git_builds(tree, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    assert tree_version(tree) == "1.2.0+untagged"


def test_a_tree_that_says_no_version_at_all_is_refused(tmp_path, messages):
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## Unreleased\n")
    with messages.raises(ValueError):
        tree_version(tmp_path)


def test_this_trees_changelog_has_releases_below_what_is_not_released():
    text = (ROOT / "CHANGELOG.md").read_text()
    heads = [line for line in text.splitlines() if line.startswith("## ")]
    assert heads[0] == "## Unreleased"
    releases = [Version(head.split()[1]) for head in heads[1:]]
    assert releases
    assert releases == sorted(releases, reverse=True)
