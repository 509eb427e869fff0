"""Conditions of a run that a comparison warns about."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spbench.record.runs.folder import RunFolder
from spbench.report.comparison.compare import compare
from spbench.report.comparison.conditions import find_conditions, find_faults
from spbench.report.model import LaunchPart
from support.sample_runs import make_case, make_run, make_summary

CROWDED = LaunchPart(
    launcher="openmpi",
    version="5",
    argv=[],
    hostfile=None,
    env={},
    job=1,
    oversubscribed=True,
)


@pytest.mark.parametrize(
    ("argv", "faults"),
    [
        ((), ()),
        (("run", "x.yaml", "--inject", "slow"), ("slow",)),
        (("run", "x.yaml", "--inject=slow@exchange", "--inject", "hang@b"), ("slow", "hang")),
    ],
)
def test_finds_injected_faults_in_the_command_line(
    argv: tuple[str, ...], faults: tuple[str, ...]
) -> None:
    descriptions = find_faults(make_summary(argv=argv))
    assert sorted(fault.split()[0] for fault in descriptions) == sorted(faults)


def test_fault_description_has_its_case() -> None:
    argv = ("run", "x.yaml", "--inject", "slow=1.1@exchange[halo_len=3]")
    assert find_faults(make_summary(argv=argv)) == ("slow=1.1 (case exchange[halo_len=3])",)


def test_finds_faults_of_a_rerun_of_failed_cases(tmp_path: Path, messages) -> None:
    folder = RunFolder(tmp_path / "20260101-000000-x-0001")
    folder.path.mkdir()
    content: dict[str, Any] = {"id": folder.id, "request": {"inject": ["slow@a"]}}
    (folder.path / "run.json").write_text(json.dumps(content))
    argv = ("run", "--failed", "last")
    failed = make_summary(id=folder.id, folder=folder, argv=argv)
    messages.check(find_faults(failed))
    other_run = replace(failed, id="another")
    assert find_faults(other_run) == ()


def test_finds_noisy_and_oversubscribed_cases() -> None:
    conditions = find_conditions(
        make_run(make_case("a", noisy="why"), make_case("b", launch=CROWDED), make_case("c"))
    )
    assert conditions.noise == {"a": "why"}
    assert [conditions.is_disturbed(id_) for id_ in "abc"] == [True, True, False]


def test_comparison_lists_different_benchmark_versions() -> None:
    comparison = compare(
        make_run(make_case("a"), make_case("b")),
        make_run(make_case("a", version=2), make_case("b")),
    )
    assert comparison.versions == {"made.up has version 1 in a, 2 in b": ("a",)}
