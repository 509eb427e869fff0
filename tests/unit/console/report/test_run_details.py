"""The facts about a run that explain its numbers."""

from dataclasses import replace

import pytest

from spbench.record.runs.marks import RunMark
from spbench.report.model import LaunchPart, LimitPart
from spbench.report.run_details import list_case_facts, list_run_facts
from spbench_core.events.statuses import CaseStatus
from support.sample_runs import make_case, make_run

ENVIRONMENT = {
    "load": 0.5,
    "load_after": 1.25,
    "memory_gib": 23.5,
    "python": "3.11.7",
    "spbench": "0.3.0",
    "fingerprint": {
        "id": "1" * 12,
        "hosts": [f"node0{index}" for index in range(6)],
        "processors": ["EPYC"],
        "cores": [64],
        "mpi": ["Open MPI v5.0.11"],
        "torch": ["2.13.0"],
    },
}


def test_lists_machine_versions_faults_and_failed_cases(messages):
    case = make_case("x")
    failed = case.model_copy(
        update={"id": "y", "status": CaseStatus.FAILED, "reason": "check sum failed"}
    )
    run = replace(make_run(case, failed), environment=ENVIRONMENT)
    summary = replace(
        run.summary,
        started=978337800.0,
        duration_s=65.0,
        argv=("run", "x.yaml", "--inject", "slow@x"),
        faults=("slow@x",),
    )
    run = replace(run, summary=summary)
    facts = list_run_facts(run, [RunMark.FAULT, RunMark.OTHER_MACHINE])
    messages.check([f"{fact.label}: {fact.text}" for fact in facts])


@pytest.mark.parametrize(
    ("jobs_of_cases", "expected"),
    [
        ([[0]], "1 launch"),
        ([[0], [1]], "2 launches"),
        ([[0, 1, 2], [0, 1, 2]], "3 launches"),
        ([[0, 2, 4], [1, 3, 5]], "6 launches, 3 of each case"),
        ([[0, 2, 4], [1, 3]], "5 launches, 2 to 3 of each case"),
        ([[]], "1 launch"),
    ],
)
def test_counts_all_launches_of_a_run(jobs_of_cases, expected):
    launch = LaunchPart(
        launcher="openmpi",
        version="5.0",
        argv=["mpirun"],
        hostfile=None,
        env={},
        job=0,
        oversubscribed=False,
    )
    cases = [
        make_case(f"x{index}").model_copy(update={"launch": launch, "launches": jobs})
        for index, jobs in enumerate(jobs_of_cases)
    ]
    facts = dict(list_run_facts(make_run(*cases)))
    assert facts["launcher"] == f"openmpi (5.0), {expected}"


def test_counts_cases_and_names_the_least_efficient():
    limit = LimitPart(value=1.0, unit="ms", measured_by="a copy")
    cases = [
        make_case(f"x{time}", {"time_ms": float(time)}).model_copy(
            update={"limits": {"time_ms": limit}, "noisy": "busy" if time == 2 else None}
        )
        for time in (4, 2, 10, 1)
    ]
    facts = dict(list_run_facts(make_run(*cases)))
    assert facts["cases"] == "4 passed"
    assert facts["noise"] == "other work used the cores in 1 of 4 cases"
    assert facts["ranks"] == "2"
    assert facts["efficiency"] == "lowest: x10 10 %, x4 25 %, x2 50 %"


def test_unknown_facts_are_left_out():
    assert {fact.label for fact in list_run_facts(make_run())} <= {"started", "took", "command"}


def test_lists_reason_checks_and_parameters_of_a_case(messages):
    case = make_case("x", params={"width": 4, "mode": "a", "unset": None}, reason="too slow")
    messages.check([f"{fact.label}: {fact.text}" for fact in list_case_facts(case)])
