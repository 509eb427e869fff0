"""Differences between the machines of two runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from spbench.report.comparison.conditions import describe_machine_differences
from spbench.report.recorded import RecordedRun
from support.sample_runs import make_case, make_run

FINGERPRINT = {
    "id": "1",
    "hosts": ["n1", "n2"],
    "processors": ["X"],
    "cores": [8],
    "mpi": ["Open MPI 5"],
}


def make_changed_run(**changes: Any) -> RecordedRun:
    base: RecordedRun = make_run(make_case())
    return replace(base, environment={"fingerprint": FINGERPRINT | {"torch": ["2.13"]} | changes})


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, None),
        ({"id": "2"}, None),
        ({"hosts": ["n1", "n3"]}, "hosts n1, n2 in a, n1, n3 in b"),
        (
            {"cores": [8, 16], "torch": []},
            "cores 8 in a, 8, 16 in b; torch 2.13 in a, unknown in b",
        ),
    ],
)
def test_reports_differences_between_machines(
    changes: dict[str, Any], expected: str | None
) -> None:
    assert describe_machine_differences(make_changed_run(), make_changed_run(**changes)) == expected


def test_run_without_a_fingerprint_has_no_differences() -> None:
    assert describe_machine_differences(make_changed_run(), make_run(make_case())) is None
    assert (
        describe_machine_differences(
            replace(make_changed_run(), environment={"fingerprint": "?"}), make_changed_run()
        )
        is None
    )
