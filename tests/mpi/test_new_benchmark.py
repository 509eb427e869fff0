"""A new benchmark in a copy of the tree: it runs and changes only its family."""

import sys

import pytest

from benchmarks import new_benchmark

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(120)]


def test_new_benchmark_changes_only_its_family_tests_and_page(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["new_benchmark"])
    assert new_benchmark.main() == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.strip() for line in lines[1:]] == [
        "console/spbench/schemas/suite.schema.json (generated)",
        "docs/benchmarks.md",
        "tests/benchmarks/link/test_jitter.py",
        "workers/spbench_workers/benchmarks/link/entry.py",
        "workers/spbench_workers/benchmarks/link/jitter.py",
        "its test passes",
    ]
