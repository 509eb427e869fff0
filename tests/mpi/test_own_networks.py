"""Networks of the user's own over many ranks, with all checks of the model benchmarks."""

import pytest
import torch
from safetensors.torch import load_file

from spbench_core.catalog import BENCHMARKS
from support.networks.own_networks import UNet
from support.runs import run_cases_on_ranks

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(600)]

RANKS = 6
ENTRY = BENCHMARKS["model.network"]


def case(name, inject=None, **params):
    given = {"network": f"support.networks.own_networks:{name}", "image_size": 32, "batch_size": 5}
    given |= {"warmup": 0, "iterations": 1} | params
    if params.get("scheme") != "sequential":
        given = {"scheme": "lp", "baseline": False, "balance": "estimated"} | given
    (complete,) = [one for _, one in ENTRY.list_cases(given)]
    return {
        "benchmark": "model.network",
        "params": given,
        "inject": inject,
        "ranks": ENTRY.ranks(complete).exact,
        "checks": list(ENTRY.list_checks(complete)),
    }


RIGHT = {
    "u-net, one process": case("UNet", scheme="sequential"),
    "u-net, 2 stages": case("UNet", parts=2, baseline=True, balance="measured"),
    "u-net, 3 stages, as given": case("UNet", split_size=3, balance="1,2,3", parts=2),
    "u-net, mirrored": case("UNet", scheme="gems", batch_size=8, parts=2),
    "u-net, mirrored, one way": case(
        "UNet", scheme="gems", batch_size=8, enable_master_comm_opt=True
    ),
    "u-net, interleaved": case("UNet", schedule="interleaved", parts=2, batch_size=6),
    "u-net, zero bubble": case("UNet", schedule="zb-h1", split_size=3, parts=3, batch_size=6),
    "u-net, 2 replicas": case("UNet", replicas=2, parts=2),
    "u-net, one normalisation": case("UNet", replicas=2, sync_batchnorm="replicas"),
    "u-net, local_DP": case("UNet", local_DP="2,1", batch_size=6),
    "u-net, bf16": case("UNet", parts=2, precision="bf16"),
    "u-net, computed again": case("UNet", parts=2, recompute="block"),
    "u-net, channels last": case("UNet", parts=2, memory_format="channels_last"),
    "u-net, evaluation": case("UNet", parts=2, enable_evaluation=True),
    "dense, 3 stages": case("Dense", split_size=3, parts=2, network_args={"growth": 6}),
    # What a later stage reads goes straight there, or along from stage to stage.
    "straight": case("Levels", split_size=3, parts=2, skips="straight"),
    "skips as messages take": case(
        "Levels", split_size=4, parts=2, baseline=True, balance="measured"
    ),
    "along": case("Levels", split_size=3, parts=2, skips="along"),
    "straight, many micro-batches": case(
        "Levels", split_size=6, batch_size=24, parts=12, schedule="gpipe", skips="straight"
    ),
    "straight, mirrored": case(
        "Levels", scheme="gems", split_size=4, batch_size=16, parts=4, skips="straight"
    ),
    "straight, interleaved": case(
        "Levels", schedule="interleaved", batch_size=12, parts=6, skips="straight"
    ),
    "straight, three rounds": case(
        "Levels",
        schedule="interleaved",
        split_size=9,
        rounds=3,
        batch_size=9,
        parts=9,
        skips="straight",
    ),
    "straight, zero bubble": case(
        "Levels", schedule="zb-h1", split_size=4, parts=6, batch_size=12, skips="straight"
    ),
    "straight, deep": case(
        "Levels", schedule="1f1b-deep", split_size=5, parts=8, batch_size=8, skips="straight"
    ),
    "straight, local_DP": case(
        "Levels", split_size=3, local_DP="2,1,3", batch_size=12, parts=2, skips="straight"
    ),
    "straight, replicas": case(
        "Levels", split_size=3, replicas=2, sync_batchnorm="replicas", parts=2, skips="straight"
    ),
    "straight, tiles": case(
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
    "straight, mirrored tiles": case(
        "Levels",
        scheme="gems_sp",
        split_size=3,
        grid="1x2",
        batch_size=8,
        balance="7,3,4",
        skips="straight",
    ),
    "straight, classes of pixels": case(
        "Levels",
        split_size=4,
        parts=2,
        batch_size=4,
        network_args={"segments": True},
        loss="dice",
        skips="straight",
    ),
    **{
        f"straight, {word}": case(
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
    "attention, 2 stages": case("Attention", parts=2),
    "attention, mirrored": case("Attention", scheme="gems", batch_size=4),
    "windows, 2 stages": case("Windows", parts=2, image_size=16),
    "windows, 1x2 tiles": case("Windows", scheme="sp", split_size=1, grid="1x2", image_size=16),
    "windows, 2x2 tiles and a stage": case(
        "Windows", scheme="sp", grid="2x2", image_size=16, parts=2
    ),
    "attention, 2x2 tiles": case("Attention", scheme="sp", split_size=1, grid="2x2"),
    "attention, 1x2 tiles, the faster format": case(
        "Attention", scheme="sp", split_size=1, grid="1x2", memory_format="auto"
    ),
    "u-net, 1x2 tiles and a stage, the faster format": case(
        "UNet", scheme="sp", grid="1x2", parts=2, memory_format="auto"
    ),
    "norms, 2 stages": case("Norms", parts=2),
    "norms, mirrored": case("Norms", scheme="gems", batch_size=12, parts=2),
    "norms, mirrored, one way": case(
        "Norms", scheme="gems", batch_size=12, parts=3, enable_master_comm_opt=True
    ),
    "norms, mirrored tiles": case("Norms", scheme="gems_sp", grid="1x2", batch_size=8),
    "written, 2 stages": case("Written", parts=2),
    "written, tiles and a stage": case("Written", scheme="sp", grid="1x2", parts=2),
    "many, 2 stages": case("Many", parts=2),
    # Tiles, even and uneven.
    "u-net, 1x2 tiles": case("UNet", scheme="sp", split_size=1, grid="1x2", strict=True),
    "u-net, 2x2 uneven tiles": case(
        "UNet", scheme="sp", split_size=1, grid="2x2", image_size="36x44"
    ),
    "u-net, tiles and a stage": case("UNet", scheme="sp", grid="2x1", parts=2),
    "u-net, tiles of tiles": case(
        "UNet", scheme="sp", spatial_size=2, split_size=2, grid="2x1,1x2", balance="2,4"
    ),
    "u-net, mirrored tiles": case("UNet", scheme="gems_sp", grid="1x2", batch_size=4),
    "u-net, tiles, one normalisation": case(
        "UNet",
        scheme="sp",
        split_size=1,
        grid="1x2",
        replicas=2,
        sync_batchnorm="replicas",
    ),
    "u-net, tiles, bf16": case("UNet", scheme="sp", split_size=1, grid="1x2", precision="bf16"),
    "u-net, tiles, computed again": case(
        "UNet", scheme="sp", split_size=1, grid="1x2", recompute="block"
    ),
    "many, 1x2 tiles": case("Many", scheme="sp", split_size=1, grid="1x2"),
    "many, 3x1 uneven tiles": case(
        "Many", scheme="sp", split_size=1, grid="3x1", image_size="50x38"
    ),
    "many, tiles, evaluation": case(
        "Many", scheme="sp", split_size=1, grid="2x2", enable_evaluation=True
    ),
    "many, one normalisation": case("Many", replicas=2, sync_batchnorm="replicas"),
    "many, tiles, one normalisation": case(
        "Many", scheme="sp", split_size=1, grid="1x2", replicas=2, sync_batchnorm="replicas"
    ),
    "dense, 2x2 tiles": case("Dense", scheme="sp", split_size=1, grid="2x2"),
    # Operators that fetch what they read.
    "resizing, 2 stages": case("Resizing", parts=2),
    "resizing, 1x2 tiles": case("Resizing", scheme="sp", split_size=1, grid="1x2", strict=True),
    "resizing, 3x1 uneven tiles": case(
        "Resizing", scheme="sp", split_size=1, grid="3x1", image_size="40x45"
    ),
    "resizing, 2x2 uneven tiles": case(
        "Resizing", scheme="sp", split_size=1, grid="2x2", image_size="37x45", parts=2
    ),
    "resizing, tiles and a stage": case("Resizing", scheme="sp", grid="1x3", parts=2),
    "padding, 2 stages": case("Padding", parts=2),
    "padding, 1x2 tiles": case("Padding", scheme="sp", split_size=1, grid="1x2", strict=True),
    "padding, 3x1 uneven tiles": case(
        "Padding", scheme="sp", split_size=1, grid="3x1", image_size="40x45"
    ),
    "padding, 2x2 uneven tiles": case(
        "Padding", scheme="sp", split_size=1, grid="2x2", image_size="37x45", parts=2
    ),
    "counting, 2 stages": case("Counting", parts=2),
    "counting, mirrored": case("Counting", scheme="gems", batch_size=8, parts=2),
    "counting, mirrored tiles": case("Counting", scheme="gems_sp", grid="2x1", batch_size=4),
    "padding, mirrored tiles": case("Padding", scheme="gems_sp", grid="2x1", batch_size=4),
    "padding, tiles, computed again": case(
        "Padding", scheme="sp", grid="2x1", parts=2, recompute="block"
    ),
    "channels last, 3 stages": case("ChannelsLast", split_size=3, parts=2),
    "channels last, 1x2 tiles": case("ChannelsLast", scheme="sp", split_size=1, grid="1x2"),
    "channels last, 2x2 uneven tiles": case(
        "ChannelsLast", scheme="sp", split_size=1, grid="2x2", image_size="37x45", parts=2
    ),
    "channels last, tiles and a stage": case("ChannelsLast", scheme="sp", grid="3x1", parts=2),
    "channels last, tiles, replicas": case(
        "ChannelsLast", scheme="sp", split_size=1, grid="1x2", replicas=2
    ),
    **{
        f"{name}, tiles, {word}": case(name, scheme="sp", split_size=1, grid="2x1", **params)
        for name in ("Resizing", "Padding", "ChannelsLast")
        for word, params in (
            ("bf16", {"precision": "bf16"}),
            ("channels_last", {"memory_format": "channels_last"}),
        )
    },
    **{
        f"{name}, 2 stages, bf16": case(name, parts=2, precision="bf16")
        for name in ("Many", "Attention", "Resizing", "ChannelsLast", "Segmenter")
    },
    "attention, 2 stages, fp16": case("Attention", parts=2, precision="fp16"),
    # What is dropped is the same everywhere.
    "chance, one process": case("Chance", scheme="sequential", parts=2),
    "chance, 3 stages": case("Chance", split_size=3, parts=2),
    "chance, mirrored": case("Chance", scheme="gems", batch_size=8, parts=2),
    "chance, interleaved": case("Chance", schedule="interleaved", parts=2, batch_size=6),
    "chance, zero bubble": case("Chance", schedule="zb-h1", parts=3, batch_size=6),
    "chance, local_DP": case("Chance", local_DP="2,1", batch_size=6),
    "chance, one normalisation": case("Chance", replicas=2, sync_batchnorm="replicas"),
    "chance, computed again": case("Chance", parts=2, batch_size=6, recompute="block"),
    "chance, bf16": case("Chance", parts=2, precision="bf16"),
    "chance, uneven tiles": case(
        "Chance", scheme="sp", split_size=1, grid="2x2", image_size="36x45", parts=2
    ),
    "chance, mirrored tiles": case("Chance", scheme="gems_sp", grid="1x2", batch_size=4),
    "chance, tiles, computed again": case(
        "Chance", scheme="sp", grid="2x1", parts=2, recompute="block"
    ),
    "chance, tiles, evaluation": case(
        "Chance", scheme="sp", split_size=1, grid="2x2", enable_evaluation=True
    ),
    # A class for each pixel.
    "segmenter, one process": case("Segmenter", scheme="sequential"),
    "segmenter, dice, one process": case("Segmenter", scheme="sequential", loss="dice"),
    "segmenter, 2 stages": case("Segmenter", parts=2, task="segment"),
    "segmenter, dice, 2 stages": case("Segmenter", parts=2, loss="dice"),
    "segmenter, mirrored": case("Segmenter", scheme="gems", batch_size=8, parts=2),
    "segmenter, local_DP": case("Segmenter", local_DP="1,2", batch_size=6),
    "segmenter, tiles": case("Segmenter", scheme="sp", split_size=1, grid="1x2", strict=True),
    "segmenter, dice, uneven tiles": case(
        "Segmenter", scheme="sp", split_size=1, grid="2x2", image_size="36x44", loss="dice"
    ),
    "segmenter, tiles of tiles": case(
        "Segmenter", scheme="sp", spatial_size=2, grid="2x1,1x2", loss="dice", parts=2
    ),
    "segmenter, mirrored tiles": case(
        "Segmenter", scheme="gems_sp", spatial_size=2, grid="1x2,1x2", batch_size=4
    ),
    "segmenter, tiles, replicas": case(
        "Segmenter", scheme="sp", split_size=1, grid="1x2", replicas=2, loss="dice"
    ),
    "segmenter, tiles, bf16": case(
        "Segmenter", scheme="sp", split_size=1, grid="1x2", precision="bf16"
    ),
    "segmenter, dice, tiles, bf16": case(
        "Segmenter", scheme="sp", split_size=1, grid="2x1", precision="bf16", loss="dice"
    ),
    "segmenter, evaluation": case(
        "Segmenter", scheme="sp", split_size=1, grid="1x2", enable_evaluation=True
    ),
    "attention, tiles": case("Attention", scheme="sp", split_size=1, grid="2x1"),
}
WRONG = {
    "drop-gradient": (case("UNet", "drop-gradient", parts=2), {"grad", "weights"}),
    "wrong-neighbour": (case("Dense", "wrong-neighbour", parts=2), {"output", "loss"}),
    "wrong-neighbour, of a skip": (
        case("Levels", "wrong-neighbour", split_size=3, parts=2, skips="straight"),
        {"output", "loss"},
    ),
    "skipped-microbatch": (case("Attention", "skipped-microbatch", parts=2), {"grad", "weights"}),
    "tile-batchnorm": (
        case("UNet", "tile-batchnorm", local_DP="2,1", batch_size=6),
        {"output", "running_stats"},
    ),
    "wrong-neighbour, tiles": (
        case("UNet", "wrong-neighbour", scheme="sp", split_size=1, grid="1x2"),
        {"output", "grad"},
    ),
    "lost-halo-gradient, tiles": (
        case("Many", "lost-halo-gradient", scheme="sp", split_size=1, grid="1x2"),
        {"grad", "input_grad"},
    ),
    "lost-tile-sum": (
        case("Many", "lost-tile-sum", scheme="sp", split_size=1, grid="1x2"),
        {"grad", "weights"},
    ),
    "tile-batchnorm, tiles": (
        case("Many", "tile-batchnorm", scheme="sp", split_size=1, grid="1x2"),
        {"output", "running_stats"},
    ),
    "segmenter, wrong-neighbour, tiles": (
        case("Segmenter", "wrong-neighbour", scheme="sp", split_size=1, grid="1x2"),
        {"output", "grad"},
    ),
    "segmenter, drop-gradient": (
        case("Segmenter", "drop-gradient", parts=2, loss="dice"),
        {"grad", "weights"},
    ),
    "tile-dice": (
        case("Segmenter", "tile-dice", scheme="sp", split_size=1, grid="1x2", loss="dice"),
        {"loss", "grad", "weights"},
    ),
    "other-draws": (case("Chance", "other-draws", parts=2), {"loss", "grad", "weights"}),
    "other-draws, tiles": (
        case("Chance", "other-draws", scheme="sp", split_size=1, grid="1x2"),
        {"loss", "grad", "weights"},
    ),
    "stale-state": (case("UNet", "stale-state", parts=2), {"state"}),
    "stale-state, tiles": (
        case("UNet", "stale-state", scheme="sp", split_size=1, grid="1x2"),
        {"state"},
    ),
    "full:scale-input-gradient": (
        case(
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
        case("UNet", "full:drop-tile", scheme="sp", split_size=1, grid="1x2"),
        {"operators"},
    ),
    "full:zero-weight-gradient, stages": (
        case("UNet", "full:zero-weight-gradient", parts=2),
        {"operators"},
    ),
    "full:scale-input-gradient, stages": (
        case("UNet", "full:scale-input-gradient", parts=2),
        {"scales"},
    ),
    "full:wrong-neighbour": (case("UNet", "full:wrong-neighbour"), {"joints"}),
    "full:mean-instead-of-sum": (case("UNet", "full:mean-instead-of-sum", parts=2), {"sums"}),
}
HELD = "UNet", "Dense", "Many", "Resizing", "Padding", "ChannelsLast"
"""Networks that together hold every operator."""
IN_STAGES = "drop-gradient", "wrong-neighbour", "skipped-microbatch", "scale-weight-gradient"
IN_TILES = (
    *("drop-gradient", "wrong-neighbour", "lost-halo-gradient", "zero-input-gradient"),
    *("mean-instead-of-sum", "drop-tile"),
)
EVERYWHERE = {
    f"{fault}, {network}, {layout}": case(network, fault, parts=2, **params)
    for layout, faults, params in (
        ("stages", IN_STAGES, {}),
        ("tiles", IN_TILES, {"scheme": "sp", "split_size": 1, "grid": "2x1"}),
    )
    for fault in faults
    for network in HELD
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
"""Those of every run; the others are long tests."""


def each_of(names):
    return [name if name in OFTEN else pytest.param(name, marks=pytest.mark.long) for name in names]


def events_by_case(request, tmp_path_factory, cases):
    """The events of all ranks, by case; the cases of the tests that are to run, in one launch."""
    tests = [test for test in request.session.items if test.path == request.path]
    asked = {test.callspec.params["name"] for test in tests if hasattr(test, "callspec")}
    cases = {name: one for name, one in cases.items() if name in asked}
    folder = tmp_path_factory.mktemp("networks")
    found = run_cases_on_ranks(RANKS, "run_cases.py", folder, list(cases.values()), seconds=500)
    return dict(zip(cases, found, strict=True))


# A launch for each group, so that none comes near its limit: a case takes 0.6 s, and up to 2 s on
# slower cores that other tests use as well.


@pytest.fixture(scope="module")
def right(request, tmp_path_factory):
    return events_by_case(request, tmp_path_factory, RIGHT)


@pytest.fixture(scope="module")
def wrong(request, tmp_path_factory):
    cases = {name: one for name, (one, _) in WRONG.items()}
    return events_by_case(request, tmp_path_factory, cases)


@pytest.fixture(scope="module")
def everywhere(request, tmp_path_factory):
    return events_by_case(request, tmp_path_factory, EVERYWHERE)


def checks_of(ranks):
    """By check, what each rank says of it."""
    found = {}
    for events in ranks:
        for event in events:
            if event["event"] == "check":
                found.setdefault(event["name"], []).append(event)
    return found


@pytest.mark.parametrize("name", each_of(RIGHT))
def test_every_rank_equals_the_users_module(right, name):
    one = RIGHT[name]
    for events in right[name][: one["ranks"]]:
        found = checks_of([events])
        assert set(found) == set(one["checks"])
        assert [
            event for several in found.values() for event in several if not event["passed"]
        ] == []


@pytest.mark.parametrize("name", each_of([name for name in RIGHT if "straight" in name]))
def test_skips_went_straight(right, name):
    (chosen,) = [
        event["value"]
        for event in right[name][0]
        if event["event"] == "choice" and event["name"] == "skips"
    ]
    assert chosen.startswith("straight")


@pytest.mark.parametrize("name", each_of(WRONG))
def test_a_planted_fault_is_noticed(wrong, name):
    one, wanted = WRONG[name]
    found = checks_of(wrong[name][: one["ranks"]])
    failed = {check for check, events in found.items() if not all(e["passed"] for e in events)}
    assert wanted <= failed


@pytest.mark.long
@pytest.mark.parametrize("name", EVERYWHERE)
def test_a_fault_is_noticed_in_every_network(everywhere, name):
    found = checks_of(everywhere[name][: EVERYWHERE[name]["ranks"]])
    assert not all(event["passed"] for events in found.values() for event in events)


@pytest.mark.long
def test_weights_go_out_as_the_users_own_whatever_the_layout_and_come_in_again(tmp_path):
    layouts = {
        "one": {"scheme": "sequential"},
        "stages": {"split_size": 3, "balance": "1,2,3"},
        "tiles": {"scheme": "sp", "split_size": 1, "grid": "1x2"},
    }
    learnt = {"precision": "fp64", "validate": "off", "iterations": 2}
    suffixes = dict.fromkeys(layouts, ".pt") | {"tiles": ".safetensors"}
    files = {name: str(tmp_path / f"{name}{suffix}") for name, suffix in suffixes.items()}
    cases = [
        case("UNet", save_weights=files[name], **learnt, **params)
        for name, params in layouts.items()
    ]
    again = case("UNet", weights=files["tiles"], **learnt, save_weights=str(tmp_path / "again.pt"))
    run_cases_on_ranks(RANKS, "run_cases.py", tmp_path, [*cases, again])
    states = {
        name: torch.load(tmp_path / f"{name}.pt", weights_only=True)
        for name in ("one", "stages", "again")
    }
    states["tiles"] = load_file(files["tiles"])
    user = UNet()
    drawn = UNet().state_dict()
    user.load_state_dict(states["stages"])
    for key, one in states["one"].items():
        for name in ("stages", "tiles"):
            torch.testing.assert_close(states[name][key], one, rtol=0, atol=1e-6)
        assert one.shape == drawn[key].shape
    moved = [
        float((states["again"][key] - states["tiles"][key]).abs().max())
        for key, one in states["one"].items()
        if "conv" in key
    ]
    assert 0 < max(moved) < 0.01
