"""Wheel and sdist, as pip builds them: both hold what is needed, and run without the tree."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from spbench import __version__
from support.paths import ROOT, SUITES
from support.tui.tmux import Tmux

pytest.importorskip("hatchling", reason="hatchling, which builds the wheel, is not installed")
pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
CONSTRAINTS = ("--constraint", str(ROOT / "constraints.txt"))
NO_INDEX = ("Failed to establish a new connection", "Temporary failure in name resolution")
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def did(*words: object, cwd: Path, **env: str) -> str:
    """Run a command that must succeed, and return what it printed."""
    done = subprocess.run(
        [str(word) for word in words],
        cwd=cwd,
        env=os.environ | AS_ROOT | env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{words}\n{done.stdout}{done.stderr}"
    return done.stdout


def wheel_of(source: Path, folder: Path) -> Path:
    """The wheel that pip builds of a tree or an sdist, with the hatchling of this environment."""
    words = ["-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    did(sys.executable, *words, "--wheel-dir", folder, source, cwd=folder.parent)
    (wheel,) = folder.glob("spbench-*.whl")
    return wheel


def files_in(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tree's wheel."""
    return wheel_of(ROOT, tmp_path_factory.mktemp("built") / "wheel")


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sdist")
    did(sys.executable, "-m", "hatchling", "build", "--target", "sdist", "-d", folder, cwd=ROOT)
    (archive,) = folder.glob("spbench-*.tar.gz")
    return archive


@pytest.fixture(scope="module")
def unpacked(built: Path) -> Path:
    """The folder of the wheel's files."""
    with zipfile.ZipFile(built) as archive:
        archive.extractall(built.parent / "site")
    return built.parent / "site"


def test_suites_hostfiles_schema_and_the_demo_are_in_it(unpacked: Path) -> None:
    shipped = unpacked / "spbench" / "shipped"
    for place in ("suites", "hostfiles"):
        names = {path.name for path in (shipped / place).iterdir()}
        assert names == {path.name for path in (ROOT / place).iterdir()}
    assert (unpacked / "spbench" / "demo" / "events.jsonl").is_file()
    assert (unpacked / "spbench" / "schemas" / "suite.schema.json").is_file()


def test_a_shipped_suite_is_read_without_the_tree(unpacked: Path, tmp_path: Path) -> None:
    words = (sys.executable, "-m", "spbench")
    for command in (["validate", "shipped:halo"], ["init", "here"], ["command", "shipped:smoke"]):
        did(*words, *command, cwd=tmp_path, PYTHONPATH=str(unpacked))
    text = (tmp_path / "here" / "suites" / "halo.yaml").read_text()
    assert text == (SUITES / "halo.yaml").read_text()


def test_the_sdist_makes_the_same_wheel_where_no_git_is(
    built: Path, sdist: Path, tmp_path: Path
) -> None:
    again = wheel_of(sdist, tmp_path / "again")
    assert again.name == built.name
    assert files_in(again) == files_in(built)


def test_the_sdist_has_what_git_has_and_nothing_more(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    tracked = did("git", "ls-files", "--cached", "--others", "--exclude-standard", cwd=ROOT)
    assert names - {"PKG-INFO"} == set(tracked.splitlines())


@pytest.fixture(scope="module")
def installed(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of a fresh environment, into which the README's line has put the wheel."""
    folder = tmp_path_factory.mktemp("fresh")
    line = r"^pip install --constraint constraints.txt '\.(\[[a-z,]+\])'$"
    (extras,) = re.findall(line, (ROOT / "README.md").read_text(), re.M)
    did(sys.executable, "-m", "venv", folder, cwd=folder)
    words = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    try:
        did(folder / "bin/python", *words, *CONSTRAINTS, f"{built}{extras}", cwd=folder)
    except AssertionError as error:
        if any(word in str(error) for word in NO_INDEX):
            pytest.skip("no package index can be reached from here")
        raise
    return folder / "bin"


def test_the_wheel_tells_the_version_that_the_tree_has(installed: Path, tmp_path: Path) -> None:
    told = did(installed / "python", "-m", "spbench", "--version", cwd=tmp_path)
    assert told == did(installed / "spbench", "--version", cwd=tmp_path)
    program = "import importlib.metadata as it; print('spbench', it.version('spbench'))"
    assert told == did(installed / "python", "-c", program, cwd=tmp_path)
    release = re.match(r"spbench (\d+)\.(\d+)", told)
    assert release is not None
    assert f"spbench {__version__}".startswith(release[0])


def test_the_doctor_finds_every_extra_and_names_one_that_is_taken_away(
    installed: Path, tmp_path: Path
) -> None:
    doctor = (installed / "spbench", "doctor")
    assert "nothing is missing: workers, mpi, serve" in did(*doctor, cwd=tmp_path)
    python = installed / "python"
    did(python, "-m", "pip", "uninstall", "--quiet", "--yes", "textual-serve", cwd=tmp_path)
    told = did(*doctor, cwd=tmp_path)
    mend = re.search(r"extra serve .*\n +fix: (.*)", told)
    assert mend is not None, told
    assert mend[1] == f"{python} -m pip install 'spbench[serve]'"
    # pip splits the variable at spaces, which the path of the tree may have.
    constraints = str(shutil.copy(CONSTRAINTS[1], tmp_path))
    did("bash", "-c", mend[1], cwd=tmp_path, PIP_CONSTRAINT=constraints)
    assert "nothing is missing: workers, mpi, serve" in did(*doctor, cwd=tmp_path)


@pytest.mark.mpi
def test_a_shipped_suite_runs_from_the_wheel_alone(installed: Path, tmp_path: Path) -> None:
    did(installed / "spbench", "init", "bench", cwd=tmp_path)
    assert (tmp_path / "bench" / "hostfiles" / "local.hosts").is_file()
    told = did(installed / "spbench", "run", "shipped:halo", "--headless", cwd=tmp_path)
    assert "passed: 12 passed" in told


@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
def test_the_demo_plays_from_the_wheel_alone(installed: Path, tmp_path: Path) -> None:
    words = [str(installed / "spbench"), "tui", "--demo", "--home", str(tmp_path)]
    terminal = Tmux(tmp_path, 120, 40, words)
    try:
        terminal.wait_for("sim01")
        terminal.press("q")
        terminal.wait_for("left with 0")
    finally:
        terminal.close()
