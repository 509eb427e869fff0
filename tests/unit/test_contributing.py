"""The pages and files for those who join: all say the same."""

import re
import tomllib

import yaml

from spbench.suites.loader import load_suite_file
from support.paths import ROOT, SUITES


def recipe(target):
    """The commands of a target of the Makefile, with its variables as they are by default."""
    text = (ROOT / "Makefile").read_text()
    [lines] = re.findall(rf"^{target}:.*\n((?:\t.*\n)+)", text, re.MULTILINE)
    return [line.strip().replace("$(BIN)", ".venv/bin") for line in lines.splitlines()]


def test_pre_commit_runs_what_make_lint_runs():
    [repo] = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert [hook["entry"] for hook in repo["hooks"]] == recipe("lint")
    # Nothing is fetched: the tools are those of the Makefile's environment.
    assert repo["repo"] == "local"
    for hook in repo["hooks"]:
        assert (hook["language"], hook["pass_filenames"]) == ("system", False)


def test_the_checks_are_targets_of_the_makefile():
    page = (ROOT / "CONTRIBUTING.md").read_text()
    targets = re.findall(r"^make ([a-z]+)$", page, re.MULTILINE)
    assert targets == ["help", "unit", "dev", "unit", "lint", "types", "unit", "test", "all"]
    makefile = (ROOT / "Makefile").read_text()
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)


def test_the_readme_shows_cases_of_the_suite_that_it_runs():
    shown = re.findall(
        r"^\[ ?(\d+)/(\d+)\] . passed +(\S+) ", (ROOT / "README.md").read_text(), re.MULTILINE
    )
    cases = load_suite_file(SUITES / "halo.yaml").cases
    assert len(shown) == 6
    for number, count, name in shown:
        assert int(count) == len(cases)
        assert cases[int(number) - 1].id == name


def test_the_projects_pages_are_there():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["urls"]
    for path in project["urls"].values():
        assert (ROOT / path).exists(), path
