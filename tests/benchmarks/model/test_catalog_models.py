"""Parameters of the model benchmarks: derived values and rejected values."""

import json
import re

import pytest

from spbench_core.catalog import BENCHMARKS as ENTRIES
from spbench_core.catalog.planted_fault import COMMON_FAULTS
from spbench_core.layout.tiles import parse_pair
from spbench_workers.benchmarks.model.entry import BENCHMARKS
from spbench_workers.benchmarks.model.regimes import FULL_SIZE_CHECKS
from support.paths import DOCS

RESNET, AMOEBANET, NETWORK, PROFILE = BENCHMARKS
MODELS = (RESNET, AMOEBANET, NETWORK)
SMALL = {"image_size": 64, "batch_size": 8}
SP = SMALL | {"scheme": "sp"}
D2 = SP | {"halo_D2": True}
GEMS = SMALL | {"scheme": "gems"}


def catch_param_error(entry, params):
    with pytest.raises(ExceptionGroup) as caught:
        entry.complete(params)
    (error,) = caught.value.exceptions
    return error.param, str(error)


@pytest.mark.parametrize(
    ("settings", "ranks"),
    [
        ({"scheme": "sequential"}, 1),
        ({"scheme": "lp"}, 2),
        ({"scheme": "lp", "split_size": 4, "parts": 4}, 4),
        ({"scheme": "lp", "batch_size": 5, "parts": 2}, 2),
        ({"scheme": "lp", "replicas": 2}, 4),
        ({"scheme": "lp", "split_size": 3, "local_DP": 2}, 6),
        ({"scheme": "lp", "local_DP": "2,1"}, 3),
        ({"scheme": "lp", "split_size": 3, "local_DP": [1, 3, 2], "replicas": 2}, 12),
        ({"scheme": "sp", "split_size": 3, "local_DP": "1,2"}, 7),
        ({"scheme": "gems", "split_size": 3, "local_DP": "2,1,2"}, 5),
        ({"scheme": "sp"}, 5),
        ({"scheme": "sp", "num_spatial_parts": 4, "slice_method": "vertical"}, 5),
        ({"scheme": "sp", "grid": "2x3"}, 7),
        ({"scheme": "sp", "num_spatial_parts": 16, "split_size": 3}, 18),
        ({"scheme": "sp", "num_spatial_parts": "4", "split_size": 3, "spatial_size": 2}, 9),
        ({"scheme": "sp", "num_spatial_parts": "4,4", "split_size": 3, "spatial_size": 2}, 9),
        (
            {
                "scheme": "sp",
                "num_spatial_parts": "4,2",
                "split_size": 3,
                "spatial_size": 2,
                "slice_method": "vertical",
            },
            7,
        ),
        ({"scheme": "sp", "grid": "2x2,1x2", "split_size": 3, "spatial_size": 2}, 7),
        ({"scheme": "sp", "local_DP": 2}, 6),
        ({"scheme": "sp", "replicas": 2}, 10),
        ({"scheme": "sp", "grid": "1x2", "split_size": 1}, 2),
        ({"scheme": "sp", "image_size": "65x96"}, 5),
        ({"scheme": "sp", "image_size": 62, "halo_D2": True, "fused_layers": 3}, 5),
        ({"scheme": "gems"}, 2),
        ({"scheme": "gems", "split_size": 4, "times": 4, "enable_master_comm_opt": "on"}, 4),
        ({"scheme": "gems_sp", "grid": "1x2", "split_size": 3}, 4),
        ({"scheme": "gems_sp", "split_size": 5}, 8),
    ],
)
@pytest.mark.parametrize("entry", MODELS, ids=lambda entry: entry.name)
def test_a_configuration_determines_the_ranks(entry, settings, ranks):
    settings = SMALL | dict(entry.begins_with) | settings
    if entry is NETWORK and "halo_D2" in settings:
        with pytest.raises(ExceptionGroup) as caught:
            entry.complete(settings)
        unknown = {error.param for error in caught.value.exceptions}
        assert unknown == {"halo_D2", "fused_layers"} & set(settings)
        return
    if entry is AMOEBANET and any(side % 32 for side in parse_pair(settings["image_size"])):
        assert catch_param_error(entry, settings)[0] == "image_size"
        return
    params = entry.complete(settings)
    assert entry.ranks(params).exact == ranks
    assert entry.complete(params) == params
    assert set(params) == {param.name for param in entry.params}
    for rank in range(ranks):
        assert entry.place(params, rank)["stage"] < (params["split_size"] or 1)
    json.dumps(params)


def test_a_balance_by_estimated_cost_gives_tiles_more_layers():
    lp = RESNET.complete(SMALL | {"scheme": "lp", "balance": "estimated"})["balance"]
    sp = RESNET.complete(SP | {"balance": "estimated"})["balance"]
    first, others = (int(balance.split(",")[0]) for balance in (sp, lp))
    assert first > others
    for balance in (lp, sp):
        assert sum(map(int, balance.split(","))) == 38
    assert RESNET.complete(SP | {"balance": [20, 18]})["balance"] == "20,18"
    assert RESNET.complete(SP | {"balance": "measured"})["balance"] == "measured"
    assert RESNET.complete(SP)["balance"] == "measured"
    assert RESNET.complete(SP | {"split_size": 1})["balance"] == "38"


@pytest.mark.parametrize(
    ("params", "name", "value"),
    [
        ({"app": 3}, "app", "synthetic"),
        ({"app": "2", "datapath": "./cifar"}, "app", "cifar"),
        ({"app": 1, "datapath": "./train"}, "app", "medical"),
        ({"precision": "fp_16"}, "precision", "fp16"),
        ({"precision": "bfp_16"}, "precision", "bf16"),
        ({"precision": "bp_16"}, "precision", "bf16"),
        ({"precision": "bf_16"}, "precision", "bf16"),
        ({"precision": "tf_32"}, "precision", "tf32"),
        ({"precision": "int_8", "enable_evaluation": True}, "precision", "int8"),
        ({"precision": "int8", "enable_evaluation": True}, "device", "cpu"),
        ({}, "schedule", "1f1b"),
        ({"enable_evaluation": True}, "schedule", None),
        ({}, "learning_rate", 0.001),
        ({"enable_evaluation": True}, "learning_rate", None),
        ({"enable_evaluation": True}, "arrival", "closed"),
        ({}, "arrival", None),
        ({"scheme": "gems"}, "times", 1),
        ({}, "local_DP", "1"),
        ({"local_DP": [2, 2]}, "local_DP", "2"),
        ({"local_DP": "2, 1"}, "local_DP", "2,1"),
        ({"scheme": "sp"}, "grid", "2x2"),
        ({"scheme": "sp", "halo_D2": True}, "fused_layers", 1),
        ({"scheme": "sp", "grid": "1x3,2x1", "spatial_size": 2}, "num_spatial_parts", "3,2"),
        ({"scheme": "sp", "num_spatial_parts": [4, 9], "spatial_size": 2}, "grid", "2x2,3x3"),
    ],
)
def test_parses_each_spelling_of_a_parameter(params, name, value):
    assert RESNET.complete(SMALL | params)[name] == value


def test_model_parameters_have_defaults():
    params = RESNET.complete(SMALL)
    assert (params["version"], params["depth"]) == (2, 110)
    params = RESNET.complete(SMALL | {"arch": "resnet50"})
    assert (params["version"], params["depth"], params["arch"]) == (None, None, "resnet50")
    assert RESNET.complete(SMALL | {"version": 1})["depth"] == 110


@pytest.mark.parametrize(
    ("params", "param", "message"),
    [
        (SP | {"num_spatial_parts": 3}, "num_spatial_parts", "3 tiles make no square"),
        (SP | {"num_spatial_parts": "4,x"}, "num_spatial_parts", "'x' is no number of tiles"),
        (SP | {"num_spatial_parts": 0}, "num_spatial_parts", "'0' is no number of tiles"),
        (SP | {"num_spatial_parts": 1}, "num_spatial_parts", "take 2 or more"),
        (SP | {"num_spatial_parts": "4,2"}, "num_spatial_parts", "2 entries, spatial_size is 1"),
        (SP | {"grid": "2x3", "num_spatial_parts": 4}, "num_spatial_parts", "grid 2x3 has 6 tiles"),
        (SP | {"grid": "2x3", "slice_method": "square"}, "grid", "is not slice_method square"),
        (SP | {"grid": "2xx"}, "grid", "neither N nor RxC"),
        (SP | {"grid": "65x1"}, "grid", "take 64x1 tiles at most"),
        (SP | {"slice_method": "diagonal"}, "slice_method", "none of vertical, horizontal, square"),
        (SP | {"spatial_size": 3}, "spatial_size", "more than the 2 stages of split_size"),
        (SP | {"spatial_size": 2, "local_DP": 2}, "local_DP", "does nothing"),
        (SMALL | {"local_DP": "2,1,1"}, "local_DP", "3 entries, 2 of 2 stages have no tiles"),
        (SP | {"local_DP": "2,1"}, "local_DP", "2 entries, 1 of 2 stages have no tiles"),
        (SMALL | {"local_DP": "2,0"}, "local_DP", "'0' is no number of ranks"),
        (SMALL | {"local_DP": "two"}, "local_DP", "'two' is no number of ranks"),
        (SMALL | {"parts": 8, "local_DP": "1,2"}, "batch_size", "at least 16"),
        (SP | {"fused_layers": 2}, "fused_layers", "without halo_D2"),
        (D2 | {"fused_layers": 21, "balance": "20,18"}, "fused_layers", "take 20 at most"),
        (D2 | {"fused_layers": 21, "balance": "18,20"}, "fused_layers", "take 18 at most"),
        (D2 | {"fused_layers": 38, "split_size": 1}, "fused_layers", "take 37 at most"),
        (D2 | {"fused_layers": 38, "balance": "measured"}, "fused_layers", "take 37 at most"),
        (
            D2 | {"scheme": "gems_sp", "split_size": 3, "balance": "5,9,24", "fused_layers": 6},
            "fused_layers",
            "take 5 at most",
        ),
        (SMALL | {"balance": "19,18"}, "balance", "37 layers, the model has 38"),
        (SMALL | {"balance": "19,10,9"}, "balance", "one for each of 2 stages"),
        (SMALL | {"balance": "38,0"}, "balance", "leaves a stage without layers"),
        (SMALL | {"balance": "half"}, "balance", "no list of numbers"),
        (SMALL | {"split_size": 39}, "split_size", "take 38 at most"),
        (SMALL | {"split_size": 1}, "split_size", "is scheme sequential"),
        (GEMS | {"split_size": 1, "replicas": 2}, "split_size", "has no mirror"),
        (SMALL | {"batch_size": 3, "parts": 4}, "batch_size", "at least 4"),
        (SMALL | {"parts": 8, "local_DP": 2}, "batch_size", "at least 16"),
        (GEMS | {"schedule": "1f1b-deep"}, "schedule", "for one pipeline"),
        (GEMS | {"schedule": "zb-h1"}, "schedule", "zb-h1 is for scheme lp, not for gems"),
        (SP | {"schedule": "zb-h1"}, "schedule", "zb-h1 is for scheme lp, not for sp"),
        (SMALL | {"schedule": "zb-h1", "recompute": "stage"}, "recompute", "are kept; take 1f1b"),
        (GEMS | {"parts": 5}, "batch_size", "at least 10"),
        (SMALL | {"times": 2}, "times", "does nothing in scheme lp, only in gems, gems_sp"),
        (SMALL | {"num_spatial_parts": 4}, "num_spatial_parts", "only in sp, gems_sp"),
        (SMALL | {"halo_D2": False}, "halo_D2", "does nothing in scheme lp"),
        (SP | {"enable_master_comm_opt": True}, "enable_master_comm_opt", "in scheme sp"),
        ({"scheme": "sequential", "split_size": 2}, "split_size", "in scheme sequential"),
        ({"scheme": "sequential", "schedule": "gpipe"}, "schedule", "in scheme sequential"),
        ({"scheme": "sequential", "batch_size": 2, "parts": 3}, "batch_size", "at least 3"),
        (
            {"enable_evaluation": True, "optimizer": "adam"},
            "optimizer",
            "does nothing with enable_evaluation",
        ),
        ({"enable_evaluation": True, "schedule": "1f1b"}, "schedule", "with enable_evaluation"),
        (
            GEMS | {"enable_evaluation": True, "enable_master_comm_opt": True},
            "enable_master_comm_opt",
            "with enable_evaluation",
        ),
        ({"arrival": "closed"}, "arrival", "without enable_evaluation"),
        ({"enable_evaluation": True, "arrival_rate": 9}, "arrival_rate", "without arrival poisson"),
        ({"enable_evaluation": True, "arrival": "poisson"}, "arrival", "needs an arrival_rate"),
        ({"checkpoint_every": 2}, "checkpoint_every", "without checkpoint"),
        ({"learning_rate_decay": 0.5}, "learning_rate_decay", "take num_epochs 2 or more"),
        ({"datapath": "."}, "datapath", "does nothing with app synthetic"),
        ({"num_workers": 0}, "num_workers", "does nothing with app synthetic"),
        ({"app": "patterns", "datapath": "."}, "datapath", "does nothing with app patterns"),
        ({"app": "cifar"}, "datapath", "needs a datapath"),
        ({"precision": "int8"}, "precision", "set enable_evaluation"),
        ({"precision": "bf61"}, "precision", "none of fp32"),
        (
            {"precision": "tf32", "device": "cpu"},
            "precision",
            "tf32 is a format of GPUs; take fp32",
        ),
        ({"backend": "nccl", "device": "cpu"}, "backend", "not of cpu"),
        ({"depth": 100}, "depth", "the nearest 92 and 101"),
        ({"depth": 20, "arch": "resnet50"}, "depth", "leave depth out"),
        ({"image_size": 16}, "image_size", "too small"),
    ],
)
def test_rejects_invalid_and_ineffective_parameters(params, param, message):
    error_param, text = catch_param_error(RESNET, params)
    assert (error_param, message in text) == (param, True), (error_param, text)


@pytest.mark.parametrize(
    ("params", "param", "message"),
    [
        ({"image_size": 48}, "image_size", "32"),
        ({"num_layers": 4}, "num_layers", "multiple of 3"),
        ({"num_filters": 4}, "num_filters", "below the least value, 8"),
        ({"pool3": "mean"}, "pool3", "none of avg, max"),
        ({"depth": 20}, "depth", "has no parameter"),
        ({"balance": "12,13"}, "balance", "25 layers, the model has 24"),
        (
            {"scheme": "sp", "grid": "1x8", "split_size": 3, "spatial_size": 2, "balance": "9,9,6"}
            | {"image_size": 64},
            "grid",
            "stage 1 begins with 8x8 pixels",
        ),
    ],
)
def test_rejects_invalid_parameters_of_amoebanet(params, param, message):
    if message.startswith("stage 1"):
        AMOEBANET.complete(params)
        params = params | {"grid": "1x8,1x9"}
    error_param, text = catch_param_error(AMOEBANET, params)
    assert (error_param, message in text) == (param, True), (error_param, text)


def test_lists_coordinates_of_ranks():
    params = RESNET.complete(SP | {"grid": "2x2", "local_DP": 2, "replicas": 2})
    assert RESNET.place(params, 3) == {"replica": 0, "stage": 0, "tile": "1,1"}
    assert RESNET.place(params, 11) == {"replica": 1, "stage": 1, "member": 1}
    params = RESNET.complete(SMALL | {"scheme": "gems_sp", "grid": "1x2", "split_size": 3})
    assert RESNET.place(params, 0) == {
        "replica": 0,
        "stage": 0,
        "tile": "0,0",
        "mirrored_stage": 2,
    }
    assert RESNET.place(params, 3) == {
        "replica": 0,
        "stage": 2,
        "mirrored_stage": 0,
        "mirrored_tile": "0,0",
    }
    assert RESNET.place(RESNET.complete({"scheme": "sequential"}), 0) == {"replica": 0, "stage": 0}


@pytest.mark.parametrize("entry", MODELS, ids=lambda entry: entry.name)
def test_every_entry_is_consistent(entry):
    names = [param.name for param in entry.params]
    assert len(set(names)) == len(names)
    assert {"warmup", "iterations", "seed"} <= set(names)
    assert entry.metrics[0].name == "time_ms"
    assert not set(entry.faults) & set(COMMON_FAULTS)
    json.dumps(entry.complete(entry.begins_with))
    json.dumps([param.json_schema() for param in entry.params])


@pytest.mark.parametrize("device", ["auto", "cpu", "cuda"])
@pytest.mark.parametrize("precision", ["fp32", "fp64", "tf32", "bf16"])
@pytest.mark.parametrize("name", ["model.resnet", "model.profile"])
def test_expects_the_check_of_products_on_a_gpu(name, precision, device, messages):
    entry = ENTRIES[name]
    params = {"device": device, "precision": precision}
    if (precision, device) == ("tf32", "cpu"):
        messages.check(catch_param_error(entry, params))
        return
    expected = device == "cuda" and precision in ("fp32", "tf32")
    assert ("products" in entry.list_checks(entry.complete(params))) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, "auto"),
        ("auto", "auto"),
        ("full", "full"),
        *((word, "full") for word in (True, "true", "on", "yes")),
        *((word, "off") for word in (False, "false", "off", "no")),
    ],
)
def test_validate_accepts_its_former_values(value, expected):
    params = RESNET.complete({"scheme": "lp", "validate": value})
    assert params["validate"] == expected
    assert bool(RESNET.list_checks(params)) == (expected != "off")


def test_the_schema_accepts_validate_as_boolean():
    allowed = RESNET.find_param("validate").json_schema()["enum"]
    assert {True, False, "on", "off", "auto", "full"} <= set(allowed)


def test_rejects_bounds_without_a_baseline():
    assert RESNET.complete({"scheme": "lp"})["baseline_max"] == 60
    assert RESNET.complete({"scheme": "lp", "baseline": "off"})["baseline_max"] is None
    for name in ("baseline_max", "baseline_memory"):
        params = {"scheme": "lp", "baseline": "off", name: 5}
        assert catch_param_error(RESNET, params) == (
            name,
            f"{name} does nothing without baseline; leave it out",
        )


def test_sequential_accepts_only_baseline_off(messages):
    """`--set baseline=off` sets it for all cases of a suite."""
    assert not RESNET.complete({"scheme": "sequential", "baseline": "off"})["baseline"]
    param, message = catch_param_error(RESNET, {"scheme": "sequential", "baseline": "on"})
    assert param == "baseline"
    messages.check(message)


SCHEMES = {
    "`sequential`": {"scheme": "sequential"},
    "`lp`": {"scheme": "lp"},
    "`lp`, interleaved": {
        "scheme": "lp",
        "schedule": "interleaved",
        "split_size": 4,
        "rounds": 2,
        "parts": 2,
    },
    "`lp`, `local_DP`": {"scheme": "lp", "local_DP": 2},
    "`sp`": {"scheme": "sp"},
    "`gems`": {"scheme": "gems"},
    "`gems_sp`": {"scheme": "gems_sp"},
    "`lp`, replicas": {"scheme": "lp", "replicas": 2},
    "`lp`, `sync_batchnorm`": {"scheme": "lp", "replicas": 2, "sync_batchnorm": "replicas"},
}
ROWS = {
    scheme: tuple(set(re.findall(r"`(\w+)`", cell)) for cell in cells.split("|")[:2])
    for scheme, cells in re.findall(
        r"^\| (`.*?) \| (proxy.*) \|$", (DOCS / "parallelism.md").read_text(), re.MULTILINE
    )
}
"""Checks of each scheme that the page lists: of the proxy, and at full size."""
UNSHARED = {"`sequential`", "`lp`", "`lp`, interleaved", "`gems`", "`lp`, replicas"}
"""Schemes in which no two ranks share an operator."""


def test_the_page_has_a_row_for_each_scheme():
    assert ROWS.keys() == SCHEMES.keys()


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_page_lists_the_checks_of_each_scheme(scheme):
    proxy, full_size = ROWS[scheme]
    checks = {
        precision: list_checks(scheme, precision=precision)
        for precision in ("fp32", "fp16", "bf16")
    }
    assert checks["fp32"] & set(FULL_SIZE_CHECKS) == full_size
    assert checks["fp16"] == checks["bf16"]
    assert checks["fp16"] - checks["fp32"] == proxy & {"bits"}


@pytest.mark.parametrize("precision", ["fp32", "fp64", "fp16", "bf16"])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_training_always_checks_operators(scheme, precision):
    """Only these checks detect faults of gradients, which can be injected in each."""
    assert list_checks(scheme, precision=precision) >= {"operators", "scales"}
    if precision in ("fp16", "bf16"):
        return  # a network of the user has only those of several ranks
    network_params = {"network": "nets:Net", "precision": precision} | SCHEMES[scheme]
    assert set(NETWORK.list_checks(NETWORK.complete(network_params))) >= {"operators", "scales"}


@pytest.mark.parametrize("scheme", sorted(set(SCHEMES) - {"`lp`, `sync_batchnorm`"}))
def test_inference_has_the_checks_without_gradients(scheme):
    possible = {"output", "bits", "operators", "scales", "joints"}
    for precision in ("fp32", "bf16"):
        learning = list_checks(scheme, precision=precision)
        inference = list_checks(scheme, precision=precision, enable_evaluation=True)
        unchecked = {"operators", "scales"} if scheme in UNSHARED and precision == "fp32" else set()
        assert inference == (learning & possible) - unchecked


def list_checks(scheme, **params):
    return set(RESNET.list_checks(RESNET.complete(SMALL | SCHEMES[scheme] | params)))


NETWORK_PARAMS = {"network": "nets:Net"}


def test_parameters_of_a_network_are_unknown_before_loading():
    params = NETWORK.complete(NETWORK_PARAMS | {"scheme": "sp", "grid": "1x2"})
    assert (params["balance"], params["strict"], params["split_size"]) == ("measured", False, 2)
    assert NETWORK.ranks(params).exact == 3
    assert NETWORK.complete(NETWORK_PARAMS | {"balance": [3, 4]})["balance"] == "3,4"
    assert "num_classes" not in params
    assert set(NETWORK.list_checks(params)) >= {"output", "operators", "joints"}
    assert NETWORK.checked_in == "model.network"


@pytest.mark.parametrize(
    ("params", "param", "expected"),
    [
        ({"network": None}, "network", "there is no network: give module:callable"),
        ({"network": "resnet50"}, "network", "'resnet50' is no module:callable"),
        ({"network": "a.b-c:d"}, "network", "'a.b-c:d' is no module:callable"),
        ({"network_args": [{"a": 1}]}, "network_args", "a mapping of names to values"),
        ({"balance": "1,2,3"}, "balance", "1,2,3 has 3 numbers, one for each of 2 stages"),
        ({"balance": "1,0"}, "balance", "no list of numbers of layers"),
        ({"strict": True}, "strict", "in scheme lp, only in sp, gems_sp"),
        ({"save_weights": "a.pt", "enable_evaluation": True}, "save_weights", "does nothing"),
        ({"precision": "int8", "enable_evaluation": True}, "precision", "none of fp32, fp64"),
        ({"halo_D2": True, "scheme": "sp"}, "halo_D2", ""),
    ],
)
def test_rejects_invalid_parameters_of_a_network(params, param, expected):
    with pytest.raises(ExceptionGroup) as group:
        NETWORK.complete(NETWORK_PARAMS | params)
    errors = {error.param: str(error) for error in group.value.exceptions}
    assert expected in errors[param]


@pytest.mark.parametrize(
    ("entry", "params"), [(RESNET, {}), (AMOEBANET, {}), (NETWORK, {"network": "nets:Net"})]
)
def test_inference_has_only_faults_that_change_outputs(entry, params):
    faults = entry.list_faults(entry.complete(SMALL | params | {"enable_evaluation": True}))
    assert set(faults) == {"wrong-neighbour", "full:wrong-neighbour", "uncounted-wait"}


@pytest.mark.parametrize(
    ("params", "has_tile"),
    [
        ({"scheme": "lp", "split_size": 2}, False),
        (
            {"scheme": "sp", "split_size": 1, "num_spatial_parts": 2, "slice_method": "vertical"},
            True,
        ),
    ],
)
def test_effective_faults_fit_the_layout(params, has_tile):
    complete = RESNET.complete(SMALL | params)
    faults = RESNET.list_effective_faults(complete)
    assert ("drop-tile" in faults) is has_tile
    assert ("lost-halo-gradient" in faults) is has_tile
    assert "drop-gradient" in faults
    assert "uncounted-wait" not in faults
    assert "drop-tile" in RESNET.list_faults(complete)
