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
