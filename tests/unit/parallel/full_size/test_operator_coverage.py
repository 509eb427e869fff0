"""Each operator over tiles has a check at full size, or a written reason."""

import inspect
import pkgutil
from importlib import import_module

import pytest
from torch import nn

import spbench_parallel.spatial
from spbench_parallel.full_size.check import CHECKED_AS, NOT_CHECKED
from spbench_parallel.spatial.replicated import WholeImageOperator
from spbench_parallel.spatial.transports import staged

ABSTRACT = (WholeImageOperator,)


def list_operators():
    """Return the public operators of the package of operators over tiles."""
    names = pkgutil.walk_packages(spbench_parallel.spatial.__path__, "spbench_parallel.spatial.")
    modules = [import_module(item.name) for item in names]
    assert staged in modules, "packages are walked to their ends"
    return {
        member
        for module in modules
        for name, member in inspect.getmembers(module, inspect.isclass)
        if issubclass(member, nn.Module)
        and member.__module__ == module.__name__
        and not name.startswith("_")
        and member not in ABSTRACT
    }


@pytest.mark.parametrize("operator", sorted(list_operators(), key=str))
def test_each_operator_over_tiles_has_a_check_or_a_reason(operator):
    checked = any(issubclass(operator, checked_type) for checked_type in CHECKED_AS)
    reasons = [
        reason for checked_type, reason in NOT_CHECKED.items() if issubclass(operator, checked_type)
    ]
    assert checked != bool(reasons), f"{operator.__name__}: put it into CHECKED_AS or NOT_CHECKED"


def test_detects_a_new_operator_without_a_check():
    class SpatialNew(nn.Module):
        pass

    assert not any(
        issubclass(SpatialNew, checked_type) for checked_type in (*CHECKED_AS, *NOT_CHECKED)
    )
