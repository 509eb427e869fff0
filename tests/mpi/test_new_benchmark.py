"""A benchmark that is added to a copy of the tree runs, and touches its family's folders only."""

import sys

import pytest

from benchmarks import new_benchmark

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(120)]


def test_a_new_benchmark_touches_its_family_its_tests_and_its_page(monkeypatch, capsys):
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
