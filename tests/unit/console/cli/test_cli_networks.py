"""``spbench networks``."""

from __future__ import annotations

import json

import pytest

from spbench.cli.app import run_command_line
from spbench_core.networks.registry import NETWORKS, list_parameters, sum_megabytes
from unit.done import Done


@pytest.fixture
def networks(capsys):
    def run(*words: str) -> tuple[int, str, str]:
        status = run_command_line(["networks", *words])
        return status, *capsys.readouterr()

    return run


def test_the_list_has_each_network_with_its_depths_and_image(networks):
    status, out, err = networks()
    head, *rows = out.splitlines()
    assert (status, err) == (0, "")
    assert head.split() == ["name", "what", "it", "is", "depths", "image", "shape"]
    assert [row.split()[0] for row in rows[: len(NETWORKS)]] == list(NETWORKS)
    assert rows[0].split()[-2:] == ["18,34,50,101,152,200,269", "3,224,224"]
    assert rows[len(NETWORKS)].startswith("resnet for images up to 28 pixels high: depths 6n+2")


def test_the_list_as_json_has_one_object_a_network(networks):
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


def test_one_network_is_a_table_in_the_order_of_keys(networks):
    status, out, _ = networks("resnet", "--num-layers", "200")
    total, head, *rows = out.splitlines()
    assert status == 0
    assert total == "num of arrays = 205, total size = 257.991328 MB"
    assert head.split() == ["key", "name", "shape", "elements"]
    assert [int(row.split()[0]) for row in rows] == list(range(205))
    assert rows[0].split() == ["0", "conv0_weight", "64,3,7,7", "9408"]


def test_json_of_one_network_is_what_the_library_gives(networks):
    words = ["--num-layers", "20", "--image-shape", "1,28,27", "--num-classes", "7", "--json"]
    status, out, _ = networks("resnet", *words)
    found = list_parameters("resnet", 20, (1, 28, 27), 7)
    assert status == 0
    assert json.loads(out) == {
        "num_arrays": len(found),
        "total_mb": sum_megabytes(found),
        "shapes": [list(param.shape) for param in found],
        "names": [param.name for param in found],
    }
    assert list(json.loads(out)) == ["num_arrays", "total_mb", "shapes", "names"]


@pytest.mark.parametrize(
    ("words", "told"),
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
def test_wrong_input_is_one_line_on_stderr_and_exit_code_2(networks, words, told):
    status, out, err = networks(*words)
    assert (status, out) == (2, "")
    assert err.startswith("spbench: error: ")
    assert told in err
    assert Done(status, out, err).refusal
