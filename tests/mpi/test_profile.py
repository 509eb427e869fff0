"""Profiles of measured layers, plans from profiles, and measured steps of plans."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from spbench.planner.profile.files import load_profile
from support.paths import ROOT, TESTS
from support.runs import SPBENCH, run

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(240)]

CLUSTER = """
schema: spbench.cluster/1
devices: {core: {memory: 2GB}}
links: {memory: {bandwidth: BANDWIDTH, all_reduce: ALL_REDUCE, latency: 20us}}
machines: [{name: here, devices: {core: 2}, link: memory}]
"""
LAYER_MS = (0.15, 0.5, 1.1, 1.0, 0.15)
OWN = """
import torch
from torch import nn


def net():
    layers = nn.Flatten(), nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 3)
    return nn.Sequential(*layers), torch.randn(2, 3, 2, 2)


def none():
    return nn.Linear(2, 2), 3
"""
SUITE = """
schema: spbench.suite/1
name: profiles
cases:
  - {name: resnet, benchmark: model.profile, np: 1, params: {depth: 11, batch_sizes: 2}}
  - {name: own, benchmark: model.profile, np: 1, params: {model: "own:net", batch_sizes: "1,3"}}
  - {name: none, benchmark: model.profile, np: 1, params: {model: "own:none"}}
"""


def spbench(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    as_root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return subprocess.run(
        [SPBENCH, *arguments],
        cwd=cwd,
        env=os.environ | as_root,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with profiles of a small ResNet, two clusters of two cores, and a home.

    ``resnet.json`` has measured times, ``planned.json`` has the times `LAYER_MS`.
    """
    path = tmp_path_factory.mktemp("profile")
    # Gradients take seconds on the first cluster, outputs on the second one.
    for name, rates in (("layers", ("2GB/s", "1MB/s")), ("data", ("1MB/s", "2GB/s"))):
        text = CLUSTER.replace("BANDWIDTH", rates[0]).replace("ALL_REDUCE", rates[1])
        (path / f"{name}.yaml").write_text(text)
    small = ("--set", "depth=11", "--set", "iterations=5", "--batch-sizes", "2,4")
    options = (*small, "--busy", "--np", "2", "--output", str(path / "resnet.json"))
    process = spbench("profile", "resnet", *options, "--home", str(path))
    assert process.returncode == 0, process.stdout + process.stderr
    profile = json.loads((path / "resnet.json").read_text())
    for measured in (profile, *profile["also"]):
        set_times(measured)
    (path / "planned.json").write_text(json.dumps(profile))
    return path


def set_times(measured: dict[str, Any]) -> None:
    """Replace measured times, because those of a busy machine may lead to any plan."""
    for layer, milliseconds in zip(measured["layers"], LAYER_MS, strict=True):
        batch_ms = milliseconds * measured["batch_size"]
        layer["forward_ms"] = batch_ms
        layer["backward_ms"] = 2 * batch_ms
        layer["data_ms"] = layer["weights_ms"] = batch_ms


def test_profile_has_the_layers_of_a_model(folder: Path) -> None:
    profile = load_profile(folder / "resnet.json")
    names = ["stem", "stack1_block1", "stack2_block1", "stack3_block1", "head"]
    assert [layer.name for layer in profile.layers] == names
    assert profile.batch_size == 4
    [half] = profile.further_measurements
    assert half.batch_size == 2
    assert profile.origin is not None
    assert (profile.origin.model, profile.origin.ranks, profile.origin.threads) == ("resnet", 2, 1)
    for layer, smaller in zip(profile.layers, half.layers, strict=True):
        assert min(layer.forward_ms, layer.backward_ms, layer.parameter_bytes) > 0
        # The ratio of the two times depends on the load of the cores.
        assert (layer.data_ms, layer.weights_ms) == layer.data_and_weights_ms
        assert min(layer.data_and_weights_ms) > 0
        assert smaller.parameter_bytes == layer.parameter_bytes
        assert layer.kept_or_output_bytes >= layer.activation_bytes / 2
        if layer.name != "head":  # the output of the head is the loss
            assert layer.activation_bytes == 2 * smaller.activation_bytes
    # 64 channels of 32x32 pixels in fp32, for four images.
    assert profile.layers[1].activation_bytes == 4 * 64 * 32 * 32 * 4


@pytest.mark.parametrize(
    ("cluster", "micro", "params", "rows"),
    [
        ("layers", "2", {"split_size": 2, "parts": 4, "replicas": 1}, 2),
        pytest.param(
            *("data", "8", {"split_size": 1, "parts": 1, "replicas": 2}, 1), marks=pytest.mark.long
        ),
    ],
)
def test_plan_is_run_and_compared_with_its_prediction(
    folder: Path, cluster: str, micro: str, params: dict[str, int], rows: int
) -> None:
    suite = folder / "plan.yaml"
    home = ("--home", str(folder))
    cluster_options = ("--cluster", str(folder / f"{cluster}.yaml"), "--global-batch-size", "8")
    options = ("--micro-batch-size", micro)
    profile = str(folder / "planned.json")
    process = spbench(
        "plan", profile, *cluster_options, *options, "--emit", str(suite), "--verify", *home
    )
    assert process.returncode == 0, process.stdout + process.stderr
    compared_rows = re.findall(r"^(\d+|step) .* [-+]\d+\.\d %$", process.stdout, re.MULTILINE)
    assert compared_rows == [*map(str, range(rows)), "step"]
    reports = sorted((folder / "runs").glob("*-plan-resnet-*/report.json"))
    [case] = json.loads(reports[-1].read_text())["cases"]
    assert case["status"] == "passed"
    assert {check["name"] for check in case["checks"]} >= {"grad", "weights"}
    assert {name: case["params"][name] for name in params} == params
    assert "benchmark: model.resnet" in suite.read_text()


def test_detects_a_wrong_layer_in_any_model(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    suite = tmp_path / "suite.yaml"
    suite.write_text(SUITE)
    env = {"PYTHONPATH": str(tmp_path)}
    result = run(str(suite), "--inject", "wrong-layer", home=tmp_path / "home", env=env)
    assert result.statuses == {"resnet": "failed", "own": "failed", "none": "error"}, result.stdout
    for name in ("resnet", "own"):
        checks = result.case(name)["checks"]
        assert {check["name"]: check["status"] for check in checks} == {
            "parameters": "failed",
            "output": "failed",
        }
    assert (
        "it must return an nn.Module, or an nn.Sequential and its input"
        in result.case("none")["reason"]
    )


def test_custom_model_is_measured_but_cannot_be_run(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    home = ("--home", str(tmp_path))
    process = spbench("profile", "own:net", *home, cwd=tmp_path)
    assert process.returncode == 0, process.stderr
    assert [layer["name"] for layer in json.loads(process.stdout)["layers"]] == ["0", "1", "2", "3"]
    (tmp_path / "own.json").write_text(process.stdout)
    options = ("--global-batch-size", "4", "--machines", "2", "--verify")
    plan_process = spbench("plan", "own.json", *options, *home, cwd=tmp_path)
    assert plan_process.returncode == 2
    assert "which no benchmark runs" in plan_process.stderr


def test_custom_network_is_measured_planned_and_emitted(tmp_path: Path) -> None:
    home = ("--home", str(tmp_path))
    width = ("--set", 'network_args={"width": 6}')
    options = (
        "support.networks.own_networks:UNet",
        *width,
        "--set",
        "image_size=32",
        "--batch-sizes",
        "2",
    )
    process = spbench("profile", *options, *home, cwd=TESTS)
    assert process.returncode == 0, process.stderr
    profile = json.loads(process.stdout)
    layers = profile["layers"]
    edges = profile["edges"]
    names = [layer["name"] for layer in layers]
    assert names[:2] == ["000_down1_conv1", "001_down2_conv1"]
    # The outer skip of 6 channels of 32x32 is an output of the first layer.
    assert layers[0]["activation_bytes"] == 2 * 4 * 6 * 32 * 32
    assert layers[1]["activation_bytes"] == 2 * 4 * 12 * 16 * 16
    skips = [edge for edge in edges if names.index(edge[1]) - names.index(edge[0]) > 1]
    assert skips == [["000_down1_conv1", "003_up2_conv1"]]
    (tmp_path / "own.json").write_text(process.stdout)
    suite = tmp_path / "plan.yaml"
    cluster_options = ("--global-batch-size", "4", "--micro-batch-size", "1", "--machines", "2")
    emit = ("--emit", str(suite))
    plan_process = spbench(
        "plan", str(tmp_path / "own.json"), *cluster_options, *emit, *home, cwd=TESTS
    )
    assert plan_process.returncode == 0, plan_process.stderr
    case = yaml.safe_load(suite.read_text())["cases"][0]
    assert case["benchmark"] == "model.network"
    assert case["params"]["network"] == "support.networks.own_networks:UNet"
    assert case["params"]["network_args"] == {"width": 6}


def test_network_without_an_image_size_is_rejected(tmp_path: Path) -> None:
    process = spbench(
        "profile", "support.networks.own_networks:UNet", "--home", str(tmp_path), cwd=TESTS
    )
    assert process.returncode != 0
    unwrapped = " ".join((process.stderr + process.stdout).split())
    assert "say of which images, as by --set image_size=224" in unwrapped
