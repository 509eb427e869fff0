"""Networks of the user: their layers together, compared with the user's module."""

import re
import sys
import sysconfig
from pathlib import Path

import pytest
import torch
from torch import nn

import spbench_core
import spbench_workers
from spbench_core.catalog import BENCHMARKS
from spbench_core.layout.balance import list_layer_ranges
from spbench_core.models.parts import MapShape
from spbench_core.models.reach import count_kept_values, find_smallest_normalised_size
from spbench_parallel.errors import CannotRunError, MissingModuleError
from spbench_parallel.models.build import build_reference, build_stage
from spbench_parallel.models.builders import DenseBuilder
from spbench_parallel.models.imported.forward.symbols import IN_PLACE
from spbench_parallel.models.imported.loading import is_user_code, load_network
from spbench_parallel.models.imported.model import import_network
from spbench_parallel.models.imported.state_files import check_format, write_state
from spbench_workers import checking
from spbench_workers.benchmarks.model.network import check
from support.networks import own_networks

pytestmark = pytest.mark.slow

IMAGE = MapShape(3, 32, 32)
NETWORKS = ["UNet", "Dense", "Attention", "SharedConv", "ModeReader", "StoredTensors"]


def import_own_network(name, image=IMAGE, seed=0, **arguments):
    return import_network(f"support.networks.own_networks:{name}", arguments, image, seed)


def build_stages(model, balance, dtype=torch.float64):
    return [
        build_stage(model, first, last, DenseBuilder(), seed=0, dtype=dtype)
        for first, last in list_layer_ranges(balance)
    ]


def run_in_sequence(parts, images):
    maps = images
    for part in parts:
        maps = part(maps)
    return maps


def list_balances(model):
    layers = len(model.layers)
    return [(layers,), (1, layers - 1), (layers - 1, 1), (1,) * layers]


@pytest.mark.parametrize("name", NETWORKS)
def test_stages_equal_the_module_of_the_user_bitwise(name):
    model = import_own_network(name)
    for balance in list_balances(model):
        parts = build_stages(model, balance)
        reference = build_reference(model, seed=0, device="cpu")
        for training in (True, False):
            images = torch.randn(3, *IMAGE.shape, dtype=torch.float64)
            stage_images = images.clone().requires_grad_()
            reference_images = images.clone().requires_grad_()
            for module in (*parts, reference):
                module.train(training)
                module.zero_grad()
            output = run_in_sequence(parts, stage_images)
            expected = reference(reference_images)
            assert torch.equal(output, expected)
            output.square().sum().backward()
            expected.square().sum().backward()
            assert torch.equal(stage_images.grad, reference_images.grad)
            expected_parameters = dict(reference.named_parameters())
            stage_parameters = {
                name: tensor for part in parts for name, tensor in part.named_parameters()
            }
            assert stage_parameters.keys() == expected_parameters.keys()
            for key, tensor in stage_parameters.items():
                assert torch.equal(tensor.grad, expected_parameters[key].grad), key
        buffers = dict(reference.named_buffers())
        for part in parts:
            for key, tensor in part.named_buffers():
                assert torch.equal(tensor, buffers[key]), key


@pytest.mark.parametrize("name", NETWORKS)
def test_layers_have_the_shapes_and_sizes_of_modules(name):
    model = import_own_network(name)
    output = torch.randn(2, *IMAGE.shape)
    for layer, flow, built in zip(
        model.layers,
        model.flows[1:],
        *build_stages(model, (len(model.layers),), torch.float32),
        strict=True,
    ):
        output = built(output)
        tensors = output if isinstance(output, tuple) else (output,)
        if layer is not model.layers[-1]:
            assert [tuple(tensor.shape[1:]) for tensor in tensors] == [data.shape for data in flow]
    user = getattr(own_networks, name)()
    assert model.parameters == sum(tensor.numel() for tensor in user.parameters())
    assert model.classes == output.shape[1] == 5
    assert sum(count.parameters for count in model.counts) == model.parameters
    assert count_kept_values(model) > 0


def test_counts_multiply_adds_per_image():
    model = import_own_network("SharedConv")
    convs = 32 * 32 * 9 * (3 * 4 + 3 * 4 * 4)
    assert sum(count.multiply_adds for count in model.counts) == convs + 4 * 5


def test_skips_go_from_the_first_layers_to_the_last():
    model = import_own_network("UNet")
    assert [len(flow) for flow in model.flows] == [1, 1, 2, 2, 1, 1, 1]
    assert [layer.name for layer in model.layers] == [
        *("000_down1_conv1", "001_down2_conv1", "002_middle_conv1"),
        *("003_up2_conv1", "004_up1_conv1", "005_head"),
    ]
    assert max(len(flow) for flow in import_own_network("Dense").flows) == 4
    assert {len(flow) for flow in import_own_network("Attention").flows} == {1}


def test_uses_of_one_parameter_are_in_one_stage():
    model = import_own_network("SharedConv")
    owners = [layer.name for layer in model.layers if "shared.weight" in layer.piece.paths()]
    assert len(owners) == 1
    assert len(model.layers) == 3


def test_the_seed_determines_the_weights():
    first, same, other = (import_own_network("UNet", seed=seed) for seed in (3, 3, 4))
    weights = [
        model.layers[0].piece.make_module().get_parameter("down1.conv1.weight")
        for model in (first, same, other)
    ]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
    torch.manual_seed(3)
    assert torch.equal(weights[0], own_networks.UNet().down1.conv1.weight)


def test_tracing_changes_no_statistics_and_random_numbers():
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    model = import_own_network("UNet")
    assert torch.equal(torch.rand(1), expected)
    user = model.network.module
    assert user.down1.bn1.num_batches_tracked == 0
    assert not user.down1.bn1.running_mean.any()
    assert find_smallest_normalised_size(model) == 64


def test_resized_networks_have_the_same_layers():
    model = import_own_network("UNet")
    small = model.resized(16, 24)
    assert [layer.name for layer in small.layers] == [layer.name for layer in model.layers]
    assert small.flows[1] == (MapShape(4, 16, 24),)
    assert small.image == MapShape(3, 16, 24)
    with pytest.raises(CannotRunError, match="it cannot take images of 10x10"):
        model.resized(10, 10)


def test_cuts_before_flattening_and_after_downsampling():
    patches = import_own_network("Attention").flows[1]
    assert patches == (MapShape(8, 4, 4),)
    assert import_own_network("Norms").flows[3] == (MapShape(6, 1, 1),)


def test_passes_only_the_arguments_to_the_callable(messages):
    assert import_own_network("UNet", width=6, classes=7).classes == 7
    with messages.raises(CannotRunError):
        import_own_network("UNet", depth=3)


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        (
            "ValueBranch",
            {},
            r"own_networks.py:\d+: the forward pass cannot be traced.*control flow",
        ),
        ("RandomDrops", {"variant": "alpha"}, r"own_networks.py:\d+: drop draws random numbers"),
        (
            "RandomDrops",
            {"variant": "attention"},
            r"own_networks.py:\d+: layer draws random numbers",
        ),
        (
            "RandomDrops",
            {"variant": "batch"},
            r"own_networks.py:\d+: bernoulli_ draws random numbers",
        ),
        (
            "RandomDrops",
            {"variant": "product"},
            r"scaled_dot_product_attention draws random numbers",
        ),
        ("RandomDrops", {"variant": "rrelu"}, r"own_networks.py:\d+: rrelu draws random numbers"),
        ("make_one_class_network", {}, "it gives the logits of one class, and cross entropy is 0"),
        (
            "RandomDrops",
            {"variant": "noise"},
            r"own_networks.py:\d+: rand_like draws random numbers",
        ),
        (
            "ModeReader",
            {"variant": "width"},
            r"own_networks.py:\d+: add is another one in evaluation",
        ),
        ("ModeReader", {"variant": "output"}, r"it gives several outputs"),
        ("ModeReader", {"variant": "more"}, r"has other operators in training than in evaluation"),
        (
            "RandomDrops",
            {"variant": "always"},
            r"own_networks.py:\d+: dropout draws random numbers",
        ),
        ("make_map_network", {}, r"it gives maps of \[5, 30, 30\], and must give logits"),
        ("make_frozen_network", {}, r"middle.conv1.weight does not learn"),
        ("return_no_network", {}, r"it returned NoneType, and must return an nn.Module"),
        (
            "fail_like_torchvision",
            {},
            r"compiled part of torchvision does not load over torch .*: install a",
        ),
        (
            "absent",
            {},
            r"AttributeError: module 'support\..*own_networks' has no attribute 'absent'",
        ),
    ],
)
def test_reports_why_a_network_cannot_be_imported(name, arguments, expected):
    with pytest.raises(CannotRunError, match=expected) as caught:
        import_own_network(name, **arguments)
    assert str(caught.value).startswith(f"network support.networks.own_networks:{name}: ")
    assert "\n" not in str(caught.value)


def test_names_the_line_of_the_operator():
    with pytest.raises(CannotRunError) as caught:
        import_own_network("UNet", MapShape(3, 30, 30))
    (line,) = re.findall(
        r"own_networks.py:(\d+): cat: it cannot take images of 30x30", str(caught.value)
    )
    lines = Path(own_networks.__file__).read_text().splitlines()
    assert "torch.cat([second" in lines[int(line) - 1]


@pytest.mark.parametrize(
    "file",
    [
        "/home/someone/spbench/workers/network.py",
        "/home/someone/python3.11/network.py",
        f"{Path(spbench_workers.__file__).parents[1]}/network.py",
        f"{Path(torch.__file__).parents[1]}/torchvision/models/resnet.py",
        f"{sysconfig.get_path('stdlib')}/site-packages/timm/models.py",
    ],
)
def test_recognizes_user_code_in_any_folder(file):
    assert is_user_code(file)


@pytest.mark.parametrize(
    "file",
    [nn.__file__, spbench_workers.__file__, spbench_core.__file__, re.__file__, "<eval_with_key>"],
)
def test_library_files_are_not_user_code(file):
    assert not is_user_code(file)


def test_a_torch_in_the_standard_library_is_not_user_code(monkeypatch):
    """A Python outside of a virtual environment has this layout."""
    folder = str(Path(torch.__file__).parents[2])
    monkeypatch.setattr("spbench_parallel.models.imported.loading._STDLIB", f"{folder}/")
    assert not is_user_code(nn.__file__)


def test_a_case_is_checked_without_mpi(monkeypatch, capsys, messages):
    cases = {
        split_size: BENCHMARKS["model.network"].complete(
            {"network": "support.networks.own_networks:UNet", "split_size": split_size}
        )
        for split_size in (2, 6, 7)
    }
    check(cases[6])
    with messages.raises(CannotRunError):
        check(cases[7])
    messages.check(checking._check_case("model.network", cases[7]))
    assert checking._check_case("model.network", cases[2]) is None


def test_replaces_in_place_modules():
    model = import_own_network("UNet")
    pieces = [layer.piece.make_module() for layer in model.layers]
    inplace = [
        module.inplace
        for piece in pieces
        for module in piece.modules()
        if isinstance(module, nn.ReLU)
    ]
    assert inplace
    assert not any(inplace)
    for piece in pieces:
        assert not any(node.target in IN_PLACE for node in piece.graph.nodes)


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (None, "cannot be read: No such file or directory"),
        (b"text", "cannot be read: it is no file of torch's tensors"),
        ({"scale": torch.ones(1)}, "has no down1.bn1.bias"),
        ("more", "has an unknown extra"),
        ("other", r"has scale of shape \[2\], the network's is \[1\]"),
    ],
)
def test_rejects_weights_of_another_network(tmp_path, state, expected):
    path = tmp_path / "weights.pt"
    user_state = own_networks.UNet().state_dict()
    if isinstance(state, bytes):
        path.write_bytes(state)
    elif state == "more":
        torch.save(user_state | {"extra": torch.ones(1)}, path)
    elif state == "other":
        torch.save(user_state | {"scale": torch.ones(2)}, path)
    elif state is not None:
        torch.save(state, path)
    with pytest.raises(CannotRunError, match=expected):
        import_network("support.networks.own_networks:UNet", {}, IMAGE, 0, str(path))


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
def test_loads_weights_from_a_file(tmp_path, suffix):
    path = tmp_path / f"weights{suffix}"
    user_network = own_networks.UNet()
    with path.open("wb") as file:
        write_state(user_network.state_dict(), path, file)
    model = import_network("support.networks.own_networks:UNet", {}, IMAGE, 0, str(path))
    weight = model.network.module.get_parameter("down1.conv1.weight")
    assert torch.equal(weight, user_network.down1.conv1.weight)


def test_reports_invalid_or_unsupported_safetensors(tmp_path, monkeypatch, messages):
    path = tmp_path / "weights.safetensors"
    for content, expected in ((None, "No such file"), (b"text", "it is no file of safetensors")):
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(CannotRunError, match=f"weights .* cannot be read: {expected}"):
            import_network("support.networks.own_networks:UNet", {}, IMAGE, 0, str(path))
    monkeypatch.setitem(sys.modules, "safetensors.torch", None)
    with messages.raises(CannotRunError):
        import_network("support.networks.own_networks:UNet", {}, IMAGE, 0, str(path))
    with messages.raises(CannotRunError):
        check_format(path)
    check_format(tmp_path / "weights.pt")


@pytest.mark.parametrize("module", ["filenet.Net", "filenets.inner.Net"])
def test_name_within_a_module_file_is_a_missing_module(module, tmp_path, monkeypatch):
    folder = tmp_path / "filenets"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "inner.py").touch()
    (tmp_path / "filenet.py").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(MissingModuleError, match=f"network {module}:build: .* is not a package"):
        load_network(f"{module}:build", {}, seed=0)
