"""The stand-in for nvidia-ml-py, compared with the package where that exists."""

import inspect

import pytest

from spbench_workers.gpu_load import _REASON_BY_BIT
from standins.nvml import pynvml as standin

pynvml = pytest.importorskip("pynvml")

FUNCTIONS = [name for name in dir(standin) if name.startswith("nvml") and name != "nvmlPciInfo_t"]
CONSTANTS = [name for name in dir(standin) if name.startswith("NVML_")]
ERRORS = [name for name in dir(standin) if name.startswith("NVMLError")]
STRUCTURES = ("c_nvmlUtilization_t", "c_nvmlMemory_t", "nvmlPciInfo_t")


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_have_the_same_required_arguments(name):
    def list_required(function):
        parameters = inspect.signature(function).parameters.values()
        return [item.name for item in parameters if item.default is item.empty]

    assert list_required(getattr(standin, name)) == list_required(getattr(pynvml, name))


@pytest.mark.parametrize("name", CONSTANTS)
def test_constants_are_equal(name):
    assert getattr(standin, name) == getattr(pynvml, name)


@pytest.mark.parametrize("name", ERRORS)
def test_errors_have_the_same_classes(name):
    error = getattr(pynvml, name)
    assert issubclass(error, pynvml.NVMLError)


@pytest.mark.parametrize("code", [getattr(standin, n) for n in CONSTANTS if "ERROR" in n])
def test_codes_raise_the_same_classes(code):
    assert type(standin.NVMLError(code)).__name__ == type(pynvml.NVMLError(code)).__name__
    assert standin.NVMLError(code).value == pynvml.NVMLError(code).value


@pytest.mark.parametrize("name", STRUCTURES)
def test_structures_have_the_fields(name):
    fields = {field for field, _ in getattr(pynvml, name)._fields_}
    assert set(getattr(standin, name).__dataclass_fields__) <= fields


def test_bits_are_those_of_the_package():
    names = [name for name in dir(pynvml) if name.startswith("nvmlClocksThrottleReason")]
    assert set(_REASON_BY_BIT) <= {getattr(pynvml, name) for name in names}
