"""Suites: from a YAML file to checked cases, every error with its place."""

from spbench.suites.case import DERIVED_METRICS, SCHEMA, STATISTICS, Case, Expectation, Suite
from spbench.suites.inject import faults_of, plant
from spbench.suites.loader import load, load_text
from spbench.suites.select import named, select
from spbench.suites.settings import LAUNCHERS, LaunchSettings

__all__ = [
    "DERIVED_METRICS",
    "LAUNCHERS",
    "SCHEMA",
    "STATISTICS",
    "Case",
    "Expectation",
    "LaunchSettings",
    "Suite",
    "faults_of",
    "load",
    "load_text",
    "named",
    "plant",
    "select",
]
