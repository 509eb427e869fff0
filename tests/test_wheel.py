"""The wheel, as pip builds it: it has the suites and hostfiles, and runs without the tree."""

import importlib.util
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from places import ROOT, SUITES

BACKEND = "hatchling"
"""What builds the wheel."""
pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the wheel's files."""
    folder = tmp_path_factory.mktemp("wheel")
    words = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"]
    here = importlib.util.find_spec(BACKEND) is not None
    words += ["--no-build-isolation"] if here else []
    done = subprocess.run(
        [*words, "--wheel-dir", str(folder), str(ROOT)],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    if not here and f"No matching distribution found for {BACKEND}" in done.stderr:
        pytest.skip(f"{BACKEND} is not installed, and no package index has it from here")
    assert done.returncode == 0, done.stderr
    (wheel,) = folder.glob("spbench-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def test_suites_hostfiles_and_the_demo_are_in_it(unpacked: Path) -> None:
    shipped = unpacked / "spbench" / "shipped"
    for place in ("suites", "hostfiles"):
        names = {path.name for path in (shipped / place).iterdir()}
        assert names == {path.name for path in (ROOT / place).iterdir()}
    assert (unpacked / "spbench" / "demo" / "events.jsonl").is_file()


def test_a_shipped_suite_is_read_without_the_tree(unpacked: Path, tmp_path: Path) -> None:
    environ = os.environ | {"PYTHONPATH": str(unpacked)}
    words = [sys.executable, "-m", "spbench"]
    for command in (["validate", "shipped:halo"], ["init", "here"], ["command", "shipped:smoke"]):
        done = subprocess.run(
            [*words, *command],
            cwd=tmp_path,
            env=environ,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    text = (tmp_path / "here" / "suites" / "halo.yaml").read_text()
    assert text == (SUITES / "halo.yaml").read_text()
