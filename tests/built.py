"""Programs in C that tests build with the library whose ranks they are to be."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from places import TESTS

WORLD = TESTS / "data" / "programs" / "world.c"


def built_world(mpicc: Path, folder: Path) -> Path:
    """Return the MPI program that tells how many ranks there are; without a compiler skip."""
    if not mpicc.exists() or shutil.which("gcc") is None:
        pytest.skip(f"no {mpicc}, or no gcc: no MPI program can be built")
    program = folder / "world"
    subprocess.run([str(mpicc), str(WORLD), "-o", str(program)], check=True)
    return program


def suite_with_world(program: Path, folder: Path, np: int = 2) -> str:
    """Write a suite whose case runs the program twice, each time on so many ranks."""
    path = folder / "world.yaml"
    path.write_text(
        f"""schema: spbench.suite/1
name: world
cases:
  - name: world
    benchmark: program.run
    np: {np}
    repeat: 2
    params:
      argv: [{program}]
      must: ['^ranks {np} ', DONE]
      metrics: {{sum: {{pattern: 'sum (?P<value>\\d+)'}}}}
"""
    )
    return str(path)
