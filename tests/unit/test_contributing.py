"""The pages and files for contributors are consistent with each other."""

import re
import tomllib

import yaml

from spbench.suites.loader import load_suite_file
from support.paths import ROOT, SUITES


def read_recipe(target):
    """Return the commands of a target of the Makefile, with default variables."""
    text = (ROOT / "Makefile").read_text()
    [lines] = re.findall(rf"^{target}:.*\n((?:\t.*\n)+)", text, re.MULTILINE)
    return [line.strip().replace("$(BIN)", ".venv/bin") for line in lines.splitlines()]


def test_pre_commit_runs_the_commands_of_make_lint():
    [repo] = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert [hook["entry"] for hook in repo["hooks"]] == read_recipe("lint")
    # The hooks download nothing: they use the tools of the Makefile's environment.
    assert repo["repo"] == "local"
    for hook in repo["hooks"]:
        assert (hook["language"], hook["pass_filenames"]) == ("system", False)


def test_documented_checks_are_targets_of_the_makefile():
    page = (ROOT / "CONTRIBUTING.md").read_text()
    targets = re.findall(r"^make ([a-z]+)$", page, re.MULTILINE)
    assert targets == ["help", "unit", "dev", "unit", "lint", "types", "unit", "test", "all"]
    makefile = (ROOT / "Makefile").read_text()
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)


def test_readme_shows_cases_of_the_suite_it_runs():
    cases_shown = re.findall(
        r"^\[ ?(\d+)/(\d+)\] . passed +(\S+) ", (ROOT / "README.md").read_text(), re.MULTILINE
    )
    cases = load_suite_file(SUITES / "halo.yaml").cases
    assert len(cases_shown) == 6
    for number, count, name in cases_shown:
        assert int(count) == len(cases)
        assert cases[int(number) - 1].id == name


def test_project_urls_name_existing_files():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["urls"]
    for path in project["urls"].values():
        assert (ROOT / path).exists(), path
