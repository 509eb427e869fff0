"""The run that the demo plays: a recorded one that comes with spbench."""

from __future__ import annotations

from pathlib import Path

import spbench
from spbench.record.folder import RunFolder


def demo_run() -> RunFolder:
    """Return the folder of the demo's run (`python -m benchmarks.record_demo` records it)."""
    return RunFolder(Path(spbench.__file__).parent / "demo")
