"""Networks as layers: their modules, and shapes and counts by arithmetic."""

import copy
from itertools import pairwise

import pytest
import torch
from mpi4py import MPI
from torch import nn
from torch.nn import functional

from spbench_core.layout.tiles import Grid
from spbench_core.models.count import COUNTING_BUILDER
from spbench_core.models.parts import Conv, MapShape, ModelError
from spbench_core.models.registry import make_model
from spbench_parallel.models.build import build_stage
from spbench_parallel.models.builders import DenseBuilder, SpatialBuilder
from spbench_parallel.models.modules import ShiftedConv2d
from spbench_parallel.spatial.tiling import Tiling

SMALL = [
    ("resnet", (40, 70), {"version": 1, "depth": 14, "width": 4}),
    ("resnet", (33, 64), {"version": 2, "depth": 20, "width": 4}),
    ("resnet", (33, 50), {"arch": "resnet50", "width": 4}),
    ("resnet", (64, 32), {"arch": "resnet101", "width": 2}),
    ("amoebanet", (64, 96), {"num_layers": 3, "num_filters": 16}),
    ("amoebanet", (96, 64), {"num_layers": 6, "num_filters": 20, "pool3": "max", "shift": True}),
]
small_networks = pytest.mark.parametrize(
    ("name", "size", "config"), SMALL, ids=[f"{name} {config}" for name, _, config in SMALL]
)
BATCH = 2
CLASSES = 7


def make_network(name, size=(64, 64), classes=10, **config):
    return make_model(name, image_size=size, num_classes=classes, **config)


def make_stage(network, first=0, last=None, builder=None, **options):
    options = {"seed": 1, "dtype": torch.float64} | options
    last = len(network.layers) if last is None else last
    return build_stage(network, first, last, builder or DenseBuilder(), **options)


def make_images(network, batch=BATCH):
    generator = torch.Generator().manual_seed(5)
    return torch.randn(batch, *network.image.shape, dtype=torch.float64, generator=generator)


# Counts


@pytest.mark.parametrize(
    ("name", "size", "classes", "config", "layers", "parameters"),
    [
        # 22,086 of the reference's 7,192,688 are in normalisations that it never uses.
        ("resnet", (64, 64), 10, {"version": 2, "depth": 110}, 38, 7_192_688 - 22_086),
        ("resnet", (224, 224), 1000, {"arch": "resnet50"}, 18, 25_557_032),
        ("resnet", (224, 224), 1000, {"arch": "resnet101"}, 35, 44_549_160),
        ("amoebanet", (64, 64), 10, {}, 24, 312_433_690),
        ("amoebanet", (64, 64), 10, {"shift": True, "pool3": "max"}, 24, 312_433_690),
        ("amoebanet", (512, 64), 10, {"num_filters": 256}, 24, 118_414_090),
        ("amoebanet", (64, 64), 10, {"num_filters": 208}, 24, 78_209_830),
        ("amoebanet", (64, 64), 10, {"num_filters": 214}, 24, 81_242_028),
        ("amoebanet", (64, 64), 10, {"num_layers": 36, "num_filters": 544}, 42, 1_047_214_426),
    ],
)
def test_networks_have_the_known_numbers_of_layers_and_parameters(
    name, size, classes, config, layers, parameters
):
    network = make_network(name, size, classes, **config)
    assert (len(network.layers), network.parameters) == (layers, parameters)


@pytest.mark.parametrize(
    ("depth", "layers", "reference_parameters"), [(20, 11, 276_528), (32, 17, 472_304)]
)
def test_version_1_has_the_used_parameters_of_the_reference(depth, layers, reference_parameters):
    blocks = (depth - 2) // 6
    # Each of its convolutions has an unused normalisation of its input.
    unused = [3] + [16] * 2 * blocks + [16] + [32] * (2 * blocks - 1) + [32]
    unused += [64] * (2 * blocks - 1)
    # In addition, the convolutions of shortcuts have one of their output.
    unused += [16, 32, 32, 64]
    network = make_network("resnet", version=1, depth=depth)
    assert len(network.layers) == layers
    assert network.parameters == reference_parameters - 2 * sum(unused)


@pytest.mark.parametrize(
    ("size", "features"), [(32, 256), (62, 1024), (64, 1024), (512, 65_536), (8192, 16_777_216)]
)
def test_the_classifier_has_the_width_of_the_last_map(size, features):
    network = make_network("resnet", (size, size))
    assert network.counts[-1].multiply_adds == 10 * features
    assert network.counts[-1].parameters == 10 * features + 10 + 2 * 256


def test_resnets_have_the_published_multiply_adds():
    published = {"resnet50": 4_089_184_256, "resnet101": 7_801_405_440}
    for arch, multiply_adds in published.items():
        counts = make_network("resnet", (224, 224), 1000, arch=arch).counts
        assert sum(count.multiply_adds for count in counts) == multiply_adds


@small_networks
def test_counts_and_shapes_agree_with_the_modules(name, size, config):
    network = make_network(name, size, CLASSES, **config)
    data = make_images(network)
    stage = make_stage(network)
    computed = record_multiply_adds(stage)
    for layer, flow, count in zip(stage, network.flows[1:], network.counts, strict=True):
        computed.clear()
        data = layer(data)
        shapes = [tuple(tensor.shape) for tensor in ([data] if torch.is_tensor(data) else data)]
        expected = [(BATCH, *tensor.shape) for tensor in flow]
        assert shapes == (expected if len(shapes[0]) == 4 else [(BATCH, CLASSES)])
        assert count.multiply_adds == sum(computed) // BATCH
        assert count.parameters == sum(value.numel() for value in layer.parameters())


def record_multiply_adds(stage):
    """Return a list that grows by the count of each convolution and linear layer."""
    computed = []

    def add(module, _, output):
        computed.append(module.weight[0].numel() * output.numel())

    for module in stage.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            module.register_forward_hook(add)
    return computed


def test_amoebanet_has_the_known_maps():
    network = make_network("amoebanet")
    cells = [(624, 16), (1248, 8), *[(1664, 8)] * 6, (2496, 4), *[(3328, 4)] * 6, (4992, 2)]
    expected = [(3, 64), (104, 32), *cells, *[(6656, 2)] * 6]
    maps = [(flow[0].channels, flow[0].height) for flow in network.flows[:-1]]
    assert maps == expected
    assert [len(flow) for flow in network.flows] == [1, 1, *[2] * 21, 1, 1]
    for before, flow in zip(network.flows[1:], network.flows[2:-2], strict=False):
        assert flow[1] == before[0]


# Structure


def test_version_2_projects_first_blocks_and_preactivates():
    network = make_network("resnet", version=2, depth=20)
    stage = make_stage(network)
    blocks = {name: block for name, block in stage.named_children() if "block" in name}
    projected = [name for name in blocks if not isinstance(blocks[name].shortcut, nn.Identity)]
    assert projected == ["stack1_block1", "stack2_block1", "stack3_block1"]
    for name, block in blocks.items():
        norms = [key for key, _ in block.main.named_children() if "norm" in key]
        assert len(norms) == (2 if name == "stack1_block1" else 3)
        strides = [block.main.conv1.stride[0], block.main.conv2.stride[0]]
        assert strides == ([2, 1] if name in projected[1:] else [1, 1])
        assert isinstance(block.last, nn.Identity)


@pytest.mark.parametrize("version", [1, 2])
def test_small_resnets_compute_the_published_network(version):
    network = make_network("resnet", version=version, depth={1: 8, 2: 11}[version], width=4)
    stage = make_stage(network).eval()
    image = make_images(network)
    state = stage.state_dict()

    def conv(data, name, stride=1):
        weight = state[f"{name}.weight"]
        side = weight.shape[2] // 2
        return functional.conv2d(data, weight, state[f"{name}.bias"], stride, side)

    def norm(data, name):
        keys = ("running_mean", "running_var", "weight", "bias")
        return functional.batch_norm(data, *(state[f"{name}.{key}"] for key in keys))

    data = norm(conv(image, "stem.conv"), "stem.norm").relu()
    for stack in (1, 2, 3):
        name = f"stack{stack}_block1"
        stride = 1 if stack == 1 else 2
        main = f"{name}.main"
        if version == 1:
            branch = norm(conv(data, f"{main}.conv1", stride), f"{main}.norm1").relu()
            branch = norm(conv(branch, f"{main}.conv2"), f"{main}.norm2")
            shortcut = data if stack == 1 else conv(data, f"{name}.shortcut", stride)
            data = (branch + shortcut).relu()
            continue
        branch = data if stack == 1 else norm(data, f"{main}.norm1").relu()
        branch = conv(branch, f"{main}.conv1", stride)
        branch = conv(norm(branch, f"{main}.norm2").relu(), f"{main}.conv2")
        branch = conv(norm(branch, f"{main}.norm3").relu(), f"{main}.conv3")
        data = branch + conv(data, f"{name}.shortcut", stride)
    if version == 2:
        data = norm(data, "head.norm").relu()
    features = functional.avg_pool2d(data, 8).flatten(1)
    expected = functional.linear(features, state["head.linear.weight"], state["head.linear.bias"])
    torch.testing.assert_close(stage(image), expected, rtol=0, atol=1e-12)


def test_cells_compute_the_published_cells():
    network = make_network("amoebanet", num_layers=3, num_filters=8)
    stage = make_stage(network).eval()
    stem = stage.stem1(make_images(network))
    reduced, before = stage.stem2(stem)
    assert before is stem
    cell = stage.stem2
    op = cell.operations
    first = cell.prepare[0](stem)
    second = cell.prepare[1](stem)
    third = op[0](first) + op[1](first)
    fourth = op[2](third) + op[3](second)
    fifth = op[4](third) + op[5](third)
    sixth = op[6](fourth) + op[7](second)
    seventh = op[8](third) + op[9](fourth)
    assert torch.equal(reduced, torch.cat([fifth, sixth, seventh], 1))
    flow = stage.stem3((reduced, before))
    cell = stage.cell1_normal1
    op = cell.operations
    first = cell.prepare[0](flow[0])
    second = cell.prepare[1](flow[1])
    third = op[0](second) + op[1](second)
    fourth = op[2](second) + op[3](first)
    fifth = op[4](first) + op[5](first)
    sixth = op[6](third) + op[7](third)
    seventh = op[8](second) + op[9](sixth)
    assert torch.equal(cell(flow)[0], torch.cat([first, fourth, fifth, seventh], 1))


@pytest.mark.parametrize(("pool3", "maxima", "means"), [("avg", 0, 21), ("max", 14, 7)])
def test_pool3_chooses_the_pool(pool3, maxima, means):
    network = make_network("amoebanet", num_layers=3, num_filters=8, pool3=pool3)
    modules = list(make_stage(network).modules())
    wide = [m for m in modules if isinstance(m, nn.MaxPool2d) and m.kernel_size == 3]
    assert len(wide) == maxima
    assert sum(isinstance(m, nn.AvgPool2d) for m in modules) == means
    assert not any(m.count_include_pad for m in modules if isinstance(m, nn.AvgPool2d))


def test_the_shift_reads_the_pixels_that_the_other_half_skips():
    torch.manual_seed(0)
    conv = ShiftedConv2d(3, 4)
    image = torch.randn(2, 3, 8, 6)
    shifted = functional.pad(image[:, :, 1:, 1:], (0, 1, 0, 1))
    assert torch.equal(conv(image), functional.conv2d(shifted, conv.weight, stride=2))
    with_shift, without = (
        make_stage(make_network("amoebanet", num_layers=3, num_filters=8, shift=shift)).eval()
        for shift in (True, False)
    )
    data = make_images(make_network("amoebanet"))
    assert list(with_shift.state_dict()) == list(without.state_dict())
    assert not torch.allclose(with_shift(data), without(data))


@pytest.mark.parametrize(
    ("conv", "weight"),
    [
        (Conv(8, 3), (8, 4, 3, 3)),
        (Conv(8, (1, 7), pad=(1, 2)), (8, 4, 1, 7)),
        (Conv(8, 2, 2, bias=True, pad=0), (8, 4, 2, 2)),
        (Conv(8, 3, groups=4), (8, 1, 3, 3)),
    ],
)
def test_convolutions_of_both_builders_have_equal_shapes(conv, weight):
    shape = MapShape(4, 12, 10)
    tiling = Tiling.of_grid(MPI.COMM_SELF, Grid(1, 1), 12, 10)
    modules = [conv.build(builder, shape) for builder in (DenseBuilder(), SpatialBuilder(tiling))]
    assert conv.compute_weight_shape(shape) == weight
    count = conv.build(COUNTING_BUILDER, shape)
    image = torch.rand(1, *shape.shape)
    outputs = []
    for module in modules:
        module.load_state_dict(modules[0].state_dict())
        assert module.weight.shape == weight
        assert sum(parameter.numel() for parameter in module.parameters()) == count.parameters
        outputs.append(module(image))
    assert outputs[0].shape == (1, *conv.output(shape).shape)
    torch.testing.assert_close(*outputs)


# Stages


@pytest.mark.slow
@small_networks
def test_stages_in_sequence_equal_the_complete_network(name, size, config):
    network = make_network(name, size, CLASSES, **config)
    count = len(network.layers)
    cuts = [0, 1, count // 3, count // 2, count - 1, count]
    complete = make_stage(network)
    stages = [make_stage(network, *cut) for cut in pairwise(cuts)]
    merged = {key: value for stage in stages for key, value in stage.state_dict().items()}
    expected = copy.deepcopy(complete.state_dict())
    assert list(merged) == list(expected)
    assert all(torch.equal(merged[key], expected[key]) for key in merged)
    image = make_images(network)
    complete_images = image.clone().requires_grad_()
    logits = complete(complete_images)
    logits.square().sum().backward()
    data = stage_images = image.clone().requires_grad_()
    for stage in stages:
        data = stage(data)
    assert torch.equal(data, logits)
    data.square().sum().backward()
    assert torch.equal(complete_images.grad, stage_images.grad)
    gradients = {key: value.grad for stage in stages for key, value in stage.named_parameters()}
    assert all(
        torch.equal(value.grad, gradients[key]) for key, value in complete.named_parameters()
    )


@small_networks
def test_states_have_the_same_names_and_values_over_tiles(name, size, config):
    network = make_network(name, size, CLASSES, **config)
    tiling = Tiling.of_grid(MPI.COMM_SELF, Grid(1, 1), *size)
    complete = make_stage(network)
    tiled = make_stage(network, builder=SpatialBuilder(tiling))
    state = complete.state_dict()
    tiled_state = tiled.state_dict()
    assert list(state) == list(tiled_state)
    assert all(torch.equal(state[key], tiled_state[key]) for key in state)
    layers = {layer.name for layer in network.layers}
    assert {key.split(".")[0] for key in state} == layers
    assert len(layers) == len(network.layers)


def test_seed_and_layer_determine_the_parameters():
    network = make_network("resnet", version=2, depth=20)
    names = [layer.name for layer in network.layers]
    index = names.index("stack1_block2")
    complete = make_stage(network).state_dict()
    torch.manual_seed(99)
    rng_state = torch.get_rng_state()
    layer_state = make_stage(network, index, index + 1).state_dict()
    assert torch.equal(torch.get_rng_state(), rng_state)
    assert layer_state
    assert all(torch.equal(value, complete[key]) for key, value in layer_state.items())
    in_fp32 = make_stage(network, index, index + 1, dtype=torch.float32).state_dict()
    assert all(torch.equal(in_fp32[key].double(), layer_state[key].double()) for key in layer_state)
    weight = "stack1_block2.main.conv1.weight"
    assert not torch.equal(layer_state[weight], make_stage(network, seed=2).state_dict()[weight])
    # Another layer of the same shape differs. The same layer at another index does not.
    deeper = make_stage(make_network("resnet", version=2, depth=29)).state_dict()
    assert not torch.equal(layer_state[weight], deeper["stack1_block3.main.conv1.weight"])
    moved = "stack2_block1.main.conv1.weight"
    assert torch.equal(complete[moved], deeper[moved])


@pytest.mark.parametrize(("first", "last"), [(0, 0), (3, 2), (-1, 2), (4, 6)])
def test_rejects_a_stage_of_missing_layers(first, last, messages):
    network = make_network("resnet", depth=11)
    assert len(network.layers) == 5
    with messages.raises(ValueError):
        make_stage(network, first, last)


# Errors


@pytest.mark.parametrize(
    ("name", "config", "param", "expected"),
    [
        (
            "resnet",
            {"depth": 100},
            "depth",
            r"v2 has no depth 100; .* 9n\+2, the nearest 92 and 101",
        ),
        ("resnet", {"depth": 2}, "depth", r"9n\+2, the nearest 11$"),
        ("resnet", {"depth": -7}, "depth", r"9n\+2, the nearest 11$"),
        ("resnet", {"version": 1, "depth": 21}, "depth", r"6n\+2, the nearest 20 and 26$"),
        ("resnet", {"version": 3}, "version", "no ResNet version 3; there are 1 and 2"),
        ("resnet", {"size": (64, 28)}, "image_size", "64x28 pixels is too small: .* 29 pixels or"),
        ("resnet", {"size": (0, 64)}, "image_size", "0x64 has no pixels"),
        ("resnet", {"arch": "resnet18"}, "arch", "no arch 'resnet18'; there are resnet50, resnet"),
        ("resnet", {"arch": "resnet50", "depth": 50}, "depth", "depth of its own; leave depth out"),
        ("resnet", {"classes": 0}, "num_classes", "at least 1 class, not 0"),
        ("amoebanet", {"num_layers": 4}, "num_layers", "4; it must be a multiple of 3"),
        ("amoebanet", {"num_layers": 0}, "num_layers", "0; it must be a multiple of 3"),
        ("amoebanet", {"num_filters": 7}, "num_filters", "7; it must be 8 or more"),
        ("amoebanet", {"pool3": "min"}, "pool3", "no pool3 'min'; there are avg and max"),
        ("amoebanet", {"size": (64, 80)}, "image_size", r"multiples of 32 \(near 80: 64, 96\)"),
        ("amoebanet", {"size": (16, 32)}, "image_size", r"multiples of 32 \(near 16: 32\)"),
        ("vgg", {}, "model", "no model is called 'vgg'; there are resnet and amoebanet"),
    ],
)
def test_rejects_networks_with_invalid_parameters(name, config, param, expected):
    with pytest.raises(ModelError, match=expected) as caught:
        make_network(name, **config)
    assert caught.value.param == param
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("size", [29, 30, 31])
def test_the_smallest_image_of_a_resnet_leaves_one_pooled_pixel(size):
    assert make_network("resnet", (size, size)).counts[-1].multiply_adds == 10 * 256
