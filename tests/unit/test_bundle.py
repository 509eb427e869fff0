"""The bundle for a machine without a network has all that spbench needs beside torch."""

import re
import subprocess
from importlib.metadata import PackageNotFoundError, requires

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from places import ROOT

MACHINES_OWN = {"torch", "numpy"}
"""Packages that a machine with GPUs has already, with all that these need."""


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


def test_it_has_what_running_and_testing_need():
    try:
        wanted = needed("spbench", ("", "workers", "mpi", "test"))
    except PackageNotFoundError as missing:
        pytest.skip(f"{missing} is not installed here: its needs are not known")
    # What drives a browser stays behind.
    browser = needed("selenium") | {"selenium"}
    shared = needed("pytest") | needed("jsonschema") | needed("textual") | needed("hypothesis")
    assert wanted - (browser - shared) <= bundled()


def test_it_leaves_out_torch_and_what_comes_with_it():
    assert not bundled() & (MACHINES_OWN | {"sympy", "networkx", "triton", "mypy", "ruff"})
    assert all(re.fullmatch(r"[a-z0-9-]+", name) for name in bundled())
