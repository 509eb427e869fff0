"""Constructs that a traced graph can lose: each is correct or rejected.

Tracing changes nothing of the network.
"""

import random
import re

import numpy as np
import pytest
import torch
from torch.nn.parameter import is_lazy

from spbench_core.models.parts import MapShape
from spbench_parallel.errors import CannotRunError
from spbench_parallel.models.imported.model import build_model
from spbench_parallel.models.imported.tracing import trace_network
from support.networks.awkward_networks import ACCEPTED, REJECTED

IMAGE = MapShape(3, 24, 36)


def import_module(module):
    return build_model(trace_network("net", module, IMAGE))


def snapshot(module):
    """Return the state of a module, its submodules' modes, and of all random numbers."""
    return (
        {
            name: tensor.clone()
            for name, tensor in module.state_dict().items()
            if not is_lazy(tensor)
        },
        {name: id(tensor) for name, tensor in module.named_parameters()},
        {name: id(tensor) for name, tensor in module.named_buffers()},
        {name: child.training for name, child in module.named_modules()},
        {name: set(vars(child)) for name, child in module.named_modules()},
        (torch.get_rng_state(), random.getstate(), np.random.get_state()[1]),
    )


def assert_equal(first, second):
    assert type(first) is type(second)
    if isinstance(first, dict):
        assert first.keys() == second.keys()
        for key in first:
            assert_equal(first[key], second[key])
    elif isinstance(first, tuple):
        for pair in zip(first, second, strict=True):
            assert_equal(*pair)
    elif isinstance(first, torch.Tensor):
        assert torch.equal(first, second)
    else:
        assert np.array_equal(first, second)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*ACCEPTED, *REJECTED])
def test_tracing_does_not_change_module_and_random_numbers(name):
    module = ACCEPTED[name]() if name in ACCEPTED else REJECTED[name][0]()
    next(module.children()).eval()
    before = snapshot(module)
    try:
        import_module(module)
    except CannotRunError:
        assert name in REJECTED
    assert_equal(snapshot(module), before)


@pytest.mark.parametrize("name", REJECTED)
def test_rejects_constructs_at_the_line_of_the_user(name):
    make_network, expected = REJECTED[name]
    with pytest.raises(CannotRunError) as caught:
        import_module(make_network())
    assert re.search(expected, str(caught.value)), str(caught.value)
    assert "\n" not in str(caught.value)
