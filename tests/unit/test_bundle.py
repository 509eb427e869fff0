"""The bundle of wheels for a machine without a package registry."""

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

MACHINE_PACKAGES = {"torch", "numpy"}
"""Packages that a machine with GPUs has already, with their requirements."""
MAX_BYTES = 30_000_000
UNNEEDED = {"hatchling", "mypy", "pandas", "pyarrow", "ruff", "safetensors", "scipy", "selenium"}
"""Packages that no run needs, most of them large."""
UNSUITABLE = MACHINE_PACKAGES | {"torchvision", "triton", "sympy", "networkx"}
"""Packages of the machine that match its torch. A second copy would hide them."""


def list_bundled():
    completed = subprocess.run(
        ["docs/examples/bundle.sh", "--list"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return {canonicalize_name(line.partition("==")[0]) for line in completed.stdout.split()}


def list_required(name, extras=("",), names=None):
    """Return the installed distributions that one requires, directly or not.

    Packages of the machine and their requirements are left out.
    """
    names = set() if names is None else names
    for line in requires(name) or []:
        requirement = Requirement(line)
        required_name = canonicalize_name(requirement.name)
        applies = requirement.marker is None or any(
            requirement.marker.evaluate({"extra": extra}) for extra in extras
        )
        if applies and required_name not in names | MACHINE_PACKAGES:
            names.add(required_name)
            list_required(required_name, ("", *requirement.extras), names)
    return names


def test_bundle_has_the_requirements_of_a_run():
    try:
        expected = list_required("spbench", ("", "workers", "mpi"))
    except PackageNotFoundError as missing:
        pytest.skip(f"{missing} is not installed here: its needs are not known")
    assert expected <= list_bundled()


def test_bundle_has_the_requirements_of_device_tests():
    names = ["pytest", "pytest-asyncio", "pytest-timeout", "pytest-xdist", "hypothesis"]
    expected = set(names).union(*map(list_required, names))
    assert expected <= list_bundled()


def test_bundle_omits_machine_and_unneeded_packages():
    assert not list_bundled() & (UNSUITABLE | UNNEEDED)
    assert all(re.fullmatch(r"[a-z0-9-]+", name) for name in list_bundled())


@pytest.fixture
def project_copy(tmp_path):
    """Make a copy of the project's root with an empty folder of wheels."""
    root = tmp_path / "a tree"
    (root / ".whl").mkdir(parents=True)
    for name in ("core", "console", "workers", "docs", "constraints.txt"):
        (root / name).symlink_to(ROOT / name)
    (root / ".whl/setup").write_text((EXAMPLES / "setup.sh").read_text())
    return root


@pytest.fixture
def run_in_environment(project_copy):
    """Run commands in a shell that has sourced the set-up script.

    The folder of this Python is first in its PATH.
    """

    def run_in_environment(commands):
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        return subprocess.run(
            ["bash", "-c", f". .whl/setup && {commands}"],
            cwd=project_copy,
            env={"PATH": path, "HOME": str(project_copy)},
            capture_output=True,
            text=True,
            timeout=100,
        )

    return run_in_environment


@pytest.mark.slow
@pytest.mark.skipif(sys.prefix == sys.base_prefix, reason="this Python is no environment's")
def test_setup_script_uses_the_packages_of_the_tree(project_copy, run_in_environment):
    pytest.importorskip("torch")
    packages = "spbench_core, spbench, spbench_workers"
    program = f"import {packages}; print(*(p.__file__ for p in ({packages})), sep='\\n')"
    for _ in range(2):  # the second time the environment exists
        completed = run_in_environment(
            f'python -c "{program}" && spbench --version && command -v python'
        )
        assert completed.returncode == 0, completed.stderr
        torch, *files, version, python = completed.stdout.splitlines()
        assert torch.startswith("torch ")
        assert [Path(file).is_relative_to(project_copy) for file in files] == [True] * 3
        assert version.startswith("spbench ")
        assert python == f"{project_copy}/.whl/env/bin/python"


@pytest.mark.slow
@pytest.mark.long
def test_bundle_is_below_its_size_limit(project_copy):
    completed = subprocess.run(
        ["docs/examples/bundle.sh"], cwd=project_copy, capture_output=True, text=True, timeout=300
    )
    if "No matching distribution" in completed.stderr:
        pytest.skip(f"no package index is reached: {completed.stderr.splitlines()[-1]}")
    assert completed.returncode == 0, completed.stderr
    wheels = list((project_copy / ".whl").glob("*.whl"))
    assert len(wheels) == len(list_bundled())
    assert sum(wheel.stat().st_size for wheel in wheels) <= MAX_BYTES
    assert (project_copy / ".whl/setup").read_text() == (EXAMPLES / "setup.sh").read_text()


@pytest.mark.slow
def test_oversized_bundle_is_an_error_with_its_largest_wheel(project_copy, tmp_path):
    python = tmp_path / "bin/python3"
    python.parent.mkdir()
    python.write_text("#!/bin/sh\nhead -c 31000000 /dev/zero >.whl/large-1-py3-none-any.whl\n")
    python.chmod(0o755)
    path = f"{python.parent}:{os.environ['PATH']}"
    completed = subprocess.run(
        ["docs/examples/bundle.sh"],
        cwd=project_copy,
        env={"PATH": path},
        capture_output=True,
        text=True,
    )
    assert completed.returncode == 1
    assert "error: .whl has more than 30 MB" in completed.stderr
    assert "large-1-py3-none-any.whl" in completed.stderr
