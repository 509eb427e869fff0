"""Whether the machines of two runs are the same."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from spbench.report.comparison.conditions import describe_machine_differences
from spbench.report.recorded import RecordedRun
from unit.results import case, run

PARTS = {"id": "1", "hosts": ["n1", "n2"], "processors": ["X"], "cores": [8], "mpi": ["Open MPI 5"]}


def on(**changes: Any) -> RecordedRun:
    made: RecordedRun = run(case())
    return replace(made, environment={"fingerprint": PARTS | {"torch": ["2.13"]} | changes})


@pytest.mark.parametrize(
    ("changes", "told"),
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
def test_what_differs_between_the_machines_is_told(
    changes: dict[str, Any], told: str | None
) -> None:
    assert describe_machine_differences(on(), on(**changes)) == told


def test_a_run_without_a_fingerprint_is_compared() -> None:
    assert describe_machine_differences(on(), run(case())) is None
    assert (
        describe_machine_differences(replace(on(), environment={"fingerprint": "?"}), on()) is None
    )
