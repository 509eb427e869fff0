"""Parameters as dataclasses, for entries of the catalog and for benchmarks."""

from dataclasses import dataclass, field

import pytest

from spbench_core.catalog import BENCHMARKS
from spbench_core.catalog.parameters import Param
from spbench_core.catalog.shared_params import SEED
from spbench_core.catalog.typed_params import parameter, params_of, read_params, reuse_parameter
from spbench_workers.benchmarks.halo.params import ComputeParams, ExchangeParams
from spbench_workers.benchmarks.model.params import ModelParams


@dataclass(frozen=True, kw_only=True)
class DriftParams:
    rate: float = parameter("float", 1.5, "drift per hour", minimum=0)
    size: tuple[int, int] = parameter("pair", 3, "rows and columns")
    seed: int = reuse_parameter(SEED, default=7)
    late: str | None = parameter("text", None, "only of some benchmarks", optional=True)


def test_fields_become_parameters_in_order():
    rate, size, seed, late = params_of(DriftParams)
    assert rate == Param("rate", "float", 1.5, "drift per hour", minimum=0)
    assert (size.name, size.kind, late.name) == ("size", "pair", "late")
    assert (seed.name, seed.default, seed.help) == ("seed", 7, SEED.help)


def test_reads_values_as_attributes_and_pairs_as_tuples():
    params = read_params(DriftParams, {"rate": 2.0, "size": "4x5", "seed": 1, "other": 3})
    assert params == DriftParams(rate=2.0, size=(4, 5), seed=1, late=None)
    assert read_params(DriftParams, {"rate": 2.0, "size": 4, "seed": 1, "late": "x"}).late == "x"


def test_rejects_a_missing_value_that_is_not_optional():
    with pytest.raises(KeyError, match="rate"):
        read_params(DriftParams, {"size": 4, "seed": 1})


@pytest.mark.parametrize(
    "invalid", [field(), field(metadata={"param": SEED})], ids=["no parameter", "another name"]
)
def test_rejects_a_field_that_is_not_a_parameter(invalid, messages):
    @dataclass
    class WrongParams:
        rate: float = invalid

    with messages.raises(TypeError):
        params_of(WrongParams)


@pytest.mark.parametrize(
    ("benchmark", "cls"), [("halo.exchange", ExchangeParams), ("halo.compute", ComputeParams)]
)
def test_entries_have_the_parameters_of_their_dataclass(benchmark, cls):
    entry = BENCHMARKS[benchmark]
    assert entry.params == params_of(cls)
    params = read_params(cls, entry.complete({"image_size": "64x96"}))
    assert params.image_size == (64, 96)
    assert params.grid == (2, 2)


def test_a_single_dataclass_reads_all_models():
    for name in ("model.resnet", "model.amoebanet"):
        assert read_params(ModelParams, BENCHMARKS[name].complete({})).batch_size == 32
    overrides = {"network": "torchvision.models:resnet18"}
    params = read_params(ModelParams, BENCHMARKS["model.network"].complete(overrides))
    assert (params.halo_D2, params.num_classes) == (None, None)
