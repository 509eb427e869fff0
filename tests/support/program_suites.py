"""Suites of programs in the ranks' place, and a program in C for them."""

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
    """Return the MPI program that tells how many ranks there are; without a compiler skip."""
    if not mpicc.exists() or shutil.which("gcc") is None:
        pytest.skip(f"no {mpicc}, or no gcc: no MPI program can be built")
    program = folder / "world"
    subprocess.run([str(mpicc), str(WORLD), "-o", str(program)], check=True)
    return program


def write_suite(cases: dict[str, dict[str, Any]], folder: Path, **more: Any) -> str:
    """Write a suite of programs by their names, each on two ranks; ``more`` has further keys."""
    entries = [
        {"name": name, "benchmark": "program.run", "np": 2, "params": params} | more.get(name, {})
        for name, params in cases.items()
    ]
    path = folder / "programs.yaml"
    whole = {"schema": "spbench.suite/1", "name": "programs", "order": "together"}
    path.write_text(json.dumps(whole | {"cases": entries}))
    return str(path)


def write_world_suite(program: Path, folder: Path, np: int = 2) -> str:
    """Write a suite whose case runs the program twice, each time on so many ranks."""
    world = {
        "argv": [str(program)],
        "must": [f"^ranks {np} ", "DONE"],
        "metrics": {"sum": {"pattern": r"sum (?P<value>\d+)"}},
    }
    return write_suite({"world": world}, folder, world={"np": np, "repeat": 2})
