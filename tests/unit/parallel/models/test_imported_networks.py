"""Networks of the user's own: their layers together, and against the user's module itself."""

import re
import sys
import sysconfig
from pathlib import Path

import pytest
import torch
from torch import nn

import own_networks
import spbench_core
import spbench_workers
from spbench_core.catalog import BENCHMARKS
from spbench_core.layout.balance import layer_ranges
from spbench_core.models.parts import Map
from spbench_core.models.reach import count_kept_values, smallest_normalised_size
from spbench_parallel.errors import CannotRunError
from spbench_parallel.models.build import build_reference, build_stage
from spbench_parallel.models.builders import DenseBuilder
from spbench_parallel.models.imported.forward.symbols import IN_PLACE
from spbench_parallel.models.imported.loading import is_user_code
from spbench_parallel.models.imported.model import import_network
from spbench_parallel.models.imported.state_files import check_format, write_state
from spbench_workers import checking
from spbench_workers.benchmarks.model.network import check

pytestmark = pytest.mark.slow

IMAGE = Map(3, 32, 32)
NETWORKS = ["UNet", "Dense", "Attention", "Tied", "Asking", "Written"]


def network(name, image=IMAGE, seed=0, **arguments):
    return import_network(f"own_networks:{name}", arguments, image, seed)


def stages(model, balance, dtype=torch.float64):
    return [
        build_stage(model, first, last, DenseBuilder(), seed=0, dtype=dtype)
        for first, last in layer_ranges(balance)
    ]


def in_a_row(parts, images):
    made = images
    for part in parts:
        made = part(made)
    return made


def balances(model):
    layers = len(model.layers)
    return [(layers,), (1, layers - 1), (layers - 1, 1), (1,) * layers]


@pytest.mark.parametrize("name", NETWORKS)
def test_stages_do_what_the_users_module_does_to_the_last_bit(name):
    model = network(name)
    for balance in balances(model):
        parts = stages(model, balance)
        whole = build_reference(model, seed=0, device="cpu")
        for training in (True, False):
            images = torch.randn(3, *IMAGE.shape, dtype=torch.float64)
            found = images.clone().requires_grad_()
            wanted = images.clone().requires_grad_()
            for each in (*parts, whole):
                each.train(training)
                each.zero_grad()
            made = in_a_row(parts, found)
            expected = whole(wanted)
            assert torch.equal(made, expected)
            made.square().sum().backward()
            expected.square().sum().backward()
            assert torch.equal(found.grad, wanted.grad)
            named = dict(whole.named_parameters())
            own = {name: one for part in parts for name, one in part.named_parameters()}
            assert own.keys() == named.keys()
            for key, one in own.items():
                assert torch.equal(one.grad, named[key].grad), key
        buffers = dict(whole.named_buffers())
        for part in parts:
            for key, one in part.named_buffers():
                assert torch.equal(one, buffers[key]), key


@pytest.mark.parametrize("name", NETWORKS)
def test_layers_know_their_shapes_and_sizes(name):
    model = network(name)
    made = torch.randn(2, *IMAGE.shape)
    for layer, flow, built in zip(
        model.layers,
        model.flows[1:],
        *stages(model, (len(model.layers),), torch.float32),
        strict=True,
    ):
        made = built(made)
        several = made if isinstance(made, tuple) else (made,)
        if layer is not model.layers[-1]:
            assert [tuple(one.shape[1:]) for one in several] == [data.shape for data in flow]
    user = getattr(own_networks, name)()
    assert model.parameters == sum(one.numel() for one in user.parameters())
    assert model.classes == made.shape[1] == 5
    assert sum(count.parameters for count in model.counts) == model.parameters
    assert count_kept_values(model) > 0


def test_multiply_adds_are_counted_by_image():
    model = network("Tied")
    convs = 32 * 32 * 9 * (3 * 4 + 3 * 4 * 4)
    assert sum(count.multiply_adds for count in model.counts) == convs + 4 * 5


def test_skips_cross_from_the_first_stages_to_the_last():
    model = network("UNet")
    assert [len(flow) for flow in model.flows] == [1, 1, 2, 2, 1, 1, 1]
    assert [layer.name for layer in model.layers] == [
        *("000_down1_conv1", "001_down2_conv1", "002_middle_conv1"),
        *("003_up2_conv1", "004_up1_conv1", "005_head"),
    ]
    assert max(len(flow) for flow in network("Dense").flows) == 4
    assert {len(flow) for flow in network("Attention").flows} == {1}


def test_uses_of_one_parameter_are_in_one_stage():
    model = network("Tied")
    owners = [layer.name for layer in model.layers if "both.weight" in layer.piece.paths()]
    assert len(owners) == 1
    assert len(model.layers) == 3


def test_weights_are_those_that_the_seed_draws():
    one, same, other = (network("UNet", seed=seed) for seed in (3, 3, 4))
    weights = [
        each.layers[0].piece.make_module().get_parameter("down1.conv1.weight")
        for each in (one, same, other)
    ]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
    torch.manual_seed(3)
    assert torch.equal(weights[0], own_networks.UNet().down1.conv1.weight)


def test_tracing_moves_no_statistics_and_no_random_numbers():
    torch.manual_seed(0)
    wanted = torch.rand(1)
    torch.manual_seed(0)
    model = network("UNet")
    assert torch.equal(torch.rand(1), wanted)
    user = model.network.module
    assert user.down1.bn1.num_batches_tracked == 0
    assert not user.down1.bn1.running_mean.any()
    assert smallest_normalised_size(model) == 64


def test_the_same_layers_at_another_size():
    model = network("UNet")
    small = model.resized(16, 24)
    assert [layer.name for layer in small.layers] == [layer.name for layer in model.layers]
    assert small.flows[1] == (Map(4, 16, 24),)
    assert small.image == Map(3, 16, 24)
    with pytest.raises(CannotRunError, match="it cannot take images of 10x10"):
        model.resized(10, 10)


def test_a_cut_is_before_maps_are_flattened_and_behind_what_makes_them_smaller():
    patches = network("Attention").flows[1]
    assert patches == (Map(8, 4, 4),)
    assert network("Norms").flows[3] == (Map(6, 1, 1),)


def test_arguments_alone_reach_the_callable():
    assert network("UNet", width=6, classes=7).classes == 7
    with pytest.raises(CannotRunError, match=r"TypeError: .*unexpected keyword argument 'depth'"):
        network("UNet", depth=3)


@pytest.mark.parametrize(
    ("name", "arguments", "says"),
    [
        ("Choosing", {}, r"own_networks.py:\d+: the forward pass cannot be traced.*control flow"),
        ("Dropping", {"by": "alpha"}, r"own_networks.py:\d+: drop draws random numbers"),
        ("Dropping", {"by": "attention"}, r"own_networks.py:\d+: layer draws random numbers"),
        ("Dropping", {"by": "batch"}, r"own_networks.py:\d+: bernoulli_ draws random numbers"),
        ("Dropping", {"by": "product"}, r"scaled_dot_product_attention draws random numbers"),
        ("Dropping", {"by": "rrelu"}, r"own_networks.py:\d+: rrelu draws random numbers"),
        ("one", {}, "it gives the logits of one class, and cross entropy is 0"),
        ("Dropping", {"by": "noise"}, r"own_networks.py:\d+: rand_like draws random numbers"),
        ("Asking", {"what": "width"}, r"own_networks.py:\d+: add is another one in evaluation"),
        ("Asking", {"what": "output"}, r"it gives several outputs"),
        ("Asking", {"what": "more"}, r"has other operators in training than in evaluation"),
        ("Dropping", {"by": "always"}, r"own_networks.py:\d+: dropout draws random numbers"),
        ("maps", {}, r"it gives maps of \[5, 30, 30\], and must give logits"),
        ("frozen", {}, r"middle.conv1.weight does not learn"),
        ("nothing", {}, r"it returned NoneType, and must return an nn.Module"),
        ("unbuilt", {}, r"compiled part of torchvision does not load over torch .*: install a"),
        ("absent", {}, r"AttributeError: module 'own_networks' has no attribute 'absent'"),
    ],
)
def test_what_cannot_be_imported_is_told_in_one_sentence(name, arguments, says):
    with pytest.raises(CannotRunError, match=says) as told:
        network(name, **arguments)
    assert str(told.value).startswith(f"network own_networks:{name}: ")
    assert "\n" not in str(told.value)


def test_the_lines_are_those_of_the_operators():
    with pytest.raises(CannotRunError) as told:
        network("UNet", Map(3, 30, 30))
    (line,) = re.findall(
        r"own_networks.py:(\d+): cat: it cannot take images of 30x30", str(told.value)
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
def test_files_of_users_are_known_wherever_they_are(file):
    assert is_user_code(file)


@pytest.mark.parametrize(
    "file",
    [nn.__file__, spbench_workers.__file__, spbench_core.__file__, re.__file__, "<eval_with_key>"],
)
def test_files_of_torch_spbench_and_python_are_no_users(file):
    assert not is_user_code(file)


def test_a_torch_below_the_standard_library_is_no_users(monkeypatch):
    """So it is in a Python that is no virtual environment."""
    folder = str(Path(torch.__file__).parents[2])
    monkeypatch.setattr("spbench_parallel.models.imported.loading._STDLIB", f"{folder}/")
    assert not is_user_code(nn.__file__)


def test_a_case_is_checked_without_mpi(monkeypatch, capsys):
    cases = {
        stages: BENCHMARKS["model.network"].complete(
            {"network": "own_networks:UNet", "split_size": stages}
        )
        for stages in (2, 6, 7)
    }
    check(cases[6])
    with pytest.raises(CannotRunError, match="7 stages are more than the 6 layers of the model"):
        check(cases[7])
    assert checking._check_case("model.network", cases[7]) == (
        "network own_networks:UNet: 7 stages are more than the 6 layers of the model: "
        "take 6 at most"
    )
    assert checking._check_case("model.network", cases[2]) is None


def test_modules_that_write_into_their_input_make_new_maps():
    model = network("UNet")
    pieces = [layer.piece.make_module() for layer in model.layers]
    inplace = [
        one.inplace for piece in pieces for one in piece.modules() if isinstance(one, nn.ReLU)
    ]
    assert inplace
    assert not any(inplace)
    for piece in pieces:
        assert not any(node.target in IN_PLACE for node in piece.graph.nodes)


@pytest.mark.parametrize(
    ("state", "says"),
    [
        (None, "cannot be read: No such file or directory"),
        (b"text", "cannot be read: it is no file of torch's tensors"),
        ({"scale": torch.ones(1)}, "has no down1.bn1.bias"),
        ("more", "has an unknown extra"),
        ("other", r"has scale of shape \[2\], the network's is \[1\]"),
    ],
)
def test_weights_of_another_network_are_refused(tmp_path, state, says):
    path = tmp_path / "weights.pt"
    own = own_networks.UNet().state_dict()
    if isinstance(state, bytes):
        path.write_bytes(state)
    elif state == "more":
        torch.save(own | {"extra": torch.ones(1)}, path)
    elif state == "other":
        torch.save(own | {"scale": torch.ones(2)}, path)
    elif state is not None:
        torch.save(state, path)
    with pytest.raises(CannotRunError, match=says):
        import_network("own_networks:UNet", {}, IMAGE, 0, str(path))


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
def test_weights_are_taken_from_a_file(tmp_path, suffix):
    path = tmp_path / f"weights{suffix}"
    own = own_networks.UNet()
    with path.open("wb") as file:
        write_state(own.state_dict(), path, file)
    model = import_network("own_networks:UNet", {}, IMAGE, 0, str(path))
    found = model.network.module.get_parameter("down1.conv1.weight")
    assert torch.equal(found, own.down1.conv1.weight)


def test_safetensors_that_are_none_or_cannot_be_read_are_told(tmp_path, monkeypatch):
    path = tmp_path / "weights.safetensors"
    for content, says in ((None, "No such file"), (b"text", "it is no file of safetensors")):
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(CannotRunError, match=f"weights .* cannot be read: {says}"):
            import_network("own_networks:UNet", {}, IMAGE, 0, str(path))
    monkeypatch.setitem(sys.modules, "safetensors.torch", None)
    with pytest.raises(
        CannotRunError, match=r"not installed: pip install 'spbench\[safetensors\]'"
    ):
        import_network("own_networks:UNet", {}, IMAGE, 0, str(path))
    with pytest.raises(CannotRunError, match="is of safetensors, which is not installed"):
        check_format(path)
    check_format(tmp_path / "weights.pt")
