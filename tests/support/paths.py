"""Folders that tests read from."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
"""The repository."""
SUITES = ROOT / "suites"
"""The suites that spbench comes with."""
HOSTFILES = ROOT / "hostfiles"
DOCS = ROOT / "docs"
EXAMPLES = DOCS / "examples"
TESTS = ROOT / "tests"
PROGRAMS = TESTS / "mpi" / "programs"
"""Programs that tests start on ranks."""
STANDINS = TESTS / "standins"
"""Programs and devices that stand in for those of a cluster."""
TEST_SUITES = TESTS / "data" / "suites"
"""Suites that are wrong, or take long."""
RECORDED_RUNS = TESTS / "data" / "runs"
"""A run of each number of the formats, never written anew."""
SHARED_DATA = ROOT.parent / "shared" / "data"
"""Measured profiles and goldens, which are not everywhere."""
