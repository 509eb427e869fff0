"""Tests of ``spbench networks``."""

from __future__ import annotations

import json

import pytest

from spbench.cli.app import run_command_line
from spbench_core.mxnet_networks.registry import NETWORKS, list_parameters, sum_megabytes
from support.commands import CommandResult


@pytest.fixture
def networks(capsys):
    def run(*args: str) -> tuple[int, str, str]:
        status = run_command_line(["networks", *args])
        return status, *capsys.readouterr()

    return run


def test_list_has_each_network_with_depths_and_image(networks, messages):
    status, out, err = networks()
    head, *rows = out.splitlines()
    assert (status, err) == (0, "")
    assert head.split() == ["name", "what", "it", "is", "depths", "image", "shape"]
    assert [row.split()[0] for row in rows[: len(NETWORKS)]] == list(NETWORKS)
    assert rows[0].split()[-2:] == ["18,34,50,101,152,200,269", "3,224,224"]
    messages.check(rows[len(NETWORKS)])


def test_json_list_has_one_object_per_network(networks):
    status, out, _ = networks("--json")
    listed = {network["name"]: network for network in json.loads(out)}
    assert status == 0
    assert list(listed) == list(NETWORKS)
    assert listed["vgg"] == {
        "name": "vgg",
        "help": NETWORKS["vgg"].help,
        "depths": [11, 13, 16, 19],
        "num_layers": 16,
        "image_shape": [3, 224, 224],
    }
    assert listed["mlp"]["num_layers"] is None


def test_network_is_a_table_in_the_order_of_keys(networks):
    status, out, _ = networks("resnet", "--num-layers", "200")
    total, head, *rows = out.splitlines()
    assert status == 0
    assert total == "num of arrays = 205, total size = 257.991328 MB"
    assert head.split() == ["key", "name", "shape", "elements"]
    assert [int(row.split()[0]) for row in rows] == list(range(205))
    assert rows[0].split() == ["0", "conv0_weight", "64,3,7,7", "9408"]


def test_json_of_a_network_matches_the_library(networks):
    args = ["--num-layers", "20", "--image-shape", "1,28,27", "--num-classes", "7", "--json"]
    status, out, _ = networks("resnet", *args)
    parameters = list_parameters("resnet", 20, (1, 28, 27), 7)
    assert status == 0
    assert json.loads(out) == {
        "num_arrays": len(parameters),
        "total_mb": sum_megabytes(parameters),
        "shapes": [list(param.shape) for param in parameters],
        "names": [param.name for param in parameters],
    }
    assert list(json.loads(out)) == ["num_arrays", "total_mb", "shapes", "names"]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["alexnet2"], "no network is called 'alexnet2' (did you mean alexnet?); see spbench"),
        (["vgg", "--num-layers", "152"], "--num-layers: vgg has no depth 152; there are 11, 13"),
        (["vgg", "--num-layers", "x"], "--num-layers"),
        (["inception-v3", "--image-shape", "3,224,224"], "--image-shape: 3,224,224 is too small"),
        (["vgg", "--image-shape", "3,a,4"], "--image-shape: '3,a,4' is not C,H,W, as 3,224,224"),
        (["vgg", "--image-shape", "224"], "--image-shape: 224 is not channels, height and width"),
        (["vgg", "--num-classes", "0"], "--num-classes: there must be at least 1 class, not 0"),
        (["--num-classes", "10"], "these options are about one network: name it"),
    ],
)
def test_invalid_input_is_a_one_line_error(networks, args, message):
    status, out, err = networks(*args)
    assert (status, out) == (2, "")
    assert err.startswith("spbench: error: ")
    assert message in err
    assert CommandResult(status, out, err).error_line
