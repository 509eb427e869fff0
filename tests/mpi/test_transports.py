"""Transports of halos on real ranks: pixels are bitwise those of neighbours.

No GPU takes part. ``cuda`` runs on tensors of the host and of a stand-in with late streams,
``cuda-ipc`` on the stand-in, and ``nccl`` on the host with gloo (see programs/exchange_all.py). The
tests cover the logic of the transports, but not their calls of CUDA and NCCL.
"""

import pytest

from support.runs import run_cases_on_ranks
from support.samples import CaseSample

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(240)]

RANKS = 4
ALL = [0, 1, 2, 3]
NAMES = {
    "packed": "packed",
    "datatype": "datatype",
    "shm": "shm",
    "cuda": "cuda-without-a-gpu",
    "cuda-direct": "cuda-direct-without-a-gpu",
    "cuda-ipc": "cuda-ipc-without-a-gpu",
    "nccl": "nccl-over-gloo-without-a-gpu",
}
STAGED = ("cuda", "cuda-direct")
ON_A_DEVICE = (*STAGED, "cuda-ipc")
LATE = "late"
"""The device that stands in for a GPU."""
SHAPES = [
    {"grid": "1x4", "size": "13x29", "halo": 2},
    {"grid": "2x2", "size": "17x9", "halo": 2, "channels_last": True},
    # Halos larger than tiles: pieces come from beyond the next tile. Some tiles have no pixels.
    {"grid": "1x4", "size": "7x10", "halo": 5},
    {"grid": "4x1", "size": "3x6", "halo": 2},
    {"grid": "2x2", "size": "5x5", "halo": 4, "dtype": "bf16"},
    # Some ranks of the world in any order, and ranks without a tile.
    {"ranks": [1, 3], "grid": "1x2"},
    {"ranks": [3, 0, 2], "grid": "3x1"},
    {"owners": [3, 1], "grid": "2x1"},
    {"ranks": [2], "grid": "1x1"},
    {"adjoint": True},
    {"adjoint": True, "grid": "1x4", "size": "7x10", "halo": 5},
]


def describe_case(case):
    fields = (
        NAMES.get(value, value) if key == "transport" else f"{key}={value}"
        for key, value in case.items()
        if key != "check"
    )
    return " ".join([case["check"], *fields])


def make_case(check, ranks=ALL, **arguments):
    return {"check": check, "ranks": ranks, **arguments}


FORMATS = [
    make_case("halos", transport=transport, dtype=dtype, channels_last=channels_last, into=into)
    for transport in NAMES
    for dtype in ("fp32", "fp64", "fp16", "bf16")
    for channels_last in (False, True)
    for into in (False, True)
]
SHAPED = [
    make_case("halos", transport=transport, **shape) for transport in NAMES for shape in SHAPES
]
TWO_AT_ONCE = [make_case("two_at_once", transport=transport) for transport in NAMES]
EXCHANGES = [*TWO_AT_ONCE, *SHAPED, *FORMATS]
ON_THE_HOST = [exchange for exchange in EXCHANGES if exchange["transport"] != "cuda-ipc"]
ON_STREAMS = [
    exchange | {"device": LATE} for exchange in EXCHANGES if exchange["transport"] in ON_A_DEVICE
]
FAULTS = [
    make_case("fault", transport=transport, fault=fault, device=device)
    for transport in ON_A_DEVICE
    for fault in ("corrupt-halo", "drop-halo", "stale-halo")
    for device in ("cpu", LATE)
    if (transport, device) != ("cuda-ipc", "cpu")
]
UNSHARED = [
    make_case("unshared", message=f"transport cuda-ipc: rank {message}", **broken)
    for broken, message in (
        (
            {"share": "fails"},
            "1 cannot share memory of GPUs with others here (CUDA error: no such",
        ),
        ({"event_handles": "fails"}, "1 cannot share"),
        ({"open_memory": "fails"}, "1 cannot share"),
        ({"open_event": "fails"}, "1 cannot share"),
        (
            {"share": "other"},
            "0 cannot share memory of GPUs with others here (reads other bytes",
        ),
    )
]
DIRECTIONS = ({}, {"one_way": True, "grid": "1x4"})
CONSECUTIVE = [
    *(
        make_case("consecutive", transport=transport, device=LATE, quick=quick, **direction)
        for transport in ON_A_DEVICE
        for quick in (0, 1)
        for direction in DIRECTIONS
    ),
    *(
        make_case("consecutive", transport=transport, **direction)
        for transport in ("packed", "datatype", "shm")
        for direction in DIRECTIONS
    ),
    make_case("consecutive", transport="cuda-ipc", device=LATE, poisoned=True),
    make_case("consecutive", transport="cuda-ipc", device=LATE, freed=True),
]
OPENED_DURING_EXCHANGE = [
    make_case("opened_during_exchange", transport=transport, device=LATE)
    for transport in ON_A_DEVICE
]
USED_MEMORY = [
    make_case("used_memory", transport="shm"),
    make_case("used_memory", transport="cuda-ipc", device=LATE),
]
PINNED = ("pinned", "SPBENCH_CUDA_AWARE=0")
POINTERS = ("device pointers", "SPBENCH_CUDA_AWARE=1")
PATHS = [
    make_case("path", settings=settings, path=path, reason=reason)
    for settings, (path, reason) in (
        ("0000", PINNED),
        ("1111", POINTERS),
        ("1101", (PINNED[0], f"{PINNED[1]} on rank 2")),
    )
]
WRONG = [
    make_case("disagreement"),
    make_case(
        "unfit", transport="shm", device="cuda", message="transport shm is for memory of the host"
    ),
    make_case(
        "unfit", transport="shm", device="cuda", message="and the device is cuda; those that apply"
    ),
    make_case(
        "unfit", transport="cuda", device="cpu", message="transport cuda is for memory of a GPU"
    ),
    make_case(
        "unfit", transport="cuda-ipc", device="cpu", message="cuda-ipc is for memory of a GPU"
    ),
    make_case(
        "unfit", transport="nccl", device="cpu", message="those that apply: packed, datatype, shm"
    ),
    make_case("unfit", transport="pigeon", device="cpu", message="transport pigeon is not known"),
]
GPUS = [
    make_case("gpus_of_ranks", gpus=gpus, message=message)
    for gpus, message in (
        (["a 0", "a 1", "b 0", "b 1"], ""),
        (
            ["a 0", "a 1", "b 0", "a 1"],
            "needs a GPU for each rank, and ranks 1 and 3 share one",
        ),
        (["a 0", "a 1", "", "b 1"], "is not part of the torch of rank 2"),
    )
]
GROUPS = [make_case("one_group", ranks=[3, 1]), make_case("rank_that_cannot_join", ranks=[1, 2, 3])]
# All exchanges come last, because ranks must still be in step after the errors.
CASES = [
    *WRONG,
    *GPUS,
    *GROUPS,
    make_case("cuda_awareness"),
    *PATHS,
    make_case("both_paths"),
    make_case("auto"),
    make_case("auto_without_packed"),
    *UNSHARED,
    *ON_THE_HOST,
    *FAULTS,
    *ON_STREAMS,
    *CONSECUTIVE,
    *OPENED_DURING_EXCHANGE,
    *USED_MEMORY,
]


SAMPLE = CaseSample(
    CASES,
    lambda case: tuple(case.get(key) for key in ("check", "transport", "device", "fault")),
)


@pytest.fixture(scope="module")
def results(request, tmp_path_factory):
    """Start MPI and torch once; return the problem that each rank found, by case."""
    folder = tmp_path_factory.mktemp("exchanges")
    cases = SAMPLE.select_requested(request)
    case_results = run_cases_on_ranks(RANKS, "exchange_all.py", folder, cases, seconds=220)
    return dict(zip(map(describe_case, cases), case_results, strict=True))


@pytest.mark.parametrize("case", SAMPLE.make_params(CASES), ids=describe_case)
def test_check_finds_no_problem_on_any_rank(results, case):
    assert results[describe_case(case)] == [""] * RANKS


@pytest.mark.long
def test_cuda_ipc_keeps_many_transports_open(tmp_path):
    """Drivers limit open events and mappings, so both must not grow."""
    sender, reader = run_cases_on_ranks(2, "open_many.py", tmp_path, seconds=100)
    # Each rank opens one event of the other rank, for read or for packed data.
    expected = {"error": "", "transports": 1100, "wrong": [], "events": 1, "mappings_after": 0}
    assert sender == expected | {"mappings": 0}
    # All slots of 512 bytes are in one segment of 2 MiB.
    assert reader == expected | {"mappings": 1}
