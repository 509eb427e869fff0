"""Custom networks over many ranks, with all checks of the model benchmarks."""

import pytest
import torch
from safetensors.torch import load_file

from spbench_core.catalog import BENCHMARKS
from support.networks.own_networks import UNet
from support.runs import run_cases_on_ranks

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(600)]

ENTRY = BENCHMARKS["model.network"]


def make_case(name, inject=None, **changes):
    params = {"network": f"support.networks.own_networks:{name}", "image_size": 32, "batch_size": 5}
    params |= {"warmup": 0, "iterations": 1} | changes
    if changes.get("scheme") != "sequential":
        params = {"scheme": "lp", "baseline": False, "balance": "estimated"} | params
    ((_, complete),) = ENTRY.list_cases(params)
    return {
        "benchmark": "model.network",
        "params": params,
        "inject": inject,
        "ranks": ENTRY.ranks(complete).exact,
        "checks": list(ENTRY.list_checks(complete)),
    }


CORRECT = {
    "u-net, one process": make_case("UNet", scheme="sequential"),
    "u-net, 2 stages": make_case("UNet", parts=2, baseline=True, balance="measured"),
    "u-net, 3 stages, as given": make_case("UNet", split_size=3, balance="1,2,3", parts=2),
    "u-net, mirrored": make_case("UNet", scheme="gems", batch_size=8, parts=2),
    "u-net, mirrored, one way": make_case(
        "UNet", scheme="gems", batch_size=8, enable_master_comm_opt=True
    ),
    "u-net, interleaved": make_case("UNet", schedule="interleaved", parts=2, batch_size=6),
    "u-net, zero bubble": make_case("UNet", schedule="zb-h1", split_size=3, parts=3, batch_size=6),
    "u-net, 2 replicas": make_case("UNet", replicas=2, parts=2),
    "u-net, one normalisation": make_case("UNet", replicas=2, sync_batchnorm="replicas"),
    "u-net, local_DP": make_case("UNet", local_DP="2,1", batch_size=6),
    "u-net, bf16": make_case("UNet", parts=2, precision="bf16"),
    "u-net, computed again": make_case("UNet", parts=2, recompute="block"),
    "u-net, channels last": make_case("UNet", parts=2, memory_format="channels_last"),
    "u-net, evaluation": make_case("UNet", parts=2, enable_evaluation=True),
    "dense, 3 stages": make_case("Dense", split_size=3, parts=2, network_args={"growth": 6}),
    # Skips go straight to a later stage, or along from stage to stage.
    "straight": make_case("Levels", split_size=3, parts=2, skips="straight"),
    "skips as messages take": make_case(
        "Levels", split_size=4, parts=2, baseline=True, balance="measured"
    ),
    "along": make_case("Levels", split_size=3, parts=2, skips="along"),
    "straight, many micro-batches": make_case(
        "Levels", split_size=6, batch_size=24, parts=12, schedule="gpipe", skips="straight"
    ),
    "straight, mirrored": make_case(
        "Levels", scheme="gems", split_size=4, batch_size=16, parts=4, skips="straight"
    ),
    "straight, interleaved": make_case(
        "Levels", schedule="interleaved", batch_size=12, parts=6, skips="straight"
    ),
    "straight, three rounds": make_case(
        "Levels",
        schedule="interleaved",
        split_size=9,
        rounds=3,
        batch_size=9,
        parts=9,
        skips="straight",
    ),
    "straight, zero bubble": make_case(
        "Levels", schedule="zb-h1", split_size=4, parts=6, batch_size=12, skips="straight"
    ),
    "straight, deep": make_case(
        "Levels", schedule="1f1b-deep", split_size=5, parts=8, batch_size=8, skips="straight"
    ),
    "straight, local_DP": make_case(
        "Levels", split_size=3, local_DP="2,1,3", batch_size=12, parts=2, skips="straight"
    ),
    "straight, replicas": make_case(
        "Levels", split_size=3, replicas=2, sync_batchnorm="replicas", parts=2, skips="straight"
    ),
    "straight, tiles": make_case(
        "Levels",
        scheme="sp",
        spatial_size=2,
        split_size=3,
        grid="2x1,1x2",
        balance="5,4,5",
        image_size="40x56",
        parts=2,
        skips="straight",
    ),
    "straight, mirrored tiles": make_case(
        "Levels",
        scheme="gems_sp",
        split_size=3,
        grid="1x2",
        batch_size=8,
        balance="7,3,4",
        skips="straight",
    ),
    "straight, classes of pixels": make_case(
        "Levels",
        split_size=4,
        parts=2,
        batch_size=4,
        network_args={"segments": True},
        loss="dice",
        skips="straight",
    ),
    **{
        f"straight, {word}": make_case(
            "Levels", split_size=3, parts=2, batch_size=6, skips="straight", **params
        )
        for word, params in (
            ("stages computed again", {"recompute": "stage"}),
            ("layers computed again", {"recompute": "block"}),
            ("bf16", {"precision": "bf16"}),
            ("channels last", {"memory_format": "channels_last"}),
            ("evaluation", {"enable_evaluation": True}),
            ("gloo", {"backend": "gloo"}),
        )
    },
    "attention, 2 stages": make_case("Attention", parts=2),
    "attention, mirrored": make_case("Attention", scheme="gems", batch_size=4),
    "windows, 2 stages": make_case("Windows", parts=2, image_size=16),
    "windows, 1x2 tiles": make_case(
        "Windows", scheme="sp", split_size=1, grid="1x2", image_size=16
    ),
    "windows, 2x2 tiles and a stage": make_case(
        "Windows", scheme="sp", grid="2x2", image_size=16, parts=2
    ),
    "attention, 2x2 tiles": make_case("Attention", scheme="sp", split_size=1, grid="2x2"),
    "attention, 1x2 tiles, the faster format": make_case(
        "Attention", scheme="sp", split_size=1, grid="1x2", memory_format="auto"
    ),
    "u-net, 1x2 tiles and a stage, the faster format": make_case(
        "UNet", scheme="sp", grid="1x2", parts=2, memory_format="auto"
    ),
    "norms, 2 stages": make_case("Norms", parts=2),
    "norms, mirrored": make_case("Norms", scheme="gems", batch_size=12, parts=2),
    "norms, mirrored, one way": make_case(
        "Norms", scheme="gems", batch_size=12, parts=3, enable_master_comm_opt=True
    ),
    "norms, mirrored tiles": make_case("Norms", scheme="gems_sp", grid="1x2", batch_size=8),
    "written, 2 stages": make_case("StoredTensors", parts=2),
    "written, tiles and a stage": make_case("StoredTensors", scheme="sp", grid="1x2", parts=2),
    "many, 2 stages": make_case("ManyOperators", parts=2),
    # Tiles, even and uneven.
    "u-net, 1x2 tiles": make_case("UNet", scheme="sp", split_size=1, grid="1x2", strict=True),
    "u-net, 2x2 uneven tiles": make_case(
        "UNet", scheme="sp", split_size=1, grid="2x2", image_size="36x44"
    ),
    "u-net, tiles and a stage": make_case("UNet", scheme="sp", grid="2x1", parts=2),
    "u-net, tiles of tiles": make_case(
        "UNet", scheme="sp", spatial_size=2, split_size=2, grid="2x1,1x2", balance="2,4"
    ),
    "u-net, mirrored tiles": make_case("UNet", scheme="gems_sp", grid="1x2", batch_size=4),
    "u-net, tiles, one normalisation": make_case(
        "UNet",
        scheme="sp",
        split_size=1,
        grid="1x2",
        replicas=2,
        sync_batchnorm="replicas",
    ),
    "u-net, tiles, bf16": make_case(
        "UNet", scheme="sp", split_size=1, grid="1x2", precision="bf16"
    ),
    "u-net, tiles, computed again": make_case(
        "UNet", scheme="sp", split_size=1, grid="1x2", recompute="block"
    ),
    "many, 1x2 tiles": make_case("ManyOperators", scheme="sp", split_size=1, grid="1x2"),
    "many, 3x1 uneven tiles": make_case(
        "ManyOperators", scheme="sp", split_size=1, grid="3x1", image_size="50x38"
    ),
    "many, tiles, evaluation": make_case(
        "ManyOperators", scheme="sp", split_size=1, grid="2x2", enable_evaluation=True
    ),
    "many, one normalisation": make_case("ManyOperators", replicas=2, sync_batchnorm="replicas"),
    "many, tiles, one normalisation": make_case(
        "ManyOperators",
        scheme="sp",
        split_size=1,
        grid="1x2",
        replicas=2,
        sync_batchnorm="replicas",
    ),
    "dense, 2x2 tiles": make_case("Dense", scheme="sp", split_size=1, grid="2x2"),
    # Operators that fetch the pixels that they read.
    "resizing, 2 stages": make_case("Resizing", parts=2),
    "resizing, 1x2 tiles": make_case(
        "Resizing", scheme="sp", split_size=1, grid="1x2", strict=True
    ),
    "resizing, 3x1 uneven tiles": make_case(
        "Resizing", scheme="sp", split_size=1, grid="3x1", image_size="40x45"
    ),
    "resizing, 2x2 uneven tiles": make_case(
        "Resizing", scheme="sp", split_size=1, grid="2x2", image_size="37x45", parts=2
    ),
    "resizing, tiles and a stage": make_case("Resizing", scheme="sp", grid="1x3", parts=2),
    "padding, 2 stages": make_case("Padding", parts=2),
    "padding, 1x2 tiles": make_case("Padding", scheme="sp", split_size=1, grid="1x2", strict=True),
    "padding, 3x1 uneven tiles": make_case(
        "Padding", scheme="sp", split_size=1, grid="3x1", image_size="40x45"
    ),
    "padding, 2x2 uneven tiles": make_case(
        "Padding", scheme="sp", split_size=1, grid="2x2", image_size="37x45", parts=2
    ),
    "counting, 2 stages": make_case("PassCounter", parts=2),
    "counting, mirrored": make_case("PassCounter", scheme="gems", batch_size=8, parts=2),
    "counting, mirrored tiles": make_case(
        "PassCounter", scheme="gems_sp", grid="2x1", batch_size=4
    ),
    "padding, mirrored tiles": make_case("Padding", scheme="gems_sp", grid="2x1", batch_size=4),
    "padding, tiles, computed again": make_case(
        "Padding", scheme="sp", grid="2x1", parts=2, recompute="block"
    ),
    "channels last, 3 stages": make_case("ChannelsLast", split_size=3, parts=2),
    "channels last, 1x2 tiles": make_case("ChannelsLast", scheme="sp", split_size=1, grid="1x2"),
    "channels last, 2x2 uneven tiles": make_case(
        "ChannelsLast", scheme="sp", split_size=1, grid="2x2", image_size="37x45", parts=2
    ),
    "channels last, tiles and a stage": make_case("ChannelsLast", scheme="sp", grid="3x1", parts=2),
    "channels last, tiles, replicas": make_case(
        "ChannelsLast", scheme="sp", split_size=1, grid="1x2", replicas=2
    ),
    **{
        f"{name}, tiles, {word}": make_case(name, scheme="sp", split_size=1, grid="2x1", **params)
        for name in ("Resizing", "Padding", "ChannelsLast")
        for word, params in (
            ("bf16", {"precision": "bf16"}),
            ("channels_last", {"memory_format": "channels_last"}),
        )
    },
    **{
        f"{name}, 2 stages, bf16": make_case(name, parts=2, precision="bf16")
        for name in ("ManyOperators", "Attention", "Resizing", "ChannelsLast", "Segmenter")
    },
    "attention, 2 stages, fp16": make_case("Attention", parts=2, precision="fp16"),
    # All ranks drop the same values.
    "chance, one process": make_case("Chance", scheme="sequential", parts=2),
    "chance, 3 stages": make_case("Chance", split_size=3, parts=2),
    "chance, mirrored": make_case("Chance", scheme="gems", batch_size=8, parts=2),
    "chance, interleaved": make_case("Chance", schedule="interleaved", parts=2, batch_size=6),
    "chance, zero bubble": make_case("Chance", schedule="zb-h1", parts=3, batch_size=6),
    "chance, local_DP": make_case("Chance", local_DP="2,1", batch_size=6),
    "chance, one normalisation": make_case("Chance", replicas=2, sync_batchnorm="replicas"),
    "chance, computed again": make_case("Chance", parts=2, batch_size=6, recompute="block"),
    "chance, bf16": make_case("Chance", parts=2, precision="bf16"),
    "chance, uneven tiles": make_case(
        "Chance", scheme="sp", split_size=1, grid="2x2", image_size="36x45", parts=2
    ),
    "chance, mirrored tiles": make_case("Chance", scheme="gems_sp", grid="1x2", batch_size=4),
    "chance, tiles, computed again": make_case(
        "Chance", scheme="sp", grid="2x1", parts=2, recompute="block"
    ),
    "chance, tiles, evaluation": make_case(
        "Chance", scheme="sp", split_size=1, grid="2x2", enable_evaluation=True
    ),
    # A class for each pixel.
    "segmenter, one process": make_case("Segmenter", scheme="sequential"),
    "segmenter, dice, one process": make_case("Segmenter", scheme="sequential", loss="dice"),
    "segmenter, 2 stages": make_case("Segmenter", parts=2, task="segment"),
    "segmenter, dice, 2 stages": make_case("Segmenter", parts=2, loss="dice"),
    "segmenter, mirrored": make_case("Segmenter", scheme="gems", batch_size=8, parts=2),
    "segmenter, local_DP": make_case("Segmenter", local_DP="1,2", batch_size=6),
    "segmenter, tiles": make_case("Segmenter", scheme="sp", split_size=1, grid="1x2", strict=True),
    "segmenter, dice, uneven tiles": make_case(
        "Segmenter", scheme="sp", split_size=1, grid="2x2", image_size="36x44", loss="dice"
    ),
    "segmenter, tiles of tiles": make_case(
        "Segmenter", scheme="sp", spatial_size=2, grid="2x1,1x2", loss="dice", parts=2
    ),
    "segmenter, mirrored tiles": make_case(
        "Segmenter", scheme="gems_sp", spatial_size=2, grid="1x2,1x2", batch_size=4
    ),
    "segmenter, tiles, replicas": make_case(
        "Segmenter", scheme="sp", split_size=1, grid="1x2", replicas=2, loss="dice"
    ),
    "segmenter, tiles, bf16": make_case(
        "Segmenter", scheme="sp", split_size=1, grid="1x2", precision="bf16"
    ),
    "segmenter, dice, tiles, bf16": make_case(
        "Segmenter", scheme="sp", split_size=1, grid="2x1", precision="bf16", loss="dice"
    ),
    "segmenter, evaluation": make_case(
        "Segmenter", scheme="sp", split_size=1, grid="1x2", enable_evaluation=True
    ),
    "attention, tiles": make_case("Attention", scheme="sp", split_size=1, grid="2x1"),
}
FAULTY = {
    "drop-gradient": (make_case("UNet", "drop-gradient", parts=2), {"grad", "weights"}),
    "wrong-neighbour": (
        make_case("Dense", "wrong-neighbour", parts=2),
        {"output", "loss"},
    ),
    "wrong-neighbour, of a skip": (
        make_case("Levels", "wrong-neighbour", split_size=3, parts=2, skips="straight"),
        {"output", "loss"},
    ),
    "skipped-microbatch": (
        make_case("Attention", "skipped-microbatch", parts=2),
        {"grad", "weights"},
    ),
    "tile-batchnorm": (
        make_case("UNet", "tile-batchnorm", local_DP="2,1", batch_size=6),
        {"output", "running_stats"},
    ),
    "wrong-neighbour, tiles": (
        make_case("UNet", "wrong-neighbour", scheme="sp", split_size=1, grid="1x2"),
        {"output", "grad"},
    ),
    "lost-halo-gradient, tiles": (
        make_case("ManyOperators", "lost-halo-gradient", scheme="sp", split_size=1, grid="1x2"),
        {"grad", "input_grad"},
    ),
    "lost-tile-sum": (
        make_case("ManyOperators", "lost-tile-sum", scheme="sp", split_size=1, grid="1x2"),
        {"grad", "weights"},
    ),
    "tile-batchnorm, tiles": (
        make_case("ManyOperators", "tile-batchnorm", scheme="sp", split_size=1, grid="1x2"),
        {"output", "running_stats"},
    ),
    "segmenter, wrong-neighbour, tiles": (
        make_case("Segmenter", "wrong-neighbour", scheme="sp", split_size=1, grid="1x2"),
        {"output", "grad"},
    ),
    "segmenter, drop-gradient": (
        make_case("Segmenter", "drop-gradient", parts=2, loss="dice"),
        {"grad", "weights"},
    ),
    "tile-dice": (
        make_case("Segmenter", "tile-dice", scheme="sp", split_size=1, grid="1x2", loss="dice"),
        {"loss", "grad", "weights"},
    ),
    "other-draws": (make_case("Chance", "other-draws", parts=2), {"loss", "grad", "weights"}),
    "other-draws, tiles": (
        make_case("Chance", "other-draws", scheme="sp", split_size=1, grid="1x2"),
        {"loss", "grad", "weights"},
    ),
    "stale-state": (make_case("UNet", "stale-state", parts=2), {"state"}),
    "stale-state, tiles": (
        make_case("UNet", "stale-state", scheme="sp", split_size=1, grid="1x2"),
        {"state"},
    ),
    "full:scale-input-gradient": (
        make_case(
            "Segmenter",
            "full:scale-input-gradient",
            scheme="sp",
            split_size=1,
            grid="1x2",
            precision="bf16",
            loss="dice",
        ),
        {"scales"},
    ),
    "full:drop-tile": (
        make_case("UNet", "full:drop-tile", scheme="sp", split_size=1, grid="1x2"),
        {"operators"},
    ),
    "full:zero-weight-gradient, stages": (
        make_case("UNet", "full:zero-weight-gradient", parts=2),
        {"operators"},
    ),
    "full:scale-input-gradient, stages": (
        make_case("UNet", "full:scale-input-gradient", parts=2),
        {"scales"},
    ),
    "full:wrong-neighbour": (make_case("UNet", "full:wrong-neighbour"), {"joints"}),
    "full:mean-instead-of-sum": (make_case("UNet", "full:mean-instead-of-sum", parts=2), {"sums"}),
}
NETWORKS_WITH_ALL_OPERATORS = (
    "UNet",
    "Dense",
    "ManyOperators",
    "Resizing",
    "Padding",
    "ChannelsLast",
)
"""Networks that have all operators together."""
IN_STAGES = (
    "drop-gradient",
    "wrong-neighbour",
    "skipped-microbatch",
    "scale-weight-gradient",
)
IN_TILES = (
    *("drop-gradient", "wrong-neighbour", "lost-halo-gradient", "zero-input-gradient"),
    *("mean-instead-of-sum", "drop-tile"),
)
EVERYWHERE = {
    f"{fault}, {network}, {layout}": make_case(network, fault, parts=2, **params)
    for layout, faults, params in (
        ("stages", IN_STAGES, {}),
        ("tiles", IN_TILES, {"scheme": "sp", "split_size": 1, "grid": "2x1"}),
    )
    for fault in faults
    for network in NETWORKS_WITH_ALL_OPERATORS
}
"""Each fault in each of these networks."""
OFTEN = {
    "u-net, 3 stages, as given",
    "u-net, mirrored",
    "straight, tiles",
    "wrong-neighbour, of a skip",
    "attention, 2 stages",
    "drop-gradient",
    "u-net, 2x2 uneven tiles",
    "wrong-neighbour, tiles",
    "segmenter, dice, uneven tiles",
    "chance, uneven tiles",
    "tile-dice",
    "stale-state",
    "full:zero-weight-gradient, stages",
}
"""Cases in all runs of the tests; others run in long tests only."""


def mark_long(names):
    return [name if name in OFTEN else pytest.param(name, marks=pytest.mark.long) for name in names]


def run_selected_cases(request, tmp_path_factory, cases):
    """Run the selected tests' cases in one launch; return events by case."""
    tests = [test for test in request.session.items if test.path == request.path]
    names = {test.callspec.params["name"] for test in tests if hasattr(test, "callspec")}
    cases = {name: case for name, case in cases.items() if name in names}
    folder = tmp_path_factory.mktemp("networks")
    ranks = max(case["ranks"] for case in cases.values())
    results = run_cases_on_ranks(ranks, "run_cases.py", folder, list(cases.values()), seconds=500)
    return dict(zip(cases, results, strict=True))


# One launch per group keeps each far below its time limit. A case takes 0.6 s, and up to 2 s on
# slower cores that other tests use too.


@pytest.fixture(scope="module")
def correct_events(request, tmp_path_factory):
    return run_selected_cases(request, tmp_path_factory, CORRECT)


@pytest.fixture(scope="module")
def faulty_events(request, tmp_path_factory):
    cases = {name: case for name, (case, _) in FAULTY.items()}
    return run_selected_cases(request, tmp_path_factory, cases)


@pytest.fixture(scope="module")
def everywhere_events(request, tmp_path_factory):
    return run_selected_cases(request, tmp_path_factory, EVERYWHERE)


def read_checks(ranks):
    """Return the events of all ranks by check."""
    checks = {}
    for events in ranks:
        for event in events:
            if event["event"] == "check":
                checks.setdefault(event["name"], []).append(event)
    return checks


@pytest.mark.parametrize("name", mark_long(CORRECT))
def test_network_equals_the_module_of_the_user(correct_events, name):
    case = CORRECT[name]
    for events in correct_events[name][: case["ranks"]]:
        checks = read_checks([events])
        assert set(checks) == set(case["checks"])
        assert [
            event
            for check_events in checks.values()
            for event in check_events
            if not event["passed"]
        ] == []


@pytest.mark.parametrize("name", mark_long([name for name in CORRECT if "straight" in name]))
def test_skips_go_straight(correct_events, name):
    (chosen,) = [
        event["value"]
        for event in correct_events[name][0]
        if event["event"] == "choice" and event["name"] == "skips"
    ]
    assert chosen.startswith("straight")


@pytest.mark.parametrize("name", mark_long(FAULTY))
def test_detects_fault(faulty_events, name):
    case, expected = FAULTY[name]
    checks = read_checks(faulty_events[name][: case["ranks"]])
    failed = {
        check for check, events in checks.items() if not all(event["passed"] for event in events)
    }
    assert expected <= failed


@pytest.mark.long
@pytest.mark.parametrize("name", EVERYWHERE)
def test_detects_fault_in_every_network(everywhere_events, name):
    checks = read_checks(everywhere_events[name][: EVERYWHERE[name]["ranks"]])
    assert not all(event["passed"] for events in checks.values() for event in events)


@pytest.mark.long
def test_saved_weights_load_into_the_module_and_into_a_case(tmp_path):
    layouts = {
        "one": {"scheme": "sequential"},
        "stages": {"split_size": 3, "balance": "1,2,3"},
        "tiles": {"scheme": "sp", "split_size": 1, "grid": "1x2"},
    }
    training_params = {"precision": "fp64", "validate": "off", "iterations": 2}
    suffixes = dict.fromkeys(layouts, ".pt") | {"tiles": ".safetensors"}
    files = {name: str(tmp_path / f"{name}{suffix}") for name, suffix in suffixes.items()}
    cases = [
        make_case("UNet", save_weights=files[name], **training_params, **params)
        for name, params in layouts.items()
    ]
    resumed = make_case(
        "UNet", weights=files["tiles"], **training_params, save_weights=str(tmp_path / "again.pt")
    )
    run_cases_on_ranks(3, "run_cases.py", tmp_path, [*cases, resumed])
    states = {
        name: torch.load(tmp_path / f"{name}.pt", weights_only=True)
        for name in ("one", "stages", "again")
    }
    states["tiles"] = load_file(files["tiles"])
    module = UNet()
    initial_state = UNet().state_dict()
    module.load_state_dict(states["stages"])
    for key, tensor in states["one"].items():
        for name in ("stages", "tiles"):
            torch.testing.assert_close(states[name][key], tensor, rtol=0, atol=1e-6)
        assert tensor.shape == initial_state[key].shape
    changes = [
        float((states["again"][key] - states["tiles"][key]).abs().max())
        for key in states["one"]
        if "conv" in key
    ]
    assert 0 < max(changes) < 0.01
