"""The bundle for a machine without a package registry: its wheels and their environment."""

import os
import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from support.paths import EXAMPLES, ROOT

MACHINES_OWN = {"torch", "numpy"}
"""Packages that a machine with GPUs has already, with all that these need."""
MOST_BYTES = 30_000_000
UNNEEDED = {"hatchling", "mypy", "pandas", "pyarrow", "ruff", "safetensors", "scipy", "selenium"}
"""Packages that no run needs, most of them large."""
UNFIT = MACHINES_OWN | {"torchvision", "triton", "sympy", "networkx"}
"""Packages of the machine, which fit its torch; a second copy would hide them."""


def bundled():
    done = subprocess.run(
        ["docs/examples/bundle.sh", "--list"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return {canonicalize_name(line.partition("==")[0]) for line in done.stdout.split()}


def needed(name, extras=("",), seen=None):
    """The distributions that one needs, here, directly or not, but for those of the machine."""
    seen = set() if seen is None else seen
    for line in requires(name) or []:
        wanted = Requirement(line)
        other = canonicalize_name(wanted.name)
        applies = wanted.marker is None or any(
            wanted.marker.evaluate({"extra": extra}) for extra in extras
        )
        if applies and other not in seen | MACHINES_OWN:
            seen.add(other)
            needed(other, ("", *wanted.extras), seen)
    return seen


def test_it_has_what_a_run_needs():
    try:
        wanted = needed("spbench", ("", "workers", "mpi"))
    except PackageNotFoundError as missing:
        pytest.skip(f"{missing} is not installed here: its needs are not known")
    assert wanted <= bundled()


def test_it_has_what_the_tests_of_devices_need():
    names = ["pytest", "pytest-asyncio", "pytest-timeout", "pytest-xdist", "hypothesis"]
    wanted = set(names).union(*map(needed, names))
    assert wanted <= bundled()


def test_it_leaves_out_what_the_machine_has_or_no_run_needs():
    assert not bundled() & (UNFIT | UNNEEDED)
    assert all(re.fullmatch(r"[a-z0-9-]+", name) for name in bundled())


@pytest.fixture
def tree(tmp_path):
    """A copy of the project's root with an empty folder of wheels."""
    root = tmp_path / "a tree"
    (root / ".whl").mkdir(parents=True)
    for name in ("core", "console", "workers", "docs", "constraints.txt"):
        (root / name).symlink_to(ROOT / name)
    (root / ".whl/setup").write_text((EXAMPLES / "setup.sh").read_text())
    return root


@pytest.fixture
def enter(tree):
    """Run commands in a shell that has sourced the set-up script, with this Python in its PATH."""

    def enter(commands):
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        return subprocess.run(
            ["bash", "-c", f". .whl/setup && {commands}"],
            cwd=tree,
            env={"PATH": path, "HOME": str(tree)},
            capture_output=True,
            text=True,
            timeout=100,
        )

    return enter


@pytest.mark.slow
@pytest.mark.skipif(sys.prefix == sys.base_prefix, reason="this Python is no environment's")
def test_its_setup_finds_all_packages_of_the_tree(tree, enter):
    pytest.importorskip("torch")
    packages = "spbench_core, spbench, spbench_workers"
    show = f"import {packages}; print(*(p.__file__ for p in ({packages})), sep='\\n')"
    for _ in range(2):  # the second time the environment is there
        done = enter(f'python -c "{show}" && spbench --version && command -v python')
        assert done.returncode == 0, done.stderr
        torch, *files, version, python = done.stdout.splitlines()
        assert torch.startswith("torch ")
        assert [Path(file).is_relative_to(tree) for file in files] == [True] * 3
        assert version.startswith("spbench ")
        assert python == f"{tree}/.whl/env/bin/python"


@pytest.mark.slow
@pytest.mark.long
def test_it_is_small_enough_to_be_carried(tree):
    done = subprocess.run(
        ["docs/examples/bundle.sh"], cwd=tree, capture_output=True, text=True, timeout=300
    )
    if "No matching distribution" in done.stderr:
        pytest.skip(f"no package index is reached: {done.stderr.splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    wheels = list((tree / ".whl").glob("*.whl"))
    assert len(wheels) == len(bundled())
    assert sum(wheel.stat().st_size for wheel in wheels) <= MOST_BYTES
    assert (tree / ".whl/setup").read_text() == (EXAMPLES / "setup.sh").read_text()


@pytest.mark.slow
def test_a_bundle_that_is_too_large_is_an_error_that_names_its_largest_wheel(tree, tmp_path):
    python = tmp_path / "bin/python3"
    python.parent.mkdir()
    python.write_text("#!/bin/sh\nhead -c 31000000 /dev/zero >.whl/large-1-py3-none-any.whl\n")
    python.chmod(0o755)
    path = f"{python.parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["docs/examples/bundle.sh"], cwd=tree, env={"PATH": path}, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "error: .whl has more than 30 MB" in done.stderr
    assert "large-1-py3-none-any.whl" in done.stderr
