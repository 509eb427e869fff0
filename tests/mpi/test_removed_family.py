"""A family of benchmarks is its folder: without it, all others work as before."""

import json
import os
import re
import shutil
import subprocess
import sys

import pytest

from support.paths import ROOT

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(240)]

REMOVED = "kvstore"
FOLDERS = (f"workers/spbench_workers/benchmarks/{REMOVED}", f"tests/benchmarks/{REMOVED}")


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A copy of the tree without the two folders of a family."""
    folder = tmp_path_factory.mktemp("tree") / "spbench"
    ignored = shutil.ignore_patterns("__pycache__")
    for name in ("core", "console", "workers", "suites", "tests/benchmarks"):
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    for name in FOLDERS:
        shutil.rmtree(folder / name)
    return folder


def spbench(tree, *words):
    """Run spbench from the sources of a tree."""
    sources = os.pathsep.join(str(tree / name) for name in ("core", "console", "workers"))
    return subprocess.run(
        [sys.executable, "-m", "spbench", *words],
        capture_output=True,
        text=True,
        check=False,
        cwd=tree,
        env=os.environ | {"PYTHONPATH": sources},
    )


def test_validate_names_the_cases_that_lost_their_family(tree):
    text = (tree / "suites/smoke.yaml").read_text().splitlines()
    line = next(number for number, one in enumerate(text, 1) if "kvstore.push_pull" in one)
    done = spbench(tree, "validate", "suites/smoke.yaml")
    assert done.returncode == 2
    assert re.search(rf"suites/smoke\.yaml:{line}:\d+: .*kvstore\.push_pull", done.stderr), (
        done.stderr
    )
    assert done.stderr.count("suites/smoke.yaml:") == 1


def test_networks_are_still_listed(tree):
    done = spbench(tree, "networks")
    assert done.returncode == 0, done.stderr
    assert "resnet" in done.stdout


def test_all_other_smoke_cases_pass(tree, tmp_path):
    suite = tree / "suites/smoke.yaml"
    lines = suite.read_text().splitlines(keepends=True)
    starts = [index for index, line in enumerate(lines) if re.match(r"  - ", line)]
    first = next(i for i in starts if "kvstore.push_pull" in "".join(lines[i : i + 3]))
    after = next((i for i in starts if i > first), len(lines))
    suite.write_text("".join((*lines[:first], *lines[after:])))
    said = tmp_path / "report.json"
    done = spbench(
        tree, "run", "suites/smoke.yaml", "--headless", "--home", str(tmp_path), "--json", str(said)
    )
    assert done.returncode == 0, done.stdout + done.stderr
    cases = json.loads(said.read_text())["cases"]
    assert len(cases) == 19
    assert {case["status"] for case in cases} == {"passed"}
