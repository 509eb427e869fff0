"""The help of each command of `benchmarks`."""

from __future__ import annotations

import subprocess
import sys

import pytest

from support.paths import ROOT

COMMANDS = sorted(
    path.stem
    for path in (ROOT / "benchmarks").glob("*.py")
    if 'if __name__ == "__main__"' in path.read_text() and not path.stem.endswith("_ranks")
)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("name", [*COMMANDS, "fuzz", "gpu_once", "preserved"])
def test_command_prints_its_help(name: str) -> None:
    completed = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{name}", "--help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert completed.returncode == 0, completed.stderr
    assert completed.stdout.startswith("usage: ")
