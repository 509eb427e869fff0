"""Suites that start programs as ranks, and an MPI program in C."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from support.paths import TESTS

WORLD = TESTS / "data" / "programs" / "world.c"


def build_world(mpicc: Path, folder: Path) -> Path:
    """Build the MPI program that prints the number of ranks; skip without a compiler."""
    if not mpicc.exists() or shutil.which("gcc") is None:
        pytest.skip(f"no {mpicc}, or no gcc: no MPI program can be built")
    program = folder / "world"
    subprocess.run([str(mpicc), str(WORLD), "-o", str(program)], check=True)
    return program


def write_suite(cases: dict[str, dict[str, Any]], folder: Path, **more: Any) -> str:
    """Write a suite of programs on two ranks each.

    Args:
        cases: The parameters of each case by its name.
        folder: The folder of the suite.
        more: Further keys of a case by its name.
    """
    entries = [
        {"name": name, "benchmark": "program.run", "np": 2, "params": params} | more.get(name, {})
        for name, params in cases.items()
    ]
    path = folder / "programs.yaml"
    head = {"schema": "spbench.suite/1", "name": "programs", "order": "together"}
    path.write_text(json.dumps(head | {"cases": entries}))
    return str(path)


def write_world_suite(program: Path, folder: Path, np: int = 2) -> str:
    """Write a suite that runs the program twice on ``np`` ranks."""
    world = {
        "argv": [str(program)],
        "must": [f"^ranks {np} ", "DONE"],
        "metrics": {"sum": {"pattern": r"sum (?P<value>\d+)"}},
    }
    return write_suite({"world": world}, folder, world={"np": np, "repeat": 2})
