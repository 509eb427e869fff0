"""Findings on ranks with another binding, host or adapter than requested."""

import pytest

from spbench.record.machine.misplaced import describe_misplaced
from support.sample_events import (
    build_state,
    case_judged,
    describe_case,
    job_start,
    rank_event,
    run_start,
)

SHOWN = "launch.args: [--report-bindings]"
ADVICE = f"check launch.args, setup lines and the container ({SHOWN} shows what openmpi does)"


def find_misplaced(*ranks, near=None, **request):
    """Return the findings on ranks; each rank is ``host, cpus, cores, nodes``.

    ``near`` is whether the GPU is on the rank's NUMA node; ``request`` is the job's request.
    """
    np = len(ranks)
    events = [
        run_start(describe_case(np=np, measures="job")),
        job_start(np=np, asked={"shown_by": SHOWN, **request}),
    ]
    for rank, (host, cpus, cores, nodes) in enumerate(ranks):
        fields = {"host": host, "cpus": cpus, "cores": cores, "nodes": nodes, "host_cpus": 4}
        events.append(rank_event("ready", rank, **fields, fabric="mlx5_0,mlx5_1"))
        events.append(rank_event("case_start", rank))
        events.append(rank_event("device", rank, device="cuda:0 H200", near=near))
    state = build_state([*events, case_judged()])
    return describe_misplaced(state.cases.values(), state.jobs)


SEPARATE_CORES = (("a", [0, 1], 1, [0]), ("a", [2, 3], 1, [1]))
ALL_CORES = (("a", [0, 1, 2, 3], 4, [0, 1]), ("a", [0, 1, 2, 3], 4, [0, 1]))


@pytest.mark.parametrize(
    ("bind", "ranks"),
    [
        *((bind, SEPARATE_CORES) for bind in ("core", "own", "numa", None)),
        ("none", ALL_CORES),
        (None, ALL_CORES),
        # one core on each of two hosts, with both of its hardware threads
        ("core", (("a", [0, 1], 1, [0]), ("b", [0, 1], 1, [0]))),
        # several cores per rank, as with MVAPICH2's policy "hybrid"
        ("own", (("a", [0, 1], 2, [0]), ("a", [2, 3], 2, [0]))),
        # a host with one core
        ("own", (("a", [0], 1, [0]), ("b", [0], 1, [0]))),
        # ranks of an older version do not report their NUMA nodes
        ("numa", (("a", [0, 1], 1, []), ("a", [2, 3], 1, []))),
        ("core", (("a", [], 1, []), ("a", [], 1, []))),
    ],
)
def test_effective_binding_has_no_finding(bind, ranks):
    assert find_misplaced(*ranks, bind=bind) == []


@pytest.mark.parametrize(
    ("bind", "ranks", "finding"),
    [
        (
            "core",
            ALL_CORES,
            "rank 0 on a (and 1 more rank) may run on CPUs 0-3, which are 4 cores, but bind: core "
            f"asks for one core of its own; {ADVICE}",
        ),
        (
            "own",
            (("a", [0, 1, 2, 3], 4, [0, 1]), ("b", [0], 1, [0])),
            "rank 0 on a may run on CPUs 0-3, all that its host has, but each rank "
            f"should have cores of its own; {ADVICE}",
        ),
        (
            "own",
            (("a", [0], 1, [0]), ("b", [1], 1, [0]), ("b", [1], 1, [0]), ("b", [1], 1, [0])),
            "rank 1 on b (and 2 more ranks) may run on CPUs 1, and so may another rank, but each "
            f"rank should have cores of its own; {ADVICE}",
        ),
        (
            "numa",
            (SEPARATE_CORES[0], ("b", [1, 2], 2, [0, 1])),
            "rank 1 on b may run on CPUs 1-2 of NUMA nodes 0, 1, but bind: numa asks "
            f"for CPUs of one NUMA node; {ADVICE}",
        ),
        (
            "none",
            (ALL_CORES[0], SEPARATE_CORES[1]),
            "rank 1 on a may run on CPUs 2-3 of 0-3 only, but bind: none asks for "
            f"all CPUs that ranks of its host have; {ADVICE}",
        ),
    ],
)
def test_ineffective_binding_names_rank_and_host(bind, ranks, finding):
    assert find_misplaced(*ranks, bind=bind) == [finding]


def test_reports_the_variable_that_disables_a_binding():
    [finding] = find_misplaced(*ALL_CORES, bind="core", undone_by="MV2_ENABLE_AFFINITY=0")
    assert finding.endswith(
        "; remove MV2_ENABLE_AFFINITY=0 from launch.env and from the environment"
    )


@pytest.mark.parametrize(
    ("hosts", "findings"),
    [
        ([["a", 2, None]], []),
        ([["alias", 2, "mlx5_1:1"]], []),
        (
            [["a", 2, "mlx5_7"]],
            [
                "rank 0 on a (and 1 more rank) has adapters mlx5_0,mlx5_1, but the hostfile gives "
                "mlx5_7 to a; name an adapter that it has, or none"
            ],
        ),
    ],
)
def test_compares_hosts_and_adapters_with_the_hostfile(hosts, findings):
    assert find_misplaced(*SEPARATE_CORES, hosts=hosts) == findings


def test_reports_rank_on_another_host_than_its_hostfile_line(messages):
    hosts = [["a", 2, None], ["b", 1, None]]
    [finding] = find_misplaced(
        SEPARATE_CORES[0], ("b", [0], 1, [0]), ("b", [1], 1, [0]), hosts=hosts
    )
    messages.check(finding)


def test_compares_each_host_of_a_case_with_its_own_job(messages):
    events = [run_start(describe_case(np=4, measures="job", shares=[2, 2]))]
    host_by_rank = ("a", "a", "b", "x")
    for job, host in enumerate(("a", "b"), 1):
        first_rank = 2 * (job - 1)
        request = {"shown_by": SHOWN, "hosts": [[host, 2, None]]}
        events.append(job_start(np=2, job=job, first_rank=first_rank, asked=request))
        for rank in (first_rank, first_rank + 1):
            fields = {"host": host_by_rank[rank], "job": job}
            events.append(rank_event("ready", rank, **fields))
            events.append(rank_event("case_start", rank, **fields))
    state = build_state([*events, case_judged()])
    [finding] = describe_misplaced(state.cases.values(), state.jobs)
    messages.check(finding)


def test_reports_gpu_of_another_numa_node_once(messages):
    [finding] = find_misplaced(*SEPARATE_CORES, near=False)
    messages.check(finding)


def test_merges_equal_findings_of_several_jobs(messages):
    cases = [describe_case(name, np=np) for name, np in (("a", 2), ("b", 3))]
    events = [run_start(*cases)]
    for job, (name, np) in enumerate((("a", 2), ("b", 3)), 1):
        events.append(job_start(name, np=np, job=job, asked={"bind": "core"}))
        for rank in range(np):
            fields = {"host": "a", "cpus": [0, 1, 2, 3], "cores": 4, "nodes": [0], "host_cpus": 4}
            events.append(rank_event("ready", rank, **fields))
            events.append(rank_event("case_start", rank, case=name))
        events.append(case_judged(name))
    state = build_state(events)
    [finding] = describe_misplaced(state.cases.values(), state.jobs)
    messages.check(finding)
