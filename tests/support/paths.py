"""Folders that tests use."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
"""The repository."""
SUITES = ROOT / "suites"
"""The suites of spbench."""
HOSTFILES = ROOT / "hostfiles"
DOCS = ROOT / "docs"
EXAMPLES = DOCS / "examples"
TESTS = ROOT / "tests"
PROGRAMS = TESTS / "mpi" / "programs"
"""Programs that tests start on ranks."""
STANDINS = TESTS / "standins"
"""Stand-ins for the programs and devices of a cluster."""
TEST_SUITES = TESTS / "data" / "suites"
"""Suites with faults, and suites that take long."""
RECORDED_RUNS = TESTS / "data" / "runs"
"""A recorded run of each version of the formats; these are never regenerated."""
SHARED_DATA = ROOT.parent / "shared" / "data"
"""Measured profiles and outputs of HPGO. Some machines lack this folder."""
