"""Wheel and sdist as built by pip: contents, and use without the tree."""

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


def run_command(*command: object, cwd: Path, **env: str) -> str:
    """Run a command that must succeed, and return its standard output."""
    completed = subprocess.run(
        [str(argument) for argument in command],
        cwd=cwd,
        env=os.environ | AS_ROOT | env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert completed.returncode == 0, f"{command}\n{completed.stdout}{completed.stderr}"
    return completed.stdout


def build_wheel(source: Path, folder: Path) -> Path:
    """Build the wheel of a tree or an sdist with pip and this environment's hatchling."""
    arguments = ["-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    run_command(sys.executable, *arguments, "--wheel-dir", folder, source, cwd=folder.parent)
    (wheel,) = folder.glob("spbench-*.whl")
    return wheel


def read_files(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel of the tree."""
    return build_wheel(ROOT, tmp_path_factory.mktemp("built") / "wheel")


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sdist")
    run_command(
        sys.executable, "-m", "hatchling", "build", "--target", "sdist", "-d", folder, cwd=ROOT
    )
    (archive,) = folder.glob("spbench-*.tar.gz")
    return archive


@pytest.fixture(scope="module")
def unpacked_wheel(wheel: Path) -> Path:
    """Return the folder of the wheel's files."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(wheel.parent / "site")
    return wheel.parent / "site"


def test_wheel_has_suites_hostfiles_schema_and_demo(unpacked_wheel: Path) -> None:
    shipped = unpacked_wheel / "spbench" / "shipped"
    for folder in ("suites", "hostfiles"):
        names = {path.name for path in (shipped / folder).iterdir()}
        assert names == {path.name for path in (ROOT / folder).iterdir()}
    assert (unpacked_wheel / "spbench" / "demo" / "events.jsonl").is_file()
    assert (unpacked_wheel / "spbench" / "schemas" / "suite.schema.json").is_file()


def test_wheel_reads_a_shipped_suite_without_the_tree(unpacked_wheel: Path, tmp_path: Path) -> None:
    module_command = (sys.executable, "-m", "spbench")
    for command in (["validate", "shipped:halo"], ["init", "here"], ["command", "shipped:smoke"]):
        run_command(*module_command, *command, cwd=tmp_path, PYTHONPATH=str(unpacked_wheel))
    text = (tmp_path / "here" / "suites" / "halo.yaml").read_text()
    assert text == (SUITES / "halo.yaml").read_text()


def test_sdist_builds_the_same_wheel_without_git(wheel: Path, sdist: Path, tmp_path: Path) -> None:
    rebuilt = build_wheel(sdist, tmp_path / "again")
    assert rebuilt.name == wheel.name
    assert read_files(rebuilt) == read_files(wheel)


def test_sdist_has_exactly_the_files_of_git(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    tracked = run_command("git", "ls-files", "--cached", "--others", "--exclude-standard", cwd=ROOT)
    assert names - {"PKG-INFO"} == set(tracked.splitlines())


@pytest.fixture(scope="module")
def installed_bin(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the programs of a fresh environment with the wheel.

    The README's command installs it.
    """
    folder = tmp_path_factory.mktemp("fresh")
    line = r"^pip install --constraint constraints.txt '\.(\[[a-z,]+\])'$"
    (extras,) = re.findall(line, (ROOT / "README.md").read_text(), re.M)
    run_command(sys.executable, "-m", "venv", folder, cwd=folder)
    arguments = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    try:
        run_command(folder / "bin/python", *arguments, *CONSTRAINTS, f"{wheel}{extras}", cwd=folder)
    except AssertionError as error:
        if any(text in str(error) for text in NO_INDEX):
            pytest.skip("no package index can be reached from here")
        raise
    return folder / "bin"


def test_wheel_has_the_version_of_the_tree(installed_bin: Path, tmp_path: Path) -> None:
    version = run_command(installed_bin / "python", "-m", "spbench", "--version", cwd=tmp_path)
    assert version == run_command(installed_bin / "spbench", "--version", cwd=tmp_path)
    program = "import importlib.metadata as it; print('spbench', it.version('spbench'))"
    assert version == run_command(installed_bin / "python", "-c", program, cwd=tmp_path)
    release = re.match(r"spbench (\d+)\.(\d+)", version)
    assert release is not None
    assert f"spbench {__version__}".startswith(release[0])


def test_doctor_finds_extras_and_reports_a_removed_one(installed_bin: Path, tmp_path: Path) -> None:
    doctor = (installed_bin / "spbench", "doctor")
    assert "nothing is missing: workers, mpi, serve" in run_command(*doctor, cwd=tmp_path)
    python = installed_bin / "python"
    run_command(python, "-m", "pip", "uninstall", "--quiet", "--yes", "textual-serve", cwd=tmp_path)
    output = run_command(*doctor, cwd=tmp_path)
    remedy = re.search(r"extra serve .*\n +fix: (.*)", output)
    assert remedy is not None, output
    assert remedy[1] == f"{python} -m pip install 'spbench[serve]'"
    # pip splits the variable at spaces, which the path of the tree may have.
    constraints = str(shutil.copy(CONSTRAINTS[1], tmp_path))
    run_command("bash", "-c", remedy[1], cwd=tmp_path, PIP_CONSTRAINT=constraints)
    assert "nothing is missing: workers, mpi, serve" in run_command(*doctor, cwd=tmp_path)


@pytest.mark.mpi
def test_shipped_suite_runs_from_the_wheel(installed_bin: Path, tmp_path: Path) -> None:
    run_command(installed_bin / "spbench", "init", "bench", cwd=tmp_path)
    assert (tmp_path / "bench" / "hostfiles" / "local.hosts").is_file()
    output = run_command(
        installed_bin / "spbench", "run", "shipped:halo", "--headless", cwd=tmp_path
    )
    assert "passed: 12 passed" in output


@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
def test_demo_plays_from_the_wheel(installed_bin: Path, tmp_path: Path) -> None:
    arguments = [str(installed_bin / "spbench"), "tui", "--demo", "--home", str(tmp_path)]
    terminal = Tmux(tmp_path, 120, 40, arguments)
    try:
        terminal.wait_for_text("sim01")
        terminal.press("C-q")
        terminal.wait_for_text("left with 0")
    finally:
        terminal.close()
