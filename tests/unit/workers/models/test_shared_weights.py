"""Weights, names, hooks and statistics in use in more ways than one: refused where not right."""

import pytest
import torch

import shared_weights_networks
from spbench_core.models.parts import Map
from spbench_workers.errors import CannotRunError
from spbench_workers.models.build import build_reference
from spbench_workers.models.imported.model import imported

IMAGE = Map(3, 24, 36)


def network_of(name, weights=None, image=IMAGE, **arguments):
    return imported(f"shared_weights_networks:{name}", arguments, image, 0, weights)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("Halved", "c.weight of its state_dict is no parameter or buffer of it"),
        ("Extra", "_extra_state of its state_dict is no parameter or buffer of it"),
        ("OneMemory", r"d.weight and e.weight are two tensors in one memory"),
        ("OneMemoryBuffer", r"mean and d.weight|d.weight and mean are two tensors in one memory"),
        ("OneStatistics", "bn.running_mean and again.running_mean are the running statistics of"),
    ],
)
def test_states_that_cannot_be_trained_in_parts_are_refused(name, says):
    with pytest.raises(CannotRunError, match=says):
        network_of(name)


def test_one_memory_without_parameters_is_no_concern():
    assert network_of("NotSaved").classes == 5


@pytest.mark.parametrize("name", ["TiedConvs", "TiedNorms", "TiedUnused", "TiedFunctionOfOther"])
def test_a_tied_parameter_counts_once_and_is_one_in_its_stage(name):
    model = network_of(name)
    used = build_reference(model, seed=0, device="cpu")
    assert model.parameters == sum(parameter.numel() for parameter in used.parameters())
    pieces = [layer.piece.module() for layer in model.layers]
    built = sum(one.numel() for piece in pieces for one in piece.parameters())
    assert built == model.parameters


def test_a_file_with_other_values_under_another_name_is_refused(tmp_path):
    state = shared_weights_networks.TwoNames().state_dict()
    torch.save(state, tmp_path / "right.pt")
    assert network_of("TwoNames", str(tmp_path / "right.pt")).classes == 5
    state["skip.a.bias"] = state["skip.a.bias"] + 1
    torch.save(state, tmp_path / "stale.pt")
    says = r"other values for c.bias than for skip.a.bias, which are one tensor"
    with pytest.raises(CannotRunError, match=says):
        network_of("TwoNames", str(tmp_path / "stale.pt"))


@pytest.mark.parametrize(
    ("on", "says"),
    [
        ("backward", r"shared_weights_networks.py:\d+: d has a backward hook"),
        ("backward of a block", r"shared_weights_networks.py:\d+: block has a backward pre-hook"),
        ("parameter", r"shared_weights_networks.py:\d+: d.weight has a hook on its gradient"),
        ("accumulated", r"shared_weights_networks.py:\d+: d.weight has a hook on its gradient"),
        ("whole", r"shared_weights_networks.py:\d+: the network has a forward hook"),
        ("within", r"shared_weights_networks.py:\d+: layer.linear1 has a forward hook"),
        ("weights too", r"shared_weights_networks.py:\d+: d has a forward hook"),
        ("closure", r"shared_weights_networks.py:\d+: a function set on c keeps other \(Conv2d\)"),
        ("lazy", "c.weight has no shape yet; call the network with an image once"),
    ],
)
def test_hooks_that_copies_lose_are_refused(on, says):
    with pytest.raises(CannotRunError, match=says):
        network_of("Lost", on=on)


def test_a_forward_that_the_network_alone_has_is_refused():
    with pytest.raises(CannotRunError, match="the network has a forward of its own"):
        network_of("PatchedWhole")


def test_tracing_leaves_hooks_where_they_are():
    model = network_of("Hooked")
    module = model.network.module
    assert [len(part._forward_hooks) for part in (module.c, module.bn, module.block)] == [1, 1, 1]
    assert "forward" not in vars(module.c)
    pieces = [layer.piece.module() for layer in model.layers]
    assert not any(part._forward_hooks for piece in pieces for part in piece.modules())
