"""Inference with trained weights: the cases of the shipped suite."""

import pytest
import yaml

from support.paths import SUITES
from support.runs import run

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(300)]

FORMATS = ("fp32", "bf16", "int8")


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    """A run of the cases named patterns, and of one of them without its checkpoint."""
    folder = tmp_path_factory.mktemp("inference")
    suite = yaml.safe_load((SUITES / "inference.yaml").read_text())
    train, infer = (case for case in suite["cases"] if case["name"].startswith("patterns"))
    for case in (train, infer):
        case["params"]["checkpoint"] = str(folder / "patterns.ckpt")
    params = {key: value for key, value in infer["params"].items() if key != "checkpoint"}
    random = infer | {"name": "random", "params": params, "matrix": {"precision": ["fp32"]}}
    path = folder / "suite.yaml"
    path.write_text(yaml.safe_dump(suite | {"cases": [train, infer, random]}))
    return run(str(path), home=folder / "home", limit=250)


def read_metrics(result, case):
    return {name: metric["value"] for name, metric in result.case(case)["metrics"].items()}


def test_trained_weights_are_accurate_in_all_formats(result):
    trained = {name: read_metrics(result, f"patterns-infer[precision={name}]") for name in FORMATS}
    for metrics in trained.values():
        assert metrics["top1"] > 0.5, trained
        assert metrics["top5"] > 0.9, trained
    untrained = read_metrics(result, "random[precision=fp32]")
    # For 160 images of ten classes. The expectation that the trained weights meet fails.
    assert untrained["top1"] < 0.25
    assert untrained["eval_loss"] > 2 > trained["fp32"]["eval_loss"]
    statuses = result.statuses
    assert statuses.pop("random[precision=fp32]") == "failed"
    assert set(statuses.values()) == {"passed"}
    assert result.code == 1


def test_formats_use_the_same_weights_and_are_close_to_fp32(result):
    cases = [result.case(f"patterns-infer[precision={name}]") for name in FORMATS]
    (weights,) = {get_choice(case, "weights") for case in cases}
    assert weights.endswith("patterns.ckpt")
    assert [get_choice(case, "agreement_with") for case in cases] == ["none", "fp32", "fp32"]
    assert "agreement" not in cases[0]["metrics"]
    for case in cases[1:]:
        assert case["metrics"]["agreement"]["value"] > 0.95
        assert 1e-5 < case["metrics"]["logit_error"]["value"] < 0.05


def get_choice(case, name):
    return case["choices"][name]["value"]
