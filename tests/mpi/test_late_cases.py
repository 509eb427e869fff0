"""Benchmarks on the device that works late: a missing wait gives wrong results.

One launch on two ranks runs all cases.
"""

from dataclasses import asdict, dataclass

import pytest

from support.benchmark_cases import BenchmarkCase
from support.runs import run_cases_on_ranks

pytestmark = [pytest.mark.mpi, pytest.mark.long, pytest.mark.timeout(240)]

SIZES = [8, 1000, 1 << 20]
FEW_ITERATIONS = {"warmup": 1, "iterations": 3}


@dataclass(frozen=True)
class Case(BenchmarkCase):
    def __str__(self):
        return " ".join(
            [self.benchmark, *self.list_arguments(FEW_ITERATIONS), self.inject or ""]
        ).strip()


def make_pingpong_case(path, inject=None):
    params = {"device": "cuda", "path": path, "sizes": SIZES, **FEW_ITERATIONS}
    return Case("link.pingpong", params, inject)


LINKS = [make_pingpong_case(path) for path in ("auto", "pinned", "nccl")]


def make_sweep_case(algorithm, inject=None, **params):
    params = {"device": "cuda", "algorithm": algorithm, "size": 4096, **FEW_ITERATIONS, **params}
    return Case("allreduce.sweep", params, inject)


VIA_HOST = [
    make_sweep_case("native"),
    make_sweep_case("native", in_place=True, dtype="bf16", op="max"),
    make_sweep_case("ring", mode="persistent"),
    make_sweep_case("ring", mode="nonblocking", in_place=True),
    make_sweep_case("gloo", dtype="int64"),
    *(
        make_sweep_case("native", collective=name)
        for name in ("allgather", "reduce_scatter", "alltoall")
    ),
]
NCCL = [
    make_sweep_case("nccl"),
    make_sweep_case("nccl", in_place=False, dtype="fp64"),
    make_sweep_case("nccl", mode="nonblocking", op="prod"),
]


def make_store_case(kv_store, inject=None, **params):
    store = {"device": "cuda", "kv_store": kv_store, "network": "lenet", "num_batches": 2}
    return Case("kvstore.push_pull", store | {"image_shape": "1,28,28"} | params, inject)


STORES = [
    make_store_case("local", gpus=2),
    make_store_case("device", gpus=2, gc_type="2bit", optimizer="sgd"),
    make_store_case("dist_sync", gpus=1, num_servers=1),
    make_store_case("dist_async", gpus=1, num_servers=1, optimizer="sgd"),
    make_store_case("allreduce", gpus=2, algorithm="shared"),
    make_store_case("allreduce", gpus=2, algorithm="ring", optimizer="adam"),
]
NCCL_STORE = make_store_case("allreduce", gpus=2, algorithm="nccl")
CORRECT = [*LINKS, *VIA_HOST, *NCCL, *STORES, NCCL_STORE]
FAULTY = [
    *(make_pingpong_case(path, "corrupt-message") for path in ("pinned", "nccl")),
    *(make_sweep_case(name, "wrong-element") for name in ("ring", "nccl")),
    *(make_store_case("device", fault, gpus=2) for fault in ("wrong-element", "lost-push")),
    make_store_case("allreduce", "double-push", gpus=2, algorithm="nccl"),
]
# Cases in which only rank 0 has a GPU.
UNEVEN = [
    make_sweep_case("native", device="auto"),
    make_store_case("allreduce", gpus=2, algorithm="ring", device="auto"),
]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Start MPI once; return the events of each rank by case."""
    folder = tmp_path_factory.mktemp("late")
    cases = [*CORRECT, *FAULTY, *UNEVEN]
    results = run_cases_on_ranks(2, "late_cases.py", folder, [asdict(case) for case in cases])
    return dict(zip(map(str, cases), results, strict=True))


def select_events(events, kind):
    return [event for event in events if event["event"] == kind]


def find_limits(events):
    """Return the metrics that are limits, by name."""
    return {
        event["name"]: event for event in select_events(events, "metric") if "measured_by" in event
    }


def find_choices(events):
    return {event["name"]: event for event in select_events(events, "choice")}


@pytest.mark.parametrize("case", CORRECT, ids=str)
def test_results_are_correct_on_the_late_device(results, case):
    for rank, events in enumerate(results[str(case)]):
        checks = select_events(events, "check")
        assert checks
        assert [check for check in checks if not check["passed"]] == [], rank
        times = [value for batch in select_events(events, "samples") for value in batch["values"]]
        assert min(times) > 0


@pytest.mark.parametrize("case", CORRECT, ids=str)
def test_no_wait_for_all_streams_of_the_device(results, case):
    """With posted receives of NCCL, such a wait would never end."""
    assert [select_events(events, "waits")[0]["device_wide"] for events in results[str(case)]] == [
        0,
        0,
    ]


@pytest.mark.parametrize("case", FAULTY, ids=str)
def test_detects_faults(results, case):
    failed = [
        check for check in select_events(results[str(case)][1], "check") if not check["passed"]
    ]
    assert failed


@pytest.mark.parametrize("case", UNEVEN, ids=str)
def test_rejects_ranks_with_and_without_a_gpu(results, case):
    """Ranks with and without a GPU would measure different links."""
    for events in results[str(case)]:
        (rejection,) = select_events(events, "rejected")
        assert rejection["reason"].startswith("device auto: rank 0 on ")
        assert " computes on a GPU and rank 1 on " in rejection["reason"]
        assert " computes on the host; take device cpu, or hosts " in rejection["reason"]
        assert not select_events(events, "check")


@pytest.mark.parametrize("case", LINKS, ids=str)
def test_ping_pong_of_a_device_has_its_path_and_limit(results, case):
    events = results[str(case)][0]
    path = find_choices(events)["path"]
    requested_path = case.params["path"]
    assert path["value"] == ("pinned" if requested_path == "auto" else requested_path)
    is_explicit = path["reason"] == "asked for"
    assert is_explicit or (requested_path == "auto" and "MPI" in path["reason"])
    limit = find_limits(events)["bandwidth_gb_s"]["measured_by"]
    assert limit == "a copy of 1048576 B within the memory of late:0 by rank 0 alone"


@pytest.mark.parametrize("case", VIA_HOST, ids=str)
def test_limit_of_a_sweep_via_the_host_includes_copies(results, case):
    limit = find_limits(results[str(case)][0])["time_ms"]
    assert limit["measured_by"].endswith("links, and copies from late to pinned memory and back")
    assert limit["value"] > 0


@pytest.mark.parametrize("case", NCCL, ids=str)
def test_limit_of_nccl_is_its_link(results, case):
    events = results[str(case)][0]
    source = find_limits(events)["time_ms"]["measured_by"]
    assert source == "the model of a ring in one launch of NCCL on this job's links"
    assert ", by way of the host, 95 % interval" in find_choices(events)["against native"]["reason"]
    assert ("in place" in find_choices(events)) == (case.params.get("in_place") is False)


@pytest.mark.parametrize("case", STORES, ids=str)
def test_limit_of_a_host_store_is_copies_to_the_host(results, case):
    source = find_limits(results[str(case)][0])["time_ms"]["measured_by"]
    assert " B from its GPU to the host and back by each device" in source


def test_limit_of_an_nccl_store_is_a_copy_on_the_gpu(results):
    events = results[str(NCCL_STORE)][0]
    source = find_limits(events)["time_ms"]["measured_by"]
    assert " B within its GPU's memory by each device" in source
    lines = [event["message"] for event in select_events(events, "log")]
    assert any(line.startswith("one allreduce of all by NCCL: ") for line in lines)
    assert " B on the GPU is in each round" in find_choices(events)["in place"]["reason"]
