"""Inference with weights that were learnt: the cases of the shipped suite, as a user runs them."""

import pytest
import yaml

from support.paths import SUITES
from support.runs import run

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(300)]

FORMATS = ("fp32", "bf16", "int8")


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """The suite's cases called patterns, and one of them without its checkpoint."""
    folder = tmp_path_factory.mktemp("inference")
    suite = yaml.safe_load((SUITES / "inference.yaml").read_text())
    learn, infer = (case for case in suite["cases"] if case["name"].startswith("patterns"))
    for case in (learn, infer):
        case["params"]["checkpoint"] = str(folder / "patterns.ckpt")
    plain = {key: value for key, value in infer["params"].items() if key != "checkpoint"}
    random = infer | {"name": "random", "params": plain, "matrix": {"precision": ["fp32"]}}
    path = folder / "suite.yaml"
    path.write_text(yaml.safe_dump(suite | {"cases": [learn, infer, random]}))
    return run(str(path), home=folder / "home", limit=250)


def metrics(ended, case):
    return {name: one["value"] for name, one in ended.case(case)["metrics"].items()}


def test_learnt_weights_are_right_in_every_format_and_others_by_chance(ended):
    found = {name: metrics(ended, f"patterns-infer[precision={name}]") for name in FORMATS}
    assert all(one["top1"] > 0.5 and one["top5"] > 0.9 for one in found.values()), found
    chance = metrics(ended, "random[precision=fp32]")
    # Of 160 images of ten classes; the expectation that the learnt weights meet fails.
    assert chance["top1"] < 0.25
    assert chance["eval_loss"] > 2 > found["fp32"]["eval_loss"]
    statuses = ended.statuses
    assert statuses.pop("random[precision=fp32]") == "failed"
    assert set(statuses.values()) == {"passed"}
    assert ended.code == 1


def test_formats_share_weights_and_are_near_to_fp32(ended):
    cases = [ended.case(f"patterns-infer[precision={name}]") for name in FORMATS]
    (weights,) = {choice_of(case, "weights") for case in cases}
    assert weights.endswith("patterns.ckpt")
    assert [choice_of(case, "agreement_with") for case in cases] == ["none", "fp32", "fp32"]
    assert "agreement" not in cases[0]["metrics"]
    for case in cases[1:]:
        assert case["metrics"]["agreement"]["value"] > 0.95
        assert 1e-5 < case["metrics"]["logit_error"]["value"] < 0.05


def choice_of(case, name):
    return case["choices"][name]["value"]
