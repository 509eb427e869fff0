"""Weights, names, hooks and statistics that are used more than once.

Networks that cannot be computed correctly are rejected.
"""

from typing import Any

import pytest
import torch

from spbench_core.catalog import BENCHMARKS
from spbench_core.layout.stages import build_layout
from spbench_core.layout.tiles import Grid
from spbench_core.models.parts import MapShape
from spbench_parallel.errors import CannotRunError
from spbench_parallel.models.build import build_reference, build_stage
from spbench_parallel.models.builders import DenseBuilder
from spbench_parallel.models.imported.layouts import StepSettings, check_layout
from spbench_parallel.models.imported.messages import locate
from spbench_parallel.models.imported.mixing import find_mixing_operators
from spbench_parallel.models.imported.model import import_network
from spbench_workers.benchmarks.model.network import check
from support.networks import shared_weights_networks

pytestmark = pytest.mark.slow

IMAGE = MapShape(3, 24, 36)
STAGES = build_layout(2, [])
TILES = build_layout(1, [Grid(1, 2)])
TILES_AND_A_STAGE = build_layout(2, [Grid(2, 2)])
MEMBERS = build_layout(1, [], members=2)
MIXING = {
    "function": "batch_norm",
    "var": "var_mean",
    "hidden": "roll",
    "first_image": "getitem",
    "index": "getitem",
    "alike": "t",
    "maximum": "max",
    "counted": "truediv",
    "attention_of_images": "attention",
    "lstm_of_images": "lstm",
    "view": "reshape",
    "quantile": "flatten",
    "clipped": "linalg_vector_norm",
    "centred": "mean",
} | {name: name for name in ("mean", "std", "cumsum", "flip", "sort", "softmax")}
SEPARATING = [
    *("nothing", "groups", "windows", "attention_of_pixels", "attention_batch_first"),
    *("lstm_of_rows", "dynamic", "roll", "top"),
]
BY_HOOK = "weight_norm", "spectral_norm", "pruned"
BY_PARAMETRIZATION = "parametrize", "new_weight_norm", "new_spectral_norm", "new_orthogonal"


def import_shared_network(name, weights=None, image=IMAGE, **arguments):
    return import_network(
        f"support.networks.shared_weights_networks:{name}", arguments, image, 0, weights
    )


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Halved", "c.weight of its state_dict is no parameter or buffer of it"),
        ("Extra", "_extra_state of its state_dict is no parameter or buffer of it"),
        ("OneMemory", r"d.weight and e.weight are two tensors in one memory"),
        ("OneMemoryBuffer", r"mean and d.weight|d.weight and mean are two tensors in one memory"),
        ("OneStatistics", "bn.running_mean and again.running_mean are the running statistics of"),
    ],
)
def test_rejects_states_that_stages_cannot_train(name, expected):
    with pytest.raises(CannotRunError, match=expected):
        import_shared_network(name)


def test_accepts_shared_memory_without_parameters():
    assert import_shared_network("NotSaved").classes == 5


@pytest.mark.parametrize("name", ["TiedConvs", "TiedNorms", "TiedUnused", "TiedFunctionOfOther"])
def test_a_tied_parameter_counts_once(name):
    model = import_shared_network(name)
    used = build_reference(model, seed=0, device="cpu")
    assert model.parameters == sum(parameter.numel() for parameter in used.parameters())
    pieces = [layer.piece.make_module() for layer in model.layers]
    piece_parameters = sum(
        parameter.numel() for piece in pieces for parameter in piece.parameters()
    )
    assert piece_parameters == model.parameters


def test_rejects_a_file_with_different_values_of_one_tensor(tmp_path):
    state = shared_weights_networks.TwoNames().state_dict()
    torch.save(state, tmp_path / "right.pt")
    assert import_shared_network("TwoNames", str(tmp_path / "right.pt")).classes == 5
    state["skip.a.bias"] = state["skip.a.bias"] + 1
    torch.save(state, tmp_path / "stale.pt")
    expected = r"other values for c.bias than for skip.a.bias, which are one tensor"
    with pytest.raises(CannotRunError, match=expected):
        import_shared_network("TwoNames", str(tmp_path / "stale.pt"))


@pytest.mark.parametrize(
    ("hook", "expected"),
    [
        ("backward", r"shared_weights_networks.py:\d+: d has a backward hook"),
        ("backward of a block", r"shared_weights_networks.py:\d+: block has a backward pre-hook"),
        ("parameter", r"shared_weights_networks.py:\d+: d.weight has a hook on its gradient"),
        ("accumulated", r"shared_weights_networks.py:\d+: d.weight has a hook on its gradient"),
        ("whole", r"shared_weights_networks.py:\d+: the network has a forward hook"),
        ("within", r"shared_weights_networks.py:\d+: layer.linear1 has a forward hook"),
        ("weights too", r"shared_weights_networks.py:\d+: d has a forward hook"),
        ("closure", r"shared_weights_networks.py:\d+: a function set on c keeps other \(Conv2d\)"),
        ("forward in a closure", r"networks.py:\d+: a function set on c keeps plain \(method\)"),
        ("lazy", "c.weight has no shape yet; call the network with an image once"),
    ],
)
def test_rejects_hooks_that_copies_lose(hook, expected):
    with pytest.raises(CannotRunError, match=expected):
        import_shared_network("Lost", on=hook)


def test_rejects_a_replaced_forward_of_the_network():
    with pytest.raises(CannotRunError, match="the network has a forward of its own"):
        import_shared_network("PatchedWhole")


def test_tracing_does_not_remove_hooks():
    model = import_shared_network("Hooked")
    module = model.network.module
    assert [len(part._forward_hooks) for part in (module.c, module.bn, module.block)] == [1, 1, 1]
    assert "forward" not in vars(module.c)
    pieces = [layer.piece.make_module() for layer in model.layers]
    assert not any(part._forward_hooks for piece in pieces for part in piece.modules())


@pytest.mark.parametrize(("variant", "target"), MIXING.items())
def test_detects_operators_that_mix_images(variant, target):
    mixing_operators = find_mixing_operators(
        import_shared_network("Mixed", variant=variant).network
    )
    assert [locate(mixing.node).split(": ")[-1] for mixing in mixing_operators] == [target]
    assert [mixing.normalises for mixing in mixing_operators] == [variant == "function"]


@pytest.mark.parametrize("variant", SEPARATING)
def test_ignores_operators_that_keep_images_separate(variant):
    assert find_mixing_operators(import_shared_network("Mixed", variant=variant).network) == []


def test_functional_batch_norm_mixes_only_in_training():
    network = import_shared_network("Mixed", variant="function").network
    assert find_mixing_operators(network, training=False) == []


def test_the_search_for_mixing_does_not_change_the_network():
    module = (network := import_shared_network("Mixed", variant="function").network).module
    state = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    find_mixing_operators(network)
    assert torch.equal(torch.rand(1), expected)
    for name, tensor in module.state_dict().items():
        assert torch.equal(tensor, state[name]), name


@pytest.mark.parametrize(
    ("layout", "batching", "variant", "expected"),
    [
        (
            MEMBERS,
            StepSettings(),
            "function",
            r"py:\d+: batch_norm mixes .* and ranks that share them",
        ),
        (MEMBERS, StepSettings(), "hidden", r"py:\d+: roll mixes .*; take local_DP \(members\) 1"),
        (
            STAGES,
            StepSettings(2),
            "hidden",
            r"py:\d+: roll mixes .* and micro-batches .*; take parts",
        ),
        (STAGES, StepSettings(2), "function", None),
        (STAGES, StepSettings(), "hidden", None),
        (TILES, StepSettings(), "function", None),
        (MEMBERS, StepSettings(training=False), "function", None),
        (build_layout(1, [], replicas=2), StepSettings(), "hidden", None),
        (
            build_layout(1, [], replicas=2),
            StepSettings(sync_batchnorm=True),
            "hidden",
            "roll mixes",
        ),
    ],
)
def test_rejects_mixing_if_a_batch_is_divided(layout, batching, variant, expected):
    arguments = (import_shared_network("Mixed", variant=variant), layout, None, batching)
    if expected is None:
        check_layout(*arguments)
        return
    with pytest.raises(CannotRunError, match=expected):
        check_layout(*arguments)


def test_rejects_tracking_instance_norms_over_members():
    model = import_shared_network("Mixed", variant="each")
    check_layout(model, STAGES, None, StepSettings(2))
    with pytest.raises(CannotRunError, match=r"py:\d+: each keeps the mean of its images"):
        check_layout(model, MEMBERS, None, StepSettings())


def test_rejects_batch_norms_of_vectors_over_members():
    with pytest.raises(CannotRunError, match=r"py:\d+: last: ranks that share images normalise"):
        check_layout(import_shared_network("Mixed", variant="last"), MEMBERS, None, StepSettings())


@pytest.mark.parametrize("variant", [*BY_HOOK, *BY_PARAMETRIZATION])
def test_rejects_computed_weights_over_tiles(variant):
    model = import_shared_network("Computed", variant=variant, part="d")
    layers = len(model.layers)
    check_layout(model, STAGES, None, StepSettings())
    check_layout(model, MEMBERS, None, StepSettings())
    # Stages before the layer with the module can have tiles.
    check_layout(model, TILES_AND_A_STAGE, (1, layers - 1), StepSettings())
    expected = r"py:\d+: d computes its weights from .*remove_parametrizations, remove_weight_norm"
    with pytest.raises(CannotRunError, match=expected):
        check_layout(model, TILES, None, StepSettings())
    with pytest.raises(CannotRunError, match=expected):
        check_layout(model, TILES_AND_A_STAGE, (layers - 1, 1), StepSettings())
    check_layout(
        import_shared_network("Computed", variant=variant, part="head"), TILES, None, StepSettings()
    )


@pytest.mark.parametrize("variant", ["pruned", "new_weight_norm"])
def test_rejects_batch_norms_of_computed_weights(variant):
    model = import_shared_network("Computed", variant=variant, part="bn")
    with pytest.raises(CannotRunError, match=r"py:\d+: bn: computes its weights from"):
        check_layout(model, MEMBERS, None, StepSettings())


def test_rejects_a_module_that_is_used_twice_over_tiles():
    model = import_shared_network("UsedTwice")
    check_layout(model, MEMBERS, None, StepSettings())
    with pytest.raises(CannotRunError, match=r"py:\d+: d is used twice, which cannot"):
        check_layout(model, TILES, None, StepSettings())


SIZED = [
    *("remainder", "integer", "length", "loop", "unpacked", "coordinates", "same_shape"),
    *("expanded", "scaled"),
]


@pytest.mark.parametrize("variant", SIZED)
def test_sizes_of_images_are_constants(variant):
    model = import_shared_network("Asks", variant=variant)
    reference = build_reference(model, seed=0, device="cpu")
    stage = build_stage(model, 0, len(model.layers), DenseBuilder(), seed=0, dtype=torch.float64)
    for count in (2, 7):
        images = torch.randn(count, *IMAGE.shape, dtype=torch.float64)
        torch.testing.assert_close(stage(images), reference(images), rtol=0, atol=1e-12)


@pytest.mark.parametrize("variant", ["value", "number", "count"])
def test_rejects_use_of_values_and_the_number_of_images(variant):
    with pytest.raises(CannotRunError, match="asks for numbers that are not known before"):
        import_shared_network("Asks", variant=variant)


def test_rejects_other_operators_at_another_size(messages):
    model = import_shared_network("Asks", variant="remainder")
    assert model.resized(12, 18).network.image == MapShape(3, 12, 18)
    with messages.raises(CannotRunError):
        model.resized(24, 40)


def test_rejects_a_case_before_its_launch():
    complete = BENCHMARKS["model.network"].complete
    case: dict[str, Any] = {
        "network": "support.networks.shared_weights_networks:Mixed",
        "image_size": "24x36",
    }
    mixing = case | {"network_args": {"variant": "function"}}
    check(complete(mixing | {"local_DP": "1", "parts": 2}))
    # If the balance is measured, the stage of the operator is unknown.
    check(complete(mixing | {"local_DP": "1,2"}))
    for members in ({"local_DP": "2"}, {"local_DP": "1,2", "balance": "1,3"}):
        with pytest.raises(CannotRunError, match=r"py:\d+: batch_norm mixes"):
            check(complete(mixing | members))
    hidden = case | {"network_args": {"variant": "hidden"}, "local_DP": "1"}
    check(complete(hidden | {"parts": 1}))
    with pytest.raises(CannotRunError, match=r"py:\d+: roll mixes .*; take parts"):
        check(complete(hidden | {"parts": 2}))


@pytest.mark.parametrize("variant", ["spectral_norm", "new_spectral_norm"])
def test_rejects_spectral_norm_if_it_runs_again(variant):
    model = import_shared_network("Computed", variant=variant, part="d")
    check_layout(model, STAGES, None, StepSettings())
    check_layout(model, STAGES, None, StepSettings(recomputes=True, training=False))
    for layout, batching in (
        (STAGES, StepSettings(recomputes=True)),
        (build_layout(2, [], mirrored=True), StepSettings(2)),
    ):
        with pytest.raises(CannotRunError, match=r"py:\d+: d moves the estimate of its spectral"):
            check_layout(model, layout, None, batching)
    check_layout(import_shared_network("TwoNames"), STAGES, None, StepSettings(recomputes=True))


def test_rejects_a_wrapped_network_with_its_contents(messages):
    with messages.raises(CannotRunError):
        import_shared_network("parallel")
