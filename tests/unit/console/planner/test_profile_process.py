"""Measuring profiles in a separate process."""

from pathlib import Path

import pytest

from spbench.engine.plan import Request
from spbench.errors import UsageError
from spbench.planner.errors import PlannerError
from spbench.planner.profile.measurement import BENCHMARK
from spbench.planner.profile_process import (
    MEASUREMENT_PARAMS,
    MODELS,
    OWN_MODEL,
    ProfileRequest,
    measure_profile,
    plan_measurement,
)
from spbench_core.catalog import BENCHMARKS

PROFILE = ProfileRequest("resnet", {"depth": 11, "batch_sizes": [2, 4]}, "deep/mine.json")


def replace_program(monkeypatch, tmp_path, text):
    """Let a script with this text measure instead of spbench."""
    script = tmp_path / "program"
    script.write_text(f"#!/bin/sh\n{text}\n")
    script.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(script))


async def test_measures_into_a_new_folder(monkeypatch, tmp_path):
    replace_program(monkeypatch, tmp_path, 'echo "$@" > arguments')
    await measure_profile(PROFILE, tmp_path, tmp_path / "home")
    assert (tmp_path / "deep").is_dir()
    settings = "--set depth=11 --set batch_sizes=2,4"
    command = f"spbench profile resnet {settings} --output deep/mine.json"
    assert command in (tmp_path / "arguments").read_text()


async def test_reports_the_error_of_the_process(monkeypatch, tmp_path):
    replace_program(monkeypatch, tmp_path, "echo 'error: no torch' >&2; exit 3")
    with pytest.raises(PlannerError, match="exit code 3: no torch"):
        await measure_profile(PROFILE, tmp_path, tmp_path / "home")


def plan_profile(model, **params):
    run_request = Request(Path("profile"), Path("home"), {})
    return plan_measurement(ProfileRequest(model, params, "profile.json"), run_request)


def test_plans_a_measurement_with_its_parameters():
    [case] = plan_profile("resnet", depth=20, batch_sizes=[2, 4]).suite.cases
    assert case.benchmark == BENCHMARK
    assert (case.np, case.params["depth"], case.params["batch_sizes"]) == (1, 20, [2, 4])
    with pytest.raises(UsageError, match="batch_sizes must rise"):
        plan_profile("resnet", batch_sizes=[4, 2])


@pytest.mark.parametrize("kind", MODELS)
def test_kinds_of_networks_have_exactly_their_parameters(kind):
    """Each parameter is one of the network or of the measurement, or rejected."""
    model = "nets:UNet" if kind == OWN_MODEL else kind
    value_by_kind = {"pair": 32, "bool": True, "data": {"a": 1}}
    for param in BENCHMARKS[BENCHMARK].params:
        if param.name in (*MEASUREMENT_PARAMS, "model"):
            continue
        value = value_by_kind.get(param.kind, param.minimum)
        value = param.choices[0] if param.choices else value
        try:
            plan_profile(model, **{param.name: value})
        except UsageError as error:
            is_rejected = "is no parameter of" in str(error)
        else:
            is_rejected = False
        assert is_rejected == (param.name not in MODELS[kind].params), param.name
