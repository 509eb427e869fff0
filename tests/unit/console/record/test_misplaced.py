"""Sentences on ranks that are not where their job asked for."""

import pytest

from spbench.record.machine.misplaced import describe_misplaced
from unit.events import described, job_start, judged, rank_event, run_start, state_of

SHOWN = "launch.args: [--report-bindings]"
LOOK = f"check launch.args, setup lines and the container ({SHOWN} shows what openmpi does)"


def told(*ranks, near=None, **asked):
    """Findings on ranks that told ``host, cpus, cores, nodes``, and what was asked of them."""
    np = len(ranks)
    events = [
        run_start(described(np=np, measures="job")),
        job_start(np=np, asked={"shown_by": SHOWN, **asked}),
    ]
    for rank, (host, cpus, cores, nodes) in enumerate(ranks):
        where = {"host": host, "cpus": cpus, "cores": cores, "nodes": nodes, "host_cpus": 4}
        events.append(rank_event("ready", rank, **where, fabric="mlx5_0,mlx5_1"))
        events.append(rank_event("case_start", rank))
        events.append(rank_event("device", rank, device="cuda:0 H200", near=near))
    state = state_of([*events, judged()])
    return describe_misplaced(state.cases.values(), state.jobs)


APART = (("a", [0, 1], 1, [0]), ("a", [2, 3], 1, [1]))
WHOLE = (("a", [0, 1, 2, 3], 4, [0, 1]), ("a", [0, 1, 2, 3], 4, [0, 1]))


@pytest.mark.parametrize(
    ("bind", "ranks"),
    [
        *((bind, APART) for bind in ("core", "own", "numa", None)),
        ("none", WHOLE),
        (None, WHOLE),
        # a core of its own on each of two hosts, and both threads of it
        ("core", (("a", [0, 1], 1, [0]), ("b", [0, 1], 1, [0]))),
        # several cores of its own, as MVAPICH2's policy "hybrid" gives them
        ("own", (("a", [0, 1], 2, [0]), ("a", [2, 3], 2, [0]))),
        # a host with one core
        ("own", (("a", [0], 1, [0]), ("b", [0], 1, [0]))),
        # ranks of an older version do not tell
        ("numa", (("a", [0, 1], 1, []), ("a", [2, 3], 1, []))),
        ("core", (("a", [], 1, []), ("a", [], 1, []))),
    ],
)
def test_a_binding_that_took_is_not_told(bind, ranks):
    assert told(*ranks, bind=bind) == []


@pytest.mark.parametrize(
    ("bind", "ranks", "sentence"),
    [
        (
            "core",
            WHOLE,
            "rank 0 on a (and 1 more rank) may run on CPUs 0-3, which are 4 cores, but bind: core "
            f"asks for one core of its own; {LOOK}",
        ),
        (
            "own",
            (("a", [0, 1, 2, 3], 4, [0, 1]), ("b", [0], 1, [0])),
            "rank 0 on a may run on CPUs 0-3, all that its host has, but each rank "
            f"should have cores of its own; {LOOK}",
        ),
        (
            "own",
            (("a", [0], 1, [0]), ("b", [1], 1, [0]), ("b", [1], 1, [0]), ("b", [1], 1, [0])),
            "rank 1 on b (and 2 more ranks) may run on CPUs 1, and so may another rank, but each "
            f"rank should have cores of its own; {LOOK}",
        ),
        (
            "numa",
            (APART[0], ("b", [1, 2], 2, [0, 1])),
            "rank 1 on b may run on CPUs 1-2 of NUMA nodes 0, 1, but bind: numa asks "
            f"for CPUs of one NUMA node; {LOOK}",
        ),
        (
            "none",
            (WHOLE[0], APART[1]),
            "rank 1 on a may run on CPUs 2-3 of 0-3 only, but bind: none asks for "
            f"all CPUs that ranks of its host have; {LOOK}",
        ),
    ],
)
def test_a_binding_that_did_not_take_names_rank_and_host(bind, ranks, sentence):
    assert told(*ranks, bind=bind) == [sentence]


def test_the_variable_that_undoes_a_binding_is_named():
    [sentence] = told(*WHOLE, bind="core", undone_by="MV2_ENABLE_AFFINITY=0")
    assert sentence.endswith(
        "; remove MV2_ENABLE_AFFINITY=0 from launch.env and from the environment"
    )


@pytest.mark.parametrize(
    ("hosts", "sentences"),
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
def test_hosts_and_adapters_are_those_of_the_hostfile(hosts, sentences):
    assert told(*APART, hosts=hosts) == sentences


def test_ranks_of_one_line_of_the_hostfile_are_on_one_host():
    hosts = [["a", 2, None], ["b", 1, None]]
    [sentence] = told(APART[0], ("b", [0], 1, [0]), ("b", [1], 1, [0]), hosts=hosts)
    assert sentence.startswith("rank 1 on b runs there, but the hostfile places it on a; ")


def test_a_gpu_of_another_numa_node_is_told_once():
    [sentence] = told(*APART, near=False)
    assert sentence.startswith(
        "rank 0 on a (and 1 more rank) computes on cuda:0 H200 with CPUs 0-1 of another NUMA node,"
    )


def test_jobs_whose_ranks_are_alike_misplaced_have_one_sentence():
    cases = [described(name, np=np) for name, np in (("a", 2), ("b", 3))]
    events = [run_start(*cases)]
    for job, (name, np) in enumerate((("a", 2), ("b", 3)), 1):
        events.append(job_start(name, np=np, job=job, asked={"bind": "core"}))
        for rank in range(np):
            where = {"host": "a", "cpus": [0, 1, 2, 3], "cores": 4, "nodes": [0], "host_cpus": 4}
            events.append(rank_event("ready", rank, **where))
            events.append(rank_event("case_start", rank, case=name))
        events.append(judged(name))
    state = state_of(events)
    [sentence] = describe_misplaced(state.cases.values(), state.jobs)
    assert sentence.startswith("rank 0 on a (and 2 more ranks) may run on CPUs 0-3")
