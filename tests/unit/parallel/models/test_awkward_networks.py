"""Constructs that a traced graph can lose: each is right or refused, and changes nothing."""

import random
import re

import numpy as np
import pytest
import torch
from torch.nn.parameter import is_lazy

from awkward_networks import REFUSED, RIGHT
from spbench_core.models.parts import Map
from spbench_parallel.errors import CannotRunError
from spbench_parallel.models.imported.model import build_model
from spbench_parallel.models.imported.tracing import trace_network

IMAGE = Map(3, 24, 36)


def imported(module):
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


def assert_equal(one, other):
    assert type(one) is type(other)
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            assert_equal(one[key], other[key])
    elif isinstance(one, tuple):
        for pair in zip(one, other, strict=True):
            assert_equal(*pair)
    elif isinstance(one, torch.Tensor):
        assert torch.equal(one, other)
    else:
        assert np.array_equal(one, other)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*RIGHT, *REFUSED])
def test_tracing_leaves_the_module_and_random_numbers_as_they_are(name):
    module = RIGHT[name]() if name in RIGHT else REFUSED[name][0]()
    next(module.children()).eval()
    before = snapshot(module)
    try:
        imported(module)
    except CannotRunError:
        assert name in REFUSED
    assert_equal(snapshot(module), before)


@pytest.mark.parametrize("name", REFUSED)
def test_refuses_at_the_users_line(name):
    make, says = REFUSED[name]
    with pytest.raises(CannotRunError) as refusal:
        imported(make())
    assert re.search(says, str(refusal.value)), str(refusal.value)
    assert "\n" not in str(refusal.value)
