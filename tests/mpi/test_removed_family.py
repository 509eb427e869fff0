"""A tree without one family of benchmarks: all other benchmarks still work."""

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


def spbench(tree, *arguments):
    """Run spbench from the sources of a tree."""
    sources = os.pathsep.join(str(tree / name) for name in ("core", "console", "workers"))
    return subprocess.run(
        [sys.executable, "-m", "spbench", *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=tree,
        env=os.environ | {"PYTHONPATH": sources},
    )


def test_validate_names_cases_of_the_removed_family(tree):
    lines = (tree / "suites/smoke.yaml").read_text().splitlines()
    line = next(number for number, row in enumerate(lines, 1) if "kvstore.push_pull" in row)
    process = spbench(tree, "validate", "suites/smoke.yaml")
    assert process.returncode == 2
    assert re.search(rf"suites/smoke\.yaml:{line}:\d+: .*kvstore\.push_pull", process.stderr), (
        process.stderr
    )
    assert process.stderr.count("suites/smoke.yaml:") == 1


def test_networks_are_still_listed(tree):
    process = spbench(tree, "networks")
    assert process.returncode == 0, process.stderr
    assert "resnet" in process.stdout


@pytest.mark.long
def test_all_other_smoke_cases_pass(tree, tmp_path):
    suite = tree / "suites/smoke.yaml"
    lines = suite.read_text().splitlines(keepends=True)
    starts = [index for index, line in enumerate(lines) if re.match(r"  - ", line)]
    begin = next(i for i in starts if "kvstore.push_pull" in "".join(lines[i : i + 3]))
    end = next((i for i in starts if i > begin), len(lines))
    suite.write_text("".join((*lines[:begin], *lines[end:])))
    report_path = tmp_path / "report.json"
    process = spbench(
        tree,
        "run",
        "suites/smoke.yaml",
        "--headless",
        "--home",
        str(tmp_path),
        "--json",
        str(report_path),
    )
    assert process.returncode == 0, process.stdout + process.stderr
    cases = json.loads(report_path.read_text())["cases"]
    assert len(cases) == 19
    assert {case["status"] for case in cases} == {"passed"}
