"""Layers of the modules of a family, which a file next to its tests names."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from places import ROOT

HERE = Path(__file__).parent


@pytest.mark.slow
@pytest.mark.parametrize("family", sorted(path.parent.name for path in HERE.glob("*/layers.toml")))
def test_modules_of_a_family_import_only_downwards(family: str) -> None:
    pytest.importorskip("importlinter", reason="it is in the extra dev")
    sources = (ROOT / name for name in ("core", "console", "workers"))
    done = subprocess.run(
        [
            Path(sys.executable).with_name("lint-imports"),
            "--no-cache",
            "--config",
            HERE / family / "layers.toml",
        ],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, sources))},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
