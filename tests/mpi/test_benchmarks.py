"""All benchmarks on real ranks: results pass, faults fail only on their victim."""

import math
import shutil
import subprocess
import sys
from dataclasses import asdict, dataclass, field, replace

import pytest

from spbench_core.catalog.planted_fault import parse_fault
from support.paths import ROOT
from support.runs import run_cases_on_ranks, run_on_ranks
from support.samples import CaseSample

# One launch runs nearly all cases; on a busy machine it takes a while.
pytestmark = [pytest.mark.mpi, pytest.mark.timeout(300)]

RANKS = 6
BYTES = {"fp64": 8, "fp32": 4, "fp16": 2, "bf16": 2}
SHORT = {"warmup": 1, "iterations": 3}


@dataclass(frozen=True)
class Case:
    benchmark: str
    ranks: int
    params: dict = field(default_factory=dict)
    inject: str | None = None
    sampled: bool = False

    def __str__(self):
        params = " ".join(f"{key}={value}" for key, value in self.params.items())
        sampled = " in boxes" if self.sampled else ""
        return f"{self.benchmark} {params} {self.inject or ''}".strip() + sampled


def make_halo_case(image, grid, halo_len, inject=None, **params):
    rows, cols = map(int, grid.split("x"))
    params = {"image_size": image, "grid": grid, "halo_len": halo_len, **params}
    return Case("halo.exchange", rows * cols, SHORT | params, inject)


def make_operator_case(benchmark, image, grid, inject=None, **params):
    rows, cols = map(int, grid.split("x"))
    defaults = {"in_channels": 2, "out_channels": 3, "warmup": 1, "iterations": 2}
    return Case(
        benchmark, rows * cols, {**defaults, "image_size": image, "grid": grid, **params}, inject
    )


def make_compute_case(*args, **params):
    return make_operator_case("halo.compute", *args, **params)


def make_fused_case(*args, **params):
    return make_operator_case("halo.fused", *args, **params)


def make_case(benchmark, inject=None, ranks=2, **params):
    return Case(benchmark, ranks, SHORT | params, inject)


HALO = [
    *(
        make_halo_case(image, grid, halo_len)
        for image in ("65x65", "62x62", "37x53")
        for grid in ("2x2", "1x4", "4x1", "2x3")
        for halo_len in (1, 3)
    ),
    # Halos longer than a tile: pieces come from beyond the next tile.
    make_halo_case("37x53", "1x4", 20),
    make_halo_case("37x53", "4x1", 12),
    make_halo_case("9x11", "2x3", 7),
    make_halo_case("2x3", "2x3", 5),
    make_halo_case("62x62", "2x2", 3, batch_size=3, in_channels=5),
    make_halo_case("37x53", "2x3", 9, batch_size=2, in_channels=3),
    make_halo_case("65x65", "1x1", 3),
    *(make_halo_case("37x53", "2x2", 3, dtype=dtype, in_channels=2) for dtype in BYTES),
    *(make_halo_case("37x53", "2x2", 3, transport=name) for name in ("packed", "datatype", "shm")),
    make_halo_case("37x53", "2x3", 3, channels_last=True, in_channels=4),
]
OPERATOR = [
    *(
        make_compute_case(image, grid)
        for image in ("65x65", "37x53")
        for grid in ("2x3", "5x1", "1x2")
    ),
    *(make_compute_case("37x53", "2x2", halo_len=3, overlap=overlap) for overlap in ("on", "off")),
    make_compute_case("37x53", "2x2", kernel="1x7"),
    make_compute_case("37x53", "2x2", halo_len=2, enable_one_w_dim_kernel=True),
    make_compute_case("37x53", "2x2", kernel=4, stride=2, padding=1),
    make_compute_case("37x53", "1x4", dilation=3, padding=0, batch_size=2),
    make_compute_case("9x11", "2x3", halo_len=4),
    make_compute_case("33x20", "1x1"),
    # More ranks than outputs: some have none.
    make_compute_case("9x9", "1x4", stride=8),
    # Sums of weight gradients over many pixels, in formats with a maximum of 65504.
    make_compute_case("256x256", "1x2", in_channels=1, out_channels=1, fp16_allreduce=True),
    make_compute_case("256x256", "1x2", in_channels=1, out_channels=1, dtype="fp16"),
    make_compute_case("37x53", "2x2", channels_last=True),
    make_compute_case("37x53", "2x2", fp16_allreduce=True),
    *(make_compute_case("37x53", "2x2", dtype=dtype) for dtype in BYTES),
    *(make_compute_case("37x53", "2x2", transport=name) for name in ("packed", "datatype", "shm")),
    *(make_fused_case("37x53", grid) for grid in ("2x3", "1x4", "2x1", "1x1")),
    make_fused_case("37x53", "2x2", num_layers=5, fused_layers=2, halo_len=2),
    make_fused_case("37x53", "2x2", num_layers=3, stride=2, batch_size=2),
    make_fused_case("9x11", "2x3", num_layers=3, fused_layers=1, dilation=2),
    make_fused_case("37x53", "2x2", channels_last=True, transport="shm"),
    *(make_fused_case("37x53", "2x2", dtype=dtype) for dtype in BYTES),
]
# Checks as for large tiles: they compare only the borders and some boxes.
OPERATOR += [
    replace(case, sampled=True)
    for case in (
        make_compute_case("62x75", "2x2"),
        make_compute_case("62x75", "2x3", kernel=4, stride=2, padding=1, dtype="fp16"),
        make_compute_case("37x53", "1x4", dilation=3, padding=0, batch_size=2, dtype="bf16"),
        make_compute_case("9x9", "1x4", stride=8),
        make_fused_case("62x75", "2x2", num_layers=2),
        make_fused_case("62x75", "2x2", num_layers=3, stride=2, fused_layers=2),
    )
]
OTHER = [
    make_case("link.pingpong", ranks=4, sizes=[1, 8, 4097, 70000]),
    make_case("link.pingpong", ranks=5, sizes=[8, 1 << 20], pairs="neighbours"),
    make_case("link.pingpong", sizes=[64], warmup=0, iterations=1),
    make_case("link.pingpong", ranks=5, sizes=[8], at_once=2),
    *(make_case("link.ring", ranks=n, sizes=[8, 1000 * n], rings=2) for n in (2, 3, 6)),
    make_case("link.ring", ranks=4, sizes=[64], rings=0),
    *(make_case("link.bisection", ranks=n, size=1000 * n, cuts=2) for n in (2, 5)),
    *(make_case("link.effective", ranks=n, sizes=[8, 1000 * n], rings=1) for n in (2, 5)),
    make_case("link.barrier", ranks=5),
    *(make_case("compute.noise", ranks=n, quantum_us=100 * n) for n in (1, 3)),
    *(make_case("compute.burn", n=97, seconds=0, dtype=dtype) for dtype in BYTES),
    make_case("memory.copy", size=1 << 20, ranks=4),
    make_case("memory.copy", size=(1 << 24) + 13),
    *(make_case("compute.gemm", n=n) for n in (1, 64, 300)),
    *(make_case("compute.gemm", n=97, dtype=dtype) for dtype in BYTES),
    # More terms than bf16 has whole numbers, so most of the data are zeros.
    make_case("compute.gemm", n=400, dtype="bf16"),
    make_case("compute.conv", image_size="33x20", in_channels=5, out_channels=3, batch_size=2),
    *(
        make_case("compute.conv", image_size=16, in_channels=3, out_channels=2, kernel=k)
        for k in (1, 2, 7)
    ),
    *(
        make_case("compute.conv", image_size=12, in_channels=40, out_channels=2, dtype=dtype)
        for dtype in BYTES
    ),
]
BURN = make_case("compute.burn", n=33, seconds=0.3, ranks=3)
# The checks that must fail on the victim, by fault.
VICTIM_CHECKS = {
    "corrupt-halo": {"halo", "conv"},
    "drop-halo": {"halo", "conv"},
    "stale-halo": {"halo", "conv"},
    "drop-gradient": {"grad"},
}
FAULTY_OPERATOR = [
    case(image, grid, fault, dtype=dtype, **params)
    for fault in VICTIM_CHECKS
    for case, image, grid, dtype, params in (
        (make_compute_case, "62x62", "2x2", "fp32", {}),
        (make_compute_case, "37x53", "1x4", "bf16", {"transport": "shm"}),
        (make_compute_case, "37x53", "2x3", "fp64", {"transport": "packed", "halo_len": 3}),
        (make_fused_case, "62x62", "2x2", "fp32", {}),
        (make_fused_case, "37x53", "2x3", "fp64", {"fused_layers": 2, "transport": "datatype"}),
    )
]
FAULTY_OPERATOR += [
    replace(case(image, "2x2", fault, **params), sampled=True)
    for fault in VICTIM_CHECKS
    for case, image, params in (
        (make_compute_case, "62x62", {}),
        (make_fused_case, "62x75", {"num_layers": 2}),
    )
]
FAULTY = [
    *(
        make_halo_case(image, grid, halo_len, fault)
        for image, grid, halo_len in (("62x62", "2x2", 3), ("9x11", "2x3", 7), ("4x4", "1x4", 1))
        for fault in ("corrupt-halo", "drop-halo", "stale-halo")
    ),
    make_halo_case("37x53", "2x2", 3, "corrupt-halo", dtype="bf16"),
    make_halo_case("37x53", "2x2", 3, "stale-halo", dtype="fp16"),
    *(
        make_halo_case("37x53", "2x2", 3, fault, transport=transport)
        for fault in ("corrupt-halo", "drop-halo", "stale-halo")
        for transport in ("packed", "datatype", "shm")
    ),
    make_halo_case("2x2", "2x2", 1, "stale-halo"),
    make_case("link.pingpong", "corrupt-message", ranks=4, sizes=[1, 4097]),
    make_case("link.pingpong", "corrupt-message", sizes=[3 << 20]),
    make_case("link.ring", "corrupt-message", ranks=3, sizes=[1, 4097], rings=1),
    make_case("link.bisection", "corrupt-message", ranks=4, size=4097),
    make_case("link.effective", "corrupt-message", ranks=3, sizes=[8, 4097]),
    make_case("link.barrier", "leave-early", ranks=3),
    *(make_case("link.barrier", f"leave-early,rank={rank}", ranks=3) for rank in (0, 1)),
    make_case("compute.noise", "corrupt-result", ranks=3, quantum_us=200),
    make_case("compute.burn", "corrupt-result", n=65, seconds=0, ranks=3),
    make_case("memory.copy", "corrupt-copy", size=1 << 20, ranks=3),
    make_case("memory.copy", "corrupt-copy", size=8),
    *(make_case("compute.gemm", "corrupt-result", n=65, dtype=dtype) for dtype in BYTES),
    *(
        make_case("compute.conv", "corrupt-result", image_size=9, in_channels=4, dtype=dtype)
        for dtype in BYTES
    ),
]
IMPOSSIBLE = [
    *(
        make_halo_case("16x16", "1x1", 1, fault)
        for fault in ("corrupt-halo", "drop-halo", "stale-halo")
    ),
    make_compute_case("16x16", "1x1", "drop-gradient"),
]
CASES = [*HALO, *OPERATOR, *OTHER, BURN, *FAULTY, *FAULTY_OPERATOR, *IMPOSSIBLE]
SAMPLE = CaseSample(
    CASES, lambda case: (case.benchmark, case.inject, case.sampled), always=[BURN], stride=24
)


@pytest.fixture(scope="module")
def results(request, tmp_path_factory):
    """Start MPI and torch once; return the events of the ranks by case."""
    folder = tmp_path_factory.mktemp("cases")
    cases = SAMPLE.select_requested(request)
    case_events = run_cases_on_ranks(
        RANKS, "run_cases.py", folder, [asdict(case) for case in cases]
    )
    return dict(zip(map(str, cases), case_events, strict=True))


def select_events(events, kind, **fields):
    return [
        event
        for event in events
        if event["event"] == kind and all(event.get(key) == fields[key] for key in fields)
    ]


def find_metric(events, name):
    """Return the value of a metric without labels, except limits; None without one."""
    values = [
        event["value"]
        for event in select_events(events, "metric", name=name)
        if "labels" not in event and "measured_by" not in event
    ]
    return values[0] if values else None


def list_limits(result, name):
    return [
        event
        for events in result
        for event in select_events(events, "metric", name=name)
        if "measured_by" in event
    ]


def find_failed_ranks(result):
    return {
        rank
        for rank, events in enumerate(result)
        for check in select_events(events, "check")
        if not check["passed"]
    }


@pytest.mark.parametrize("case", SAMPLE.make_params([*HALO, *OTHER]), ids=str)
def test_correct_result_passes_on_every_rank(results, case):
    result = results[str(case)][: case.ranks]
    for events in result:
        checks = select_events(events, "check")
        assert len(checks) == 1
        assert checks[0]["passed"], checks[0]
    assert all(not events for events in results[str(case)][case.ranks :])


@pytest.mark.parametrize("case", SAMPLE.make_params(FAULTY), ids=str)
def test_fault_is_detected_only_on_the_victim(results, case):
    assert find_failed_ranks(results[str(case)]) == {parse_fault(case.inject).find_rank(case.ranks)}


@pytest.mark.parametrize("case", SAMPLE.make_params(OPERATOR), ids=str)
def test_operator_passes_each_check_on_every_rank(results, case):
    for events in results[str(case)][: case.ranks]:
        checks = select_events(events, "check")
        assert sorted(check["name"] for check in checks) == ["adjoint", "conv", "grad", "halo"]
        assert all(check["passed"] for check in checks), checks


@pytest.mark.parametrize("case", SAMPLE.make_params(FAULTY_OPERATOR), ids=str)
def test_checks_of_an_operator_detect_faults(results, case):
    result = results[str(case)][: case.ranks]
    failed = [
        {check["name"] for check in select_events(events, "check") if not check["passed"]}
        for events in result
    ]
    expected = VICTIM_CHECKS[case.inject]
    assert failed[-1] >= expected
    if case.inject == "drop-gradient":
        assert all("adjoint" in names for names in failed)
    # Other ranks receive correct halos, but the consequences of the fault may spread to them.
    assert all("halo" not in names for names in failed[:-1])


@pytest.mark.parametrize("case", SAMPLE.make_params(FAULTY), ids=str)
def test_failed_check_has_a_position(results, case):
    events = results[str(case)][parse_fault(case.inject).find_rank(case.ranks)]
    detail = select_events(events, "check")[0]["detail"]
    assert "not" in detail or "wrong" in detail


@pytest.mark.parametrize("case", SAMPLE.make_params(IMPOSSIBLE), ids=str)
def test_impossible_fault_is_rejected(results, case):
    events = results[str(case)][0]
    assert (
        "receives nothing that could be spoiled" in select_events(events, "exception")[0]["message"]
    )
    assert not select_events(events, "check")


def count_halo_pixels(image, grid, halo_len):
    """Return the number of pixels that each owner sends to each receiver."""
    height, width = map(int, image.split("x"))
    rows, cols = map(int, grid.split("x"))

    def make_tile(rank):
        row, col = divmod(rank, cols)
        return (
            range(row * height // rows, (row + 1) * height // rows),
            range(col * width // cols, (col + 1) * width // cols),
        )

    tiles = [make_tile(rank) for rank in range(rows * cols)]
    owner = {(y, x): rank for rank, (ys, xs) in enumerate(tiles) for y in ys for x in xs}
    counts = {}
    for receiver, (ys, xs) in enumerate(tiles):
        for y in range(ys.start - halo_len, ys.stop + halo_len):
            for x in range(xs.start - halo_len, xs.stop + halo_len):
                source = owner.get((y, x), receiver)
                if source != receiver:
                    counts[source, receiver] = counts.get((source, receiver), 0) + 1
    return counts


@pytest.mark.parametrize("case", SAMPLE.make_params(HALO), ids=str)
def test_counted_bytes_and_messages_equal_the_halo(results, case):
    params = case.params
    counts = count_halo_pixels(params["image_size"], params["grid"], params["halo_len"])
    pixel_bytes = params.get("batch_size", 1) * params.get("in_channels", 1)
    pixel_bytes *= BYTES[params.get("dtype", "fp32")]
    for rank, events in enumerate(results[str(case)][: case.ranks]):
        sent_pixels = [pixels for (source, _), pixels in counts.items() if source == rank]
        assert find_metric(events, "messages_sent") == len(sent_pixels)
        assert find_metric(events, "bytes_sent") == sum(sent_pixels) * pixel_bytes


@pytest.mark.parametrize("case", SAMPLE.make_params(HALO), ids=str)
def test_halo_case_with_messages_has_one_limit(results, case):
    limits = list_limits(results[str(case)], "time_ms")
    assert len(limits) == (1 if case.ranks > 1 else 0)
    for limit in limits:
        assert limit["value"] > 0
        assert "one-way ping-pong of" in limit["measured_by"]
        assert "copies of rank" in limit["measured_by"]


@pytest.mark.parametrize("case", SAMPLE.make_params([*HALO, *OPERATOR, *OTHER, *FAULTY]), ids=str)
def test_each_rank_reports_each_iteration_once(results, case):
    for events in results[str(case)][: case.ranks]:
        values = [
            value
            for event in select_events(events, "samples", metric="time_ms")
            for value in event["values"]
        ]
        assert len(values) == case.params["iterations"]
        assert all(math.isfinite(value) and value > 0 for value in values)


def test_burn_runs_checked_rounds_for_its_time(results):
    for events in results[str(BURN)][: BURN.ranks]:
        rounds = find_metric(events, "rounds")
        assert rounds > 1
        samples = select_events(events, "samples", metric="time_ms")
        assert sum(len(event["values"]) for event in samples) == rounds * SHORT["iterations"]
        assert all(check["passed"] for check in select_events(events, "check"))


AT_ONCE = {
    "link.ring": ("latency_us", "bandwidth_gb_s"),
    "link.bisection": ("bandwidth_gb_s", "worst_bandwidth_gb_s"),
    "link.effective": ("effective_gb_s", "per_rank_gb_s"),
    "link.barrier": ("latency_us",),
}


@pytest.mark.parametrize(
    "case", SAMPLE.make_params([case for case in OTHER if case.benchmark in AT_ONCE]), ids=str
)
def test_limit_of_all_ranks_at_once_is_one_link(results, case):
    result = results[str(case)]
    for name in AT_ONCE[case.benchmark]:
        assert find_metric(result[0], name) > 0
        (limit,) = list_limits(result, name)
        assert limit["value"] > 0
        assert "ping-pong of ranks 0 and 1 alone" in limit["measured_by"]


@pytest.mark.parametrize("case", SAMPLE.make_params([*HALO, *OPERATOR, *OTHER]), ids=str)
def test_events_have_only_names_of_the_catalog(results, case):
    from spbench_core.catalog import BENCHMARKS

    entry = BENCHMARKS[case.benchmark]
    names = {m.name for m in entry.metrics}
    for events in results[str(case)]:
        assert {event["name"] for event in select_events(events, "metric")} <= names
        assert {event["name"] for event in select_events(events, "check")} <= set(entry.checks)


@pytest.mark.parametrize("case", SAMPLE.make_params([*HALO, *OPERATOR]), ids=str)
def test_tile_benchmark_reports_all_metrics(results, case):
    from spbench_core.catalog import BENCHMARKS

    result = results[str(case)][: case.ranks]
    expected = {m.name for m in BENCHMARKS[case.benchmark].metrics} - {"overlap"}
    if case.ranks == 1:
        expected -= {"exchange_efficiency", "bandwidth_gb_s"}
    metrics = {event["name"] for events in result for event in select_events(events, "metric")}
    sampled = {event["metric"] for events in result for event in select_events(events, "samples")}
    assert metrics | sampled >= expected
    if case.benchmark in ("halo.compute", "halo.fused"):
        _check_reference(case, result)
    overlaps = [choice["value"] for choice in select_events(result[0], "choice", name="overlap")]
    assert "overlap" not in metrics or overlaps == ["on"]
    (choice,) = select_events(result[0], "choice", name="transport")
    requested_transport = case.params.get("transport", "auto")
    assert choice["name"] == "transport"
    assert (
        choice["value"] == requested_transport
        if requested_transport != "auto"
        else "the fastest of" in choice["reason"]
    )


def _check_reference(case, result):
    """Check the reference of the time: one process, or the layers without fusion."""
    references = list_limits(result, "time_ms")
    if case.benchmark == "halo.compute" and case.ranks == 1:
        assert references == []
        return
    [reference] = references
    if case.benchmark == "halo.fused":
        assert reference["measured_by"] == "the same layers with an exchange each"
        return
    [sequential] = select_events(result[0], "metric", name="sequential_ms")
    assert reference["value"] * case.ranks == pytest.approx(sequential["value"])
    assert reference["measured_by"].startswith("one process on the whole image, ")
    assert reference["measured_by"].endswith(f", divided by {case.ranks} ranks")


PINGPONG = [case for case in OTHER if case.benchmark == "link.pingpong"]


@pytest.mark.parametrize("case", SAMPLE.make_params(PINGPONG), ids=str)
def test_each_pair_and_size_is_measured_once(results, case):
    if case.params.get("pairs") == "neighbours":
        pairs = {(rank, rank + 1) for rank in range(case.ranks - 1)}
    else:
        pairs = {(a, b) for b in range(case.ranks) for a in range(b)}
    result = results[str(case)]
    for name in ("latency_us", "bandwidth_gb_s"):
        labels = [
            (rank, event["labels"])
            for rank, events in enumerate(result)
            for event in select_events(events, "metric", name=name)
            if "labels" in event
        ]
        assert all(rank == label["source"] for rank, label in labels)
        assert all({"host_a", "host_b"} <= label.keys() for _, label in labels)
        measured = sorted((label["source"], label["target"], label["bytes"]) for _, label in labels)
        assert measured == sorted((*pair, size) for pair in pairs for size in case.params["sizes"])


@pytest.mark.parametrize("case", SAMPLE.make_params(PINGPONG), ids=str)
def test_rank_0_reports_the_slowest_pair_and_the_limit(results, case):
    result = results[str(case)]
    labelled = [event for events in result for event in select_events(events, "metric")]
    labelled = [event for event in labelled if "labels" in event]
    smallest = case.params["sizes"][0]
    largest = case.params["sizes"][-1]
    slowest = max(
        event["value"]
        for event in labelled
        if event["name"] == "latency_us" and event["labels"]["bytes"] == smallest
    )
    lowest = min(
        event["value"]
        for event in labelled
        if event["name"] == "bandwidth_gb_s" and event["labels"]["bytes"] == largest
    )
    assert find_metric(result[0], "latency_us") == pytest.approx(slowest)
    assert find_metric(result[0], "bandwidth_gb_s") == pytest.approx(lowest)
    assert all(find_metric(events, "latency_us") is None for events in result[1:])
    assert len(list_limits(result, "bandwidth_gb_s")) == 1


RATES = {"memory.copy": "bandwidth_gb_s", "compute.gemm": "gflops", "compute.conv": "gflops"}


@pytest.mark.parametrize(
    "case", SAMPLE.make_params([case for case in OTHER if case.benchmark in RATES]), ids=str
)
def test_each_rank_reports_its_rate_and_rank_0_the_limits(results, case):
    rate = RATES[case.benchmark]
    result = results[str(case)][: case.ranks]
    assert all(find_metric(events, rate) > 0 for events in result)
    for name in (rate, "time_ms"):
        (limit,) = list_limits(result, name)
        assert limit["value"] > 0
        assert limit["measured_by"] == "rank 0 alone, the other ranks asleep"


def run_standalone(ranks, arguments):
    return run_on_ranks(ranks, "-m", "spbench_workers", *arguments.split())


def test_standalone_run_prints_lines_of_the_script():
    arguments = "halo.exchange --image-size 1024 --halo-len 3 --num-spatial-parts 4 --slice-method"
    process = run_standalone(4, f"{arguments} vertical")
    assert process.returncode == 0, process.stderr
    lines = process.stdout.splitlines()
    for rank in range(4):
        assert f"rank : {rank} size:  4" in lines
        assert f"Validation passed Rank:{rank}" in lines
        times = [line for line in lines if line.startswith(f"Rank:{rank} Time taken (ms):")]
        assert len(times) == 1
        assert float(times[0].rpartition(":")[2]) > 0


def test_failed_check_of_a_standalone_run_exits_with_1():
    process = run_standalone(2, "link.pingpong --sizes 64 --iterations 2 --inject corrupt-message")
    assert process.returncode == 1
    assert "Validation passed Rank:0" in process.stdout
    assert "Validation failed Rank:1 echo: largest error" in process.stdout


@pytest.mark.parametrize(
    "arguments", ["nonsense", "link.pingpong --nonsense", "link.pingpong --seed x"]
)
def test_wrong_arguments_are_reported_once_and_exit_with_2(arguments):
    process = run_standalone(3, arguments)
    assert process.returncode == 2
    assert process.stdout == ""
    assert process.stderr.count("spbench_workers: error:") == 1
    assert "Traceback" not in process.stderr


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_comparison_with_c_runs():
    command = [sys.executable, "-m", "benchmarks.pingpong", "--rounds", "1", "--iterations", "2"]
    process = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=110, check=False
    )
    if "not enough slots" in process.stderr:
        pytest.skip("fewer than two cores")
    assert process.returncode == 0, process.stderr
    rows = [line.split() for line in process.stdout.splitlines()[2:]]
    assert [int(row[0]) for row in rows] == [8, 1024, 65536, 1 << 20, 4 << 20]
    assert all(len(row) == 6 and float(row[3]) > 0 for row in rows)
