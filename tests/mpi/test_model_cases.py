"""Cases of the model benchmarks over many ranks, with all their checks."""

import re

import pytest
from torch.backends.cpu import get_cpu_capability

from spbench_core.catalog import BENCHMARKS
from spbench_workers.benchmarks.model.regimes import FULL_SIZE_CHECKS
from support.runs import run_cases_on_ranks

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(600)]

YIELDING = {"OMPI_MCA_mpi_yield_when_idle": "1"}
SMALL = {
    "resnet": {"version": 1, "depth": 8, "image_size": 32, "batch_size": 5},
    "amoebanet": {"num_layers": 3, "num_filters": 16, "image_size": 64, "batch_size": 5},
}
SHORT = {"warmup": 0, "iterations": 1, "num_classes": 5}


def make_case(model, inject=None, **changes):
    benchmark = f"model.{model}"
    params = SMALL[model] | SHORT | changes
    if changes.get("scheme") != "sequential":
        params = {"baseline": False, "balance": "estimated"} | params
    if "arch" in changes:
        params = {key: value for key, value in params.items() if key not in ("version", "depth")}
    entry = BENCHMARKS[benchmark]
    ((_, complete),) = entry.list_cases(params)
    return {
        "benchmark": benchmark,
        "params": params,
        "inject": inject,
        "ranks": entry.ranks(complete).exact,
        "checks": list(entry.list_checks(complete)),
    }


def lp(model="resnet", **params):
    return make_case(model, scheme="lp", **params)


def make_interleaved(model="resnet", inject=None, **params):
    params = {"scheme": "lp", "schedule": "interleaved", "parts": 2} | params
    return make_case(model, inject, **params)


def sp(model="resnet", inject=None, **params):
    return make_case(model, inject, scheme="sp", **params)


def gems(model="resnet", **params):
    return make_case(model, scheme="gems", **params)


def gems_sp(model="resnet", **params):
    return make_case(model, scheme="gems_sp", **params)


CORRECT = {
    "sequential": make_case("resnet", scheme="sequential", parts=2),
    "sequential amoebanet": make_case("amoebanet", scheme="sequential"),
    "sequential v2": make_case(
        "resnet", scheme="sequential", version=2, depth=11, optimizer="adamw"
    ),
    # Layers and micro-batches.
    "lp 2": lp(baseline=True, iterations=2),
    "lp 2, no time for a baseline": lp(baseline=True, baseline_max=0),
    "lp 2, no room for a baseline": lp(baseline=True, baseline_memory=1),
    "lp 2, parts 2, an uneven batch": lp(parts=2),
    "lp 3, parts 4, gpipe": lp(split_size=3, parts=4, schedule="gpipe", learning_rate=0.01),
    "lp 4, parts 4": lp(split_size=4, parts=4, optimizer="adam", weight_decay=0.01),
    "lp 4, parts 8, 1f1b-deep": lp(split_size=4, parts=8, batch_size=9, schedule="1f1b-deep"),
    "lp 4, parts 1, as given": lp(split_size=4, balance="2,1,1,1"),
    "lp 2, measured": lp(balance="measured"),
    "lp 2, two epochs": lp(num_epochs=2, learning_rate_decay=0.5),
    "lp 2 replicas": lp(replicas=2, parts=2),
    "lp 2 replicas, one normalisation": lp(replicas=2, parts=2, sync_batchnorm="replicas"),
    "lp 2, local_DP 2,1": lp(local_DP="2,1", parts=2),
    "lp 2, local_DP 1,2": lp(local_DP="1,2", parts=2, batch_size=6),
    "lp 3, gloo": lp(split_size=3, parts=2, backend="gloo"),
    "lp 2, fp64": lp(precision="fp64"),
    "lp 2, bf16": lp(precision="bf16", parts=2),
    "lp 2, fp16": lp(precision="fp_16"),
    "interleaved 4 on 2": make_interleaved(parts=4),
    "interleaved 6 on 2, amoebanet": make_interleaved("amoebanet", rounds=3),
    "interleaved, 2 replicas": make_interleaved(replicas=2),
    "interleaved, local_DP 2": make_interleaved(local_DP=2, optimizer="adam"),
    "lp 2, computed again": lp(parts=2, recompute="stage", baseline=True),
    "lp 2, each layer computed again": lp(parts=4, recompute="block", recompute_stages=[0]),
    "lp 2 replicas, one normalisation, computed again": lp(
        replicas=2, sync_batchnorm="replicas", recompute="block"
    ),
    "lp 2, bf16, computed again": lp(precision="bf16", recompute="block"),
    "interleaved, computed again": make_interleaved(recompute="stage"),
    "sequential, computed again": make_case("resnet", scheme="sequential", recompute="block"),
    "lp 2, zero bubble": lp(schedule="zb-h1", parts=4, baseline=True, iterations=2),
    "lp 4, parts 8, zero bubble": lp(
        "amoebanet", split_size=4, parts=8, batch_size=9, schedule="zb-h1", optimizer="adam"
    ),
    "lp 2, local_DP 2, zero bubble": lp(local_DP="1,2", parts=2, batch_size=6, schedule="zb-h1"),
    "lp 2 replicas, bf16, zero bubble": lp(replicas=2, parts=2, schedule="zb-h1", precision="bf16"),
    "lp 2, fp16, zero bubble": lp(parts=2, schedule="zb-h1", precision="fp16"),
    "sequential, channels last": make_case(
        "amoebanet", scheme="sequential", memory_format="channels_last", precision="bf16"
    ),
    "lp 2, channels last": lp(memory_format="channels_last", parts=2, optimizer="adam"),
    "lp 2, the faster format": lp(memory_format="auto", parts=2, schedule="zb-h1"),
    "lp 2, bf16, channels last": lp(precision="bf16", parts=2, memory_format="channels_last"),
    "sp, the faster format": sp(memory_format="auto"),
    "sp, channels last": sp(memory_format="channels_last", parts=2, warmup=1),
    "gems 2, one way, channels last": gems(
        enable_master_comm_opt=True, memory_format="channels_last"
    ),
    "evaluation sp int8, channels last": sp(
        enable_evaluation=True, precision="int8", memory_format="channels_last"
    ),
    "lp 2, resnet50": lp(arch="resnet50", image_size=33, batch_size=3),
    # Tiles.
    "sp 4+1 square": sp(parts=2, warmup=1),
    "sp 4+1 vertical": sp(slice_method="vertical", version=2, depth=11),
    "sp 4+1 horizontal": sp(slice_method="horizontal"),
    "sp 2x3+1": sp(grid="2x3", image_size=62),
    "sp 2x2+1 65x96": sp(image_size="65x96", batch_size=2),
    "sp 4,4+1": sp(split_size=3, spatial_size=2, parts=2),
    "sp 4,2+1": sp(split_size=3, spatial_size=2, num_spatial_parts="4,2", slice_method="vertical"),
    "sp in every stage": sp(split_size=1, grid="1x2", baseline=True),
    "sp, local_DP 2": sp(local_DP=2, parts=2),
    "sp, 2 replicas": sp(replicas=2),
    "sp, 2 replicas, one normalisation": sp(replicas=2, sync_batchnorm="replicas"),
    "sp, bf16": sp(precision="bf16"),
    "sp, fp16, 5 images in 2 parts": sp(precision="fp16", parts=2),
    "sp 4+1, computed again": sp(parts=2, recompute="block"),
    "sp in every stage, computed again": sp(split_size=1, grid="1x2", recompute="stage"),
    "sp D2, computed again": sp(halo_D2=True, recompute="stage"),
    "sp D2, 1": sp(halo_D2=True),
    "sp D2, 2": sp(halo_D2=True, fused_layers=2),
    "sp D2, 3 across a stride": sp(
        halo_D2=True, fused_layers=3, split_size=2, balance="4,1", image_size=64, batch_size=2
    ),
    "sp D2, 2x3": sp(halo_D2=True, fused_layers=2, grid="2x3", image_size=62, batch_size=2),
    # Mirrored pipelines.
    "gems 2": gems(baseline=True),
    "gems 2, times 2": gems(times=2, parts=2),
    "gems 2, one way": gems(enable_master_comm_opt=True),
    "gems 4, times 4": gems(split_size=4, times=4),
    "gems 4, one way": gems(split_size=4, times=2, parts=2, enable_master_comm_opt=True),
    "gems 3, gpipe": gems(split_size=3, schedule="gpipe", parts=2),
    "gems 2, one way, computed again": gems(enable_master_comm_opt=True, recompute="stage"),
    "gems_sp 2": gems_sp(split_size=3, grid="1x2"),
    "gems_sp 2, one way": gems_sp(split_size=3, grid="1x2", enable_master_comm_opt=True),
    "gems_sp 4": gems_sp(split_size=5),
    "gems_sp 4, one way": gems_sp(split_size=5, enable_master_comm_opt=True),
    # AmoebaNet.
    "amoebanet lp": lp("amoebanet", parts=2),
    "amoebanet sp": sp("amoebanet", shift=True),
    "amoebanet sp vertical": sp("amoebanet", slice_method="vertical", pool3="max"),
    "amoebanet sp D2": sp("amoebanet", halo_D2=True),
    "amoebanet sp, one image of few pixels": sp("amoebanet", split_size=1, batch_size=1),
    "amoebanet sp, computed again": sp("amoebanet", recompute="block"),
    "amoebanet gems": gems("amoebanet", batch_size=6),
    "amoebanet sp fp16": sp("amoebanet", precision="fp16", batch_size=2),
    "amoebanet sp bf16": sp("amoebanet", precision="bf16", batch_size=2),
    # Inference.
    "evaluation": make_case("resnet", scheme="sequential", enable_evaluation=True),
    "evaluation lp": lp(enable_evaluation=True, parts=2, baseline=True),
    "evaluation lp, local_DP 2": lp(enable_evaluation=True, local_DP=2),
    "evaluation gems": gems(enable_evaluation=True),
    "evaluation sp": sp(enable_evaluation=True),
    "evaluation sp in every stage": sp(enable_evaluation=True, split_size=1, grid="1x2"),
    "evaluation sp bf16": sp(enable_evaluation=True, precision="bfp_16"),
    "evaluation int8": make_case(
        "resnet", scheme="sequential", enable_evaluation=True, precision="int8"
    ),
    "evaluation sp int8": sp(enable_evaluation=True, precision="int_8"),
    # Requests that arrive much faster than they are processed.
    "open load lp": lp(
        enable_evaluation=True, parts=2, arrival="poisson", arrival_rate=1e4, iterations=4
    ),
    "validate off": lp(validate=False),
}
FAULTY = {
    "drop-gradient, sequential": (
        make_case("resnet", "drop-gradient", scheme="sequential"),
        {"grad", "weights", "slope"},
    ),
    "drop-gradient, lp": (make_case("resnet", "drop-gradient", scheme="lp"), {"grad", "weights"}),
    "drop-gradient, sp": (make_case("resnet", "drop-gradient", scheme="sp"), {"grad", "weights"}),
    "mean-instead-of-sum, sp": (
        make_case("resnet", "mean-instead-of-sum", scheme="sp", split_size=1),
        {"grad", "weights"},
    ),
    "mean-instead-of-sum, lp": (
        make_case("resnet", "mean-instead-of-sum", scheme="lp", parts=2),
        {"grad"},
    ),
    "tile-batchnorm, sp": (
        make_case("resnet", "tile-batchnorm", scheme="sp"),
        {"loss", "grad", "running_stats"},
    ),
    "tile-batchnorm, local_DP": (
        make_case("resnet", "tile-batchnorm", scheme="lp", local_DP=2),
        {"loss", "running_stats"},
    ),
    "wrong-neighbour, sp": (
        make_case("resnet", "wrong-neighbour", scheme="sp"),
        {"loss", "output"},
    ),
    "wrong-neighbour, tiles": (
        make_case("resnet", "wrong-neighbour", scheme="sp", split_size=1, grid="1x2"),
        {"loss", "output"},
    ),
    "wrong-neighbour, evaluation": (
        make_case("resnet", "wrong-neighbour", scheme="lp", enable_evaluation=True),
        {"output"},
    ),
    "skipped-microbatch, lp": (
        make_case("resnet", "skipped-microbatch", scheme="lp", parts=2),
        {"grad", "weights"},
    ),
    "wrong-neighbour, interleaved": (
        make_interleaved(inject="wrong-neighbour"),
        {"loss", "output", "grad"},
    ),
    "skipped-microbatch, gems": (
        make_case("resnet", "skipped-microbatch", scheme="gems", parts=2),
        {"grad", "weights"},
    ),
    "uncounted-wait, lp": (
        make_case(
            "resnet",
            "uncounted-wait",
            scheme="lp",
            enable_evaluation=True,
            arrival="poisson",
            arrival_rate=1e4,
            iterations=3,
        ),
        {"latency"},
    ),
    "skipped-microbatch, zero bubble": (
        make_case("resnet", "skipped-microbatch", scheme="lp", parts=4, schedule="zb-h1"),
        {"grad", "weights"},
    ),
    "drop-gradient, zero bubble": (
        make_case("resnet", "drop-gradient", scheme="lp", parts=2, schedule="zb-h1"),
        {"grad", "weights"},
    ),
    "lost-halo-gradient, tiles": (
        sp(inject="lost-halo-gradient", split_size=1, grid="1x2"),
        {"grad", "input_grad", "weights"},
    ),
    "lost-halo-gradient, computed again": (
        sp(inject="lost-halo-gradient", split_size=1, grid="1x2", recompute="block"),
        {"grad", "input_grad", "weights"},
    ),
    "skipped-microbatch, bf16": (
        make_case("resnet", "skipped-microbatch", scheme="lp", parts=2, precision="bf16"),
        {"grad", "bits"},
    ),
}
TILES = {"split_size": 1, "grid": "1x2"}
AT_FULL_SIZE = {
    "drop-gradient, bf16": (lp(precision="bf16"), "sums"),
    "drop-gradient, sequential": (make_case("resnet", scheme="sequential"), "sums"),
    "zero-weight-gradient, zero bubble": (lp(precision="bf16", schedule="zb-h1"), "operators"),
    "drop-gradient, one way": (gems(enable_master_comm_opt=True), "sums"),
    "mean-instead-of-sum, local_DP": (lp(local_DP=2), "sums"),
    "skipped-microbatch, replicas": (lp(parts=2, replicas=2), "sums"),
    "wrong-neighbour, joint": (sp(), "joints"),
    "wrong-neighbour, gems_sp": (gems_sp(split_size=3, grid="1x2"), "joints"),
    "wrong-neighbour, tiles": (sp(**TILES), "operators"),
    "wrong-neighbour, tiles, bf16": (sp(precision="bf16", **TILES), "operators"),
    "wrong-neighbour, evaluation": (sp(enable_evaluation=True, **TILES), "operators"),
    "lost-halo-gradient, square": (sp(split_size=1), "operators"),
    "lost-halo-gradient, bf16": (sp(precision="bf16", **TILES), "operators"),
    "tile-batchnorm, bf16": (sp(precision="bf16"), "operators"),
    "tile-batchnorm, local_DP": (lp(local_DP=2), "operators"),
    "zero-weight-gradient, bf16": (lp(precision="bf16"), "operators"),
    "zero-weight-gradient, fp32": (lp(parts=2), "operators"),
    "scale-input-gradient, fp32": (lp(parts=2), "scales"),
    "zero-input-gradient, fp32, gpipe": (lp(parts=2, schedule="gpipe"), "operators"),
    "scale-weight-gradient, fp32, zero bubble": (lp(parts=4, schedule="zb-h1"), "scales"),
    "scale-input-gradient, fp32, gems": (gems(parts=2), "scales"),
    "zero-weight-gradient, fp64, sequential": (
        make_case("resnet", scheme="sequential", precision="fp64", parts=2),
        "operators",
    ),
    "zero-weight-gradient, fp32, D2": (sp(halo_D2=True, grid="1x2"), "operators"),
    "zero-input-gradient, fp16": (lp(precision="fp16"), "operators"),
    "scale-weight-gradient, bf16": (lp(precision="bf16", validate="full"), "scales"),
    "scale-input-gradient, bf16": (sp(precision="bf16", **TILES), "scales"),
    "scale-weight-gradient, tiles": (sp(**TILES), "scales"),
    "drop-tile, fp16": (sp(precision="fp16", **TILES), "operators"),
}
"""Faults that come after the proxy was compared, and the one check that must find each."""


REPEATED = {
    "sequential amoebanet",
    "lp 2, parts 2, an uneven batch",
    "skipped-microbatch, zero bubble",
    "drop-gradient, bf16",
    "zero-weight-gradient, bf16",
    "zero-input-gradient, fp32, gpipe",
    "scale-weight-gradient, fp32, zero bubble",
    "scale-input-gradient, fp32, gems",
    "zero-weight-gradient, fp64, sequential",
    "zero-weight-gradient, fp32, D2",
    "amoebanet sp",
    "sp, fp16, 5 images in 2 parts",
    "sp 2x3+1",
    "lp 2 replicas, one normalisation",
    "interleaved 4 on 2",
    "gems_sp 2, one way",
    "sp in every stage",
    "wrong-neighbour, sp",
    "wrong-neighbour, joint",
    "scale-weight-gradient, bf16",
    "sequential, channels last",
    "lp 2, bf16, channels last",
    "sp, channels last",
    "gems 2, one way, channels last",
    "evaluation sp int8, channels last",
    "lp 4, parts 8, zero bubble",
    "lp 2, local_DP 2, zero bubble",
    "lp 2 replicas, bf16, zero bubble",
    "lp 2, fp16, zero bubble",
    "drop-gradient, zero bubble",
    "zero-weight-gradient, zero bubble",
    "lp 4, parts 4",
    "lp 2, two epochs",
    "interleaved, 2 replicas",
    "sp 4,2+1",
    "sp, local_DP 2",
    "sp, 2 replicas, one normalisation",
    "sp 4+1, computed again",
    "sp D2, 3 across a stride",
    "gems 2, times 2",
    "gems 2, one way, computed again",
    "amoebanet sp D2",
    "evaluation sp in every stage",
    "mean-instead-of-sum, sp",
    "wrong-neighbour, interleaved",
    "lost-halo-gradient, computed again",
    "mean-instead-of-sum, local_DP",
    "lost-halo-gradient, square",
    "drop-tile, fp16",
    "lp 2, each layer computed again",
    "lp 2 replicas, one normalisation, computed again",
    "lp 2, bf16, computed again",
    "interleaved, computed again",
    "sequential, computed again",
    "sp in every stage, computed again",
    "sp D2, computed again",
    "amoebanet sp, computed again",
    "sequential v2",
    "lp 3, parts 4, gpipe",
    "lp 4, parts 8, 1f1b-deep",
    "lp 4, parts 1, as given",
    "lp 2 replicas",
    "lp 2, local_DP 2,1",
    "lp 3, gloo",
    "lp 2, fp64",
    "lp 2, fp16",
    "interleaved 6 on 2, amoebanet",
    "interleaved, local_DP 2",
    "lp 2, resnet50",
    "sp 4+1 vertical",
    "sp 4+1 horizontal",
    "sp 2x2+1 65x96",
    "sp 4,4+1",
    "sp, 2 replicas",
    "sp, bf16",
    "sp D2, 1",
    "sp D2, 2x3",
    "gems 2, one way",
    "gems 4, times 4",
    "gems 3, gpipe",
    "gems_sp 2",
    "gems_sp 4",
    "gems_sp 4, one way",
    "amoebanet sp vertical",
    "amoebanet sp, one image of few pixels",
    "amoebanet gems",
    "amoebanet sp fp16",
    "amoebanet sp bf16",
    "evaluation lp, local_DP 2",
    "evaluation gems",
    "evaluation sp bf16",
    "evaluation sp int8",
    "drop-gradient, lp",
    "mean-instead-of-sum, lp",
    "tile-batchnorm, local_DP",
    "wrong-neighbour, tiles",
    "skipped-microbatch, gems",
    "skipped-microbatch, bf16",
    "drop-gradient, sequential",
    "drop-gradient, one way",
    "wrong-neighbour, gems_sp",
    "wrong-neighbour, tiles, bf16",
    "wrong-neighbour, evaluation",
    "lost-halo-gradient, bf16",
    "tile-batchnorm, bf16",
    "zero-input-gradient, fp16",
    "scale-input-gradient, bf16",
    "scale-weight-gradient, tiles",
}
"""Variants of other cases, which only `make all` runs."""
ALWAYS = {
    "evaluation",
    "evaluation lp",
    "open load lp",
    "lp 2, the faster format",
    "sp, the faster format",
    "lp 2, channels last",
    "sp 4+1 square",
    "sp, channels last",
}
"""Cases that several tests use."""


def mark_repeated(cases):
    """Return the names of cases as parameters of tests, some of them marked ``long``."""
    long = pytest.mark.long
    return [pytest.param(name, marks=long) if name in REPEATED else name for name in cases]


def is_unsafe(name):
    """Return whether torch 2.13 corrupts its heap in a case, with or without spbench.

    With channels last and without AVX512, its backward pass of a 1x1 convolution with stride 2 and
    fewer than 8 input channels writes out of bounds.
    """
    return name == "sequential, channels last" and get_cpu_capability() == "AVX2"


@pytest.fixture(scope="module")
def rank_events(request, tmp_path_factory):
    """Run the selected tests' cases in one launch; return all events by case."""
    folder = tmp_path_factory.mktemp("models")
    tests = [test for test in request.session.items if test.path == request.path]
    names = ALWAYS | {test.callspec.params["name"] for test in tests if hasattr(test, "callspec")}
    cases = CORRECT | {name: case for name, (case, _) in FAULTY.items()}
    cases = {name: case for name, case in cases.items() if name in names and not is_unsafe(name)}
    for name, (case, _) in AT_FULL_SIZE.items():
        if name in names:
            cases[f"full:{name}"] = case | {"inject": f"full:{name.split(',')[0]}"}
    ranks = max(case["ranks"] for case in cases.values())
    results = run_cases_on_ranks(ranks, "run_cases.py", folder, list(cases.values()), seconds=500)
    return dict(zip(cases, results, strict=True))


def read_checks(ranks):
    """Return by check whether it passed, on each rank."""
    checks = {}
    for events in ranks:
        for event in events:
            if event["event"] == "check":
                checks.setdefault(event["name"], []).append(event["passed"])
    return checks


def read_metric(ranks, metric):
    return [
        event["value"]
        for events in ranks
        for event in events
        if event["event"] == "metric" and event["name"] == metric and "measured_by" not in event
    ]


@pytest.mark.parametrize("name", mark_repeated(CORRECT))
def test_model_equals_one_process_on_every_rank(rank_events, name):
    if is_unsafe(name):
        pytest.skip("torch 2.13 writes out of bounds in channels last on a CPU with AVX2 only")
    ranks = rank_events[name][: CORRECT[name]["ranks"]]
    failed = [
        (rank, event["name"], event["max_abs_error"], event["tolerance"], event["detail"])
        for rank, events in enumerate(ranks)
        for event in events
        if event["event"] == "check" and not event["passed"]
    ]
    assert failed == []
    for events in ranks:
        # int8 has two comparisons.
        assert set(read_checks([events])) == set(CORRECT[name]["checks"])


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (
            "lp 2, no time for a baseline",
            r"one process would take [0-9.e-]+ s .* baseline_max, 0 s",
        ),
        ("lp 2, no room for a baseline", r"the ranks together used .* baseline_memory is 0.0 GB"),
    ],
)
def test_baseline_that_does_not_fit_is_not_measured(rank_events, name, reason):
    ranks = rank_events[name][:2]
    assert read_metric(ranks, "sequential_ms") == read_metric(ranks, "speedup_vs_sequential") == []
    (choice,) = [
        event
        for events in ranks
        for event in events
        if event["event"] == "choice" and event["name"] == "baseline"
    ]
    assert choice["value"] == "not measured"
    assert re.match(reason, choice["reason"])


@pytest.mark.parametrize("name", ["lp 2, the faster format", "sp, the faster format"])
def test_auto_measures_the_faster_memory_format(rank_events, name):
    (choice,) = find_memory_formats(rank_events[name][0])
    assert choice["value"] in ("contiguous", "channels_last")
    assert re.match(
        r"layers of a micro-batch, .*: channels_last \S+ ms, contiguous \S+ ms$", choice["reason"]
    )


def test_requested_memory_format_is_not_measured(rank_events):
    assert not find_memory_formats(rank_events["lp 2, channels last"][0])


def test_tiles_in_channels_last_keep_equal_activations(rank_events):
    # After a ReLU, they are in a buffer that includes their halo, and need no copy.
    contiguous, channels_last = (
        read_metric(rank_events[name], "activation_mb")
        for name in ("sp 4+1 square", "sp, channels last")
    )
    assert len(contiguous) == 5
    assert channels_last == pytest.approx(contiguous, rel=0.02)


def find_memory_formats(events):
    choices = [event for event in events if event["event"] == "choice"]
    return [choice for choice in choices if choice["name"] == "memory_format"]


@pytest.mark.parametrize("name", mark_repeated(FAULTY))
def test_detects_fault(rank_events, name):
    case, expected = FAULTY[name]
    checks = read_checks(rank_events[name][: case["ranks"]])
    failed = {check for check, passed in checks.items() if not all(passed)}
    assert expected <= failed


def read_accuracy(ranks):
    """Return the number of images, top-1 accuracy and loss, equal on all ranks."""
    names = ("judged_images", "top1", "eval_loss")
    (accuracy,) = {tuple(read_metric([events], name)[0] for name in names) for events in ranks}
    return accuracy


LAYOUTS = [name for name in CORRECT if name.startswith("evaluation ")]
ROUNDED = {"evaluation sp bf16": (1e-5, 0.05), "evaluation int8": (1e-5, 0.02)}
for name in ("evaluation sp int8", "evaluation sp int8, channels last"):
    ROUNDED[name] = ROUNDED["evaluation int8"]


@pytest.mark.parametrize("name", mark_repeated(LAYOUTS))
def test_accuracy_equals_one_process_in_every_layout(rank_events, name):
    images, top1, loss = read_accuracy(rank_events["evaluation"][:1])
    accuracy = read_accuracy(rank_events[name][: CORRECT[name]["ranks"]])
    assert accuracy[0] == images == 5
    if name in ROUNDED:
        assert accuracy[2] == pytest.approx(loss, abs=0.05)
    else:
        assert accuracy == (images, top1, pytest.approx(loss, rel=1e-5))


@pytest.mark.parametrize("name", mark_repeated(LAYOUTS))
def test_only_other_formats_are_compared_with_fp32(rank_events, name):
    ranks = rank_events[name][: CORRECT[name]["ranks"]]
    errors = read_metric(ranks, "logit_error")
    if name not in ROUNDED:
        assert errors == read_metric(ranks, "agreement") == []
        return
    lowest, highest = ROUNDED[name]
    # An error below the lowest one would mean that the format was fp32.
    assert all(lowest < error < highest for error in errors)
    assert len(errors) == len(read_metric(ranks, "agreement")) == len(ranks)


def read_samples(events, metric):
    return [
        value
        for event in events
        if event["event"] == "samples" and event["metric"] == metric
        for value in event["values"]
    ]


def test_latency_in_a_closed_load_is_that_of_the_slowest_rank(rank_events):
    ranks = rank_events["evaluation lp"][:2]
    times = [read_samples(events, "time_ms") for events in ranks]
    slowest = [max(step) for step in zip(*times, strict=True)]
    for events in ranks:
        assert read_samples(events, "latency_ms") == pytest.approx(slowest)


def test_requests_in_an_open_load_wait_for_earlier_ones(rank_events):
    ranks = rank_events["open load lp"][:2]
    latencies, other = (read_samples(events, "latency_ms") for events in ranks)
    assert latencies == other == sorted(latencies)
    # All requests arrive at nearly the same time, so the last one waits for the others.
    times = [read_samples(events, "time_ms") for events in ranks]
    work = sum(min(step) for step in zip(*times, strict=True)) - min(step[0] for step in times)
    assert latencies[-1] - latencies[0] > 0.5 * work


@pytest.mark.parametrize("name", mark_repeated(AT_FULL_SIZE))
def test_detects_fault_at_full_size_only(rank_events, name):
    case, expected = AT_FULL_SIZE[name]
    checks = read_checks(rank_events[f"full:{name}"][: case["ranks"]])
    failed = {check for check, passed in checks.items() if not all(passed)}
    assert expected in failed
    assert failed <= set(FULL_SIZE_CHECKS)
