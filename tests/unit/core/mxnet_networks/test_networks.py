import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spbench_core.models.compose import concat_shapes, require_equal_shapes
from spbench_core.models.parts import MapShape, ModelError
from spbench_core.mxnet_networks.graph import (
    Parameter,
    ParameterCollector,
    TooSmallError,
    compute_same_padding,
)
from spbench_core.mxnet_networks.registry import NETWORKS, list_parameters, sum_megabytes
from spbench_core.mxnet_networks.resnet import is_small_depth

BIG_ARRAY = 1_000_000
"""Number of elements from which MXNet divides an array between servers."""


def list_elements(*args, **kwargs):
    return [param.elements for param in list_parameters(*args, **kwargs)]


def select_convolutions(params):
    return [param for param in params if len(param.shape) == 4]


def map_shapes(params):
    return {param.name: param.shape for param in params}


@pytest.mark.parametrize(
    ("name", "depth", "image", "arrays", "megabytes"),
    [
        ("resnet", 200, (3, 224, 224), 205, "257.991328"),
        ("inception-v3", None, (3, 299, 299), 96, "95.200544"),
        ("resnet", 50, (3, 224, 224), 55, "102.015648"),
    ],
)
def test_sizes_match_the_lists_of_mxnet_to_the_byte(name, depth, image, arrays, megabytes):
    parameters = list_parameters(name, depth, image)
    assert (len(parameters), f"{sum_megabytes(parameters):.6f}") == (arrays, megabytes)


@pytest.mark.parametrize(
    ("name", "depth", "published"),
    [
        ("vgg", 11, 132_863_336),
        ("vgg", 13, 133_047_848),
        ("vgg", 16, 138_357_544),
        ("vgg", 19, 143_667_240),
        ("googlenet", None, 6_998_552),
    ],
)
def test_networks_without_normalization_match_published_counts(name, depth, published):
    assert sum(list_elements(name, depth)) == published


# Published counts of other libraries include gamma and beta of each normalization. MXNet has one
# more convolution in some networks; the last item is its (filters, weights).
PUBLISHED = [
    ("resnet", 18, 11_689_512, (64, 64 * 64)),
    ("resnet", 34, 21_797_672, (64, 64 * 64)),
    ("resnet", 50, 25_557_032, (0, 0)),
    ("resnet-v1", 101, 44_549_160, (0, 0)),
    ("resnet", 152, 60_192_808, (0, 0)),
    ("resnext", 50, 25_028_904, (0, 0)),
    ("mobilenet", None, 4_253_864 - 21_888, (0, 0)),
    ("mobilenet-0.75", None, 2_601_976 - 16_416, (0, 0)),
    ("mobilenet-0.5", None, 1_342_536 - 10_944, (0, 0)),
    ("mobilenet-0.25", None, 475_544 - 5_472, (0, 0)),
    ("mobilenetv2", None, 3_504_872, (32, 32 * 32)),
]


@pytest.mark.parametrize(("name", "depth", "published", "extra"), PUBLISHED)
def test_normalized_networks_match_published_counts(name, depth, published, extra):
    parameters = list_parameters(name, depth)
    filters = sum(param.shape[0] for param in select_convolutions(parameters)) - extra[0]
    assert sum(param.elements for param in parameters) - extra[1] + 2 * filters == published


def test_inception_v4_matches_the_count_but_for_its_classifier():
    parameters = list_parameters("inception-v4")
    assert parameters[-2] == Parameter("fc1_weight", (1000, 13824))
    filters = sum(param.shape[0] for param in select_convolutions(parameters))
    weights = sum(param.elements for param in select_convolutions(parameters))
    assert weights + 2 * filters + 1000 * 1536 + 1000 == 42_679_816


def test_inception_resnet_v2_matches_except_filters_and_biases():
    parameters = list_parameters("inception-resnet-v2")
    filters = sum(param.shape[0] for param in select_convolutions(parameters))
    weights = sum(param.elements for param in select_convolutions(parameters))
    assert [param.shape[0] for param in select_convolutions(parameters)].count(129) == 20
    biased_filters = (
        10 * 320 + 20 * 1088 + 10 * 2080
    )  # layers in which other libraries keep the bias
    weights -= 20 * (1088 + 7 * 160)
    normalized_filters = filters - biased_filters - 20
    assert weights + 2 * normalized_filters + biased_filters + 1000 * 1536 + 1000 == 55_843_464
    biases = [param for param in parameters if param.name.endswith("_bias")]
    assert 2 * len(biases) == len(parameters)


def compute_hashed_imbalance(sizes, servers, threshold=BIG_ARRAY):
    """Return the imbalance (max over mean) of the load of MXNet's parameter servers."""
    loads = [0] * servers
    for key, size in enumerate(sizes):
        if size < threshold:
            loads[key * 9973 % servers] += size
        else:
            for index in range(servers):
                loads[index] += round(size * (index + 1) / servers) - round(size * index / servers)
    return max(loads) / statistics.mean(loads)


def compute_home_imbalance(sizes, devices):
    loads = [0] * devices
    for size in sorted(sizes, reverse=True):
        loads[loads.index(min(loads))] += size
    return max(loads) / statistics.mean(loads)


# Share of bytes in big arrays in %; imbalance of 2, 4 and 8 servers with two decimals.
LOADS = [
    ("inception-bn", None, 9.1, (1.91, 1.98, 2.05)),
    ("resnet", 200, 25.5, (1.02, 1.03, 1.06)),
    ("inception-v3", None, 21.6, (1.00, 1.07, 1.13)),
    ("resnet", 50, 64.6, (1.04, 1.05, 1.22)),
    ("vgg", 16, 98.7, (1.01, 1.02, 1.03)),
    ("alexnet", None, 95.2, (1.05, 1.09, 1.10)),
]


@pytest.mark.parametrize(("name", "depth", "share", "imbalance"), LOADS)
def test_sizes_and_order_give_the_known_server_loads(name, depth, share, imbalance):
    sizes = list_elements(name, depth)
    big = sum(size for size in sizes if size >= BIG_ARRAY)
    assert round(100 * big / sum(sizes), 1) == share
    imbalances = [compute_hashed_imbalance(sizes, servers) for servers in (2, 4, 8)]
    assert imbalances == pytest.approx(imbalance, abs=0.0055)


def test_server_load_depends_on_the_order():
    sizes = list_elements("inception-bn")
    biases_last = [*sizes[::2], *sizes[1::2]]
    assert compute_hashed_imbalance(biases_last, 2) < 1.5 < compute_hashed_imbalance(sizes, 2)


def test_unsplit_big_arrays_overload_a_server_or_device():
    vgg = list_elements("vgg", 16)
    alexnet = list_elements("alexnet")
    unsplit = [round(compute_hashed_imbalance(vgg, servers, math.inf), 1) for servers in (2, 4, 8)]
    assert unsplit == [2.0, 3.3, 6.1]
    assert [round(compute_home_imbalance(vgg, devices), 2) for devices in (2, 4, 8)] == [
        1.49,
        2.97,
        5.94,
    ]
    imbalances = [compute_home_imbalance(alexnet, devices) for devices in (2, 4, 8)]
    assert imbalances == pytest.approx([1.03, 2.06, 4.13], abs=0.0055)


@pytest.mark.parametrize(
    ("name", "depth", "median"),
    [("resnet", 200, 262144), ("inception-v3", None, 147456), ("inception-bn", None, 4096)],
)
def test_medians_match_known_values(name, depth, median):
    assert statistics.median_high(list_elements(name, depth)) == median


def test_counts_small_arrays_and_slices():
    sizes = list_elements("inception-bn")
    assert (len(sizes), sum(4 * size < 4096 for size in sizes)) == (140, 70)
    assert sum(math.ceil(size / 40000) for size in list_elements("resnet", 200)) == 1693


def test_parameters_of_a_resnet_are_in_graph_order():
    parameters = list_parameters("resnet", 50)
    assert [(param.name, param.shape) for param in parameters[:6]] == [
        ("conv0_weight", (64, 3, 7, 7)),
        ("stage1_unit1_conv1_weight", (64, 64, 1, 1)),
        ("stage1_unit1_conv2_weight", (64, 64, 3, 3)),
        ("stage1_unit1_conv3_weight", (256, 64, 1, 1)),
        ("stage1_unit1_sc_weight", (256, 64, 1, 1)),
        ("stage1_unit2_conv1_weight", (64, 256, 1, 1)),
    ]
    assert [param.name for param in parameters[-2:]] == ["fc1_weight", "fc1_bias"]


@pytest.mark.parametrize("depth", [18, 34, 50, 101, 152, 200, 269])
def test_both_versions_of_resnet_have_the_same_shapes(depth):
    first = list_parameters("resnet", depth)
    second = list_parameters("resnet-v1", depth)
    assert [param.shape for param in first] == [param.shape for param in second]
    assert sum(param.name.endswith("_sc_weight") for param in first) == 4
    assert sum(param.name.endswith("_conv1sc_weight") for param in second) == 4


def test_resnext_has_32_groups_of_half_the_width():
    assert map_shapes(list_parameters("resnext", 50))["stage2_unit1_conv2_weight"] == (256, 8, 3, 3)


@pytest.mark.parametrize("name", ["resnet", "resnext", "inception-v3", "inception-v4"])
def test_only_the_classifier_of_normalized_networks_has_a_bias(name):
    names = [param.name for param in list_parameters(name)]
    assert [name for name in names if name.endswith("_bias")] == [names[-1]]


def test_depthwise_convolutions_have_a_single_channel():
    depthwise = [param for param in list_parameters("mobilenet-0.25") if "_dw_" in param.name]
    assert len(depthwise) == 13
    assert {param.shape[1:] for param in depthwise} == {(1, 3, 3)}
    v2_shapes = map_shapes(list_parameters("mobilenetv2"))
    assert v2_shapes["seq-1-block0-depthwise-conv2d_weight"] == (96, 1, 3, 3)


def test_names_of_wide_modules_match_mxnet():
    names = [param.name for param in list_parameters("inception-v3")]
    first = names.index("mixed_9_conv_conv2d_weight")
    assert [name.removeprefix("mixed_9_") for name in names[first : first + 9]] == [
        "conv_conv2d_weight",
        "tower_conv_conv2d_weight",
        "tower_mixed_conv_conv2d_weight",
        "tower_mixed_conv_1_conv2d_weight",
        "tower_1_conv_conv2d_weight",
        "tower_1_conv_1_conv2d_weight",
        "tower_1_mixed_conv_conv2d_weight",
        "tower_1_mixed_conv_1_conv2d_weight",
        "tower_2_conv_conv2d_weight",
    ]


def test_long_windows_alternate_their_direction():
    shapes = map_shapes(list_parameters("inception-v3"))
    layers = ["tower_conv_1", "tower_conv_2", *(f"tower_1_conv_{index}" for index in range(1, 5))]
    windows = [shapes[f"mixed_4_{layer}_conv2d_weight"][2:] for layer in layers]
    assert windows == [(1, 7), (7, 1), (7, 1), (1, 7), (7, 1), (1, 7)]


@pytest.mark.parametrize(
    ("name", "first", "kernels"),
    [
        ("googlenet", "conv_in3a_1x1_weight", "1x1 3x3_reduce 3x3 5x5_reduce 5x5 proj"),
        (
            "inception-bn",
            "conv_3a_1x1_weight",
            "1x1 3x3_reduce 3x3 double_3x3_reduce double_3x3_0 double_3x3_1 proj",
        ),
    ],
)
def test_branches_are_listed_in_the_order_of_joining(name, first, kernels):
    names = [param.name for param in list_parameters(name)]
    start = names.index(first)
    module = first.removesuffix("1x1_weight")
    expected = [
        f"{module}{kernel}_{kind}" for kernel in kernels.split() for kind in ("weight", "bias")
    ]
    assert names[start : start + len(expected)] == expected


def test_names_of_inception_v4_repeat_the_errors_of_mxnet():
    shapes = map_shapes(list_parameters("inception-v4"))
    assert shapes["in1B_conv5_1*7_conv2d_weight"] == (256, 224, 7, 1)
    assert shapes["in2C_conv9_1*3_conv2d_weight"] == (256, 512, 3, 1)
    assert shapes["in_stem_conv8_7*1_conv2d_weight"] == (64, 64, 7, 1)


def test_numbers_unnamed_layers_by_kind():
    assert [param.name for param in list_parameters("lenet")][::2] == [
        "convolution0_weight",
        "convolution1_weight",
        "fullyconnected0_weight",
        "fullyconnected1_weight",
    ]


@pytest.mark.parametrize(
    ("name", "depth", "side", "arrays", "classifier"),
    [
        ("resnet", 20, 28, 24, (10, 64)),
        ("resnet", 164, 28, 168, (10, 256)),
        ("resnet", 18, 32, 23, (10, 512)),
        ("resnext", 20, 32, 24, (10, 64)),
        ("resnext", 164, 32, 168, (10, 256)),
        ("inception-bn", None, 28, 40, (10, 336)),
        ("inception-bn", None, 256, 140, (10, 4 * 1024)),
        ("mobilenet", None, 256, 29, (10, 4 * 1024)),
        ("googlenet", None, 512, 116, (10, 1024)),
        ("vgg", 16, 32, 32, (10, 4096)),
    ],
)
def test_image_size_selects_family_and_classifier(name, depth, side, arrays, classifier):
    parameters = list_parameters(name, depth, (3, side, side), 10)
    assert (len(parameters), parameters[-2].shape, parameters[-1].shape) == (
        arrays,
        classifier,
        (10,),
    )


def test_the_first_convolution_keeps_the_size_of_small_images():
    stems = [list_parameters("resnet", 18, (3, side, side))[0].shape for side in (32, 33)]
    assert stems == [(64, 3, 3, 3), (64, 3, 7, 7)]


def test_the_first_layer_has_the_channels_of_the_image():
    assert list_parameters("alexnet", image_shape=(1, 224, 200))[0].shape == (96, 1, 11, 11)
    assert list_parameters("mlp", image_shape=(3, 5, 7))[0].shape == (128, 105)


@pytest.mark.parametrize("name", NETWORKS)
def test_array_names_are_unique_in_each_network(name):
    parameters = list_parameters(name)
    assert len(map_shapes(parameters)) == len(parameters)
    assert parameters == list_parameters(
        name, NETWORKS[name].num_layers or None, NETWORKS[name].image_shape
    )
    assert all(param.name.endswith(("_weight", "_bias")) for param in parameters)
    assert parameters[-2].shape[0] == parameters[-1].elements == 1000


@pytest.mark.parametrize(
    ("args", "param", "message"),
    [
        (("rsnet",), "network", "no network is called 'rsnet' (did you mean resnet?)"),
        (("?",), "network", "no network is called '?'"),
        (("vgg", 152), "num_layers", "vgg has no depth 152; there are 11, 13, 16, 19"),
        (("resnet", 51), "num_layers", "resnet has no depth 51; there are 18, 34, 50, 101, 152"),
        (("resnet", 2, (3, 28, 28)), "num_layers", "for images up to 28 high has no depth 2;"),
        (("resnext", 166, (3, 32, 32)), "num_layers", "9n+2 from 164 on"),
        (("lenet", 5), "num_layers", "lenet has one depth only; leave num_layers out"),
        (("resnet", 50, (3, 224)), "image_shape", "3,224 is not channels, height and width"),
        (("resnet", 50, (0, 224, 224)), "image_shape", "0,224,224 is not channels, height"),
        (("resnet", 50, (3, 224, 224), 0), "num_classes", "at least 1 class, not 0"),
        (
            ("inception-v3", None, (3, 224, 224)),
            "image_shape",
            "3,224,224 is too small for inception-v3: global_pool has a window of 8x8 and gets "
            "5x5; the next square image that fits is 3,299,299",
        ),
        (
            ("alexnet", None, (1, 224, 7)),
            "image_shape",
            "conv1 has a window of 11x11 and gets 224x7; the next square image that fits is 1,67",
        ),
        (("inception-bn", None, (3, 29, 29)), "image_shape", "that fits is 3,205,205"),
    ],
)
def test_rejects_unknown_networks_and_sizes_in_one_line(args, param, message):
    with pytest.raises(ModelError) as caught:
        list_parameters(*args)
    assert caught.value.param == param
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", NETWORKS)
def test_an_error_names_the_smallest_image_that_fits(name):
    try:
        list_parameters(name, image_shape=(2, 1, 1))
    except ModelError as error:
        shape = tuple(int(side) for side in str(error).split()[-1].split(","))
        assert list_parameters(name, image_shape=shape)
        with pytest.raises(ModelError, match="too small"):
            list_parameters(name, image_shape=(shape[0], shape[1] - 1, shape[2] - 1))
    else:
        assert name in ("resnet", "resnet-v1", "resnext", "mobilenetv2", "mlp")


@given(depth=st.integers(-20, 400))
def test_small_depths_are_6n_plus_2_and_from_164_on_9n_plus_2(depth):
    by_six = depth in {6 * n + 2 for n in range(1, 27)}
    by_nine = depth in {9 * n + 2 for n in range(18, 100)}
    assert is_small_depth(depth) == (by_six or by_nine)


@given(
    size=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    kernel=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    pad=st.tuples(st.integers(0, 4), st.integers(0, 4)),
    stride=st.integers(1, 4),
)
def test_counts_the_positions_of_a_window(size, kernel, pad, stride):
    positions = tuple(
        len(range(-padding, length + padding - window + 1, stride))
        for length, window, padding in zip(size, kernel, pad, strict=True)
    )
    graph = ParameterCollector()
    if 0 in positions:
        with pytest.raises(TooSmallError, match="here has a window of"):
            graph.conv(MapShape(3, *size), 5, kernel, stride=stride, pad=pad, name="here")
    else:
        assert graph.conv(MapShape(3, *size), 5, kernel, stride=stride, pad=pad) == MapShape(
            5, *positions
        )
        assert graph.parameters == [Parameter("convolution0_weight", (5, 3, *kernel))]


@given(
    size=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    half=st.tuples(st.integers(0, 4), st.integers(0, 4)),
)
def test_padding_of_odd_kernels_keeps_height_and_width(size, half):
    kernel = 2 * half[0] + 1, 2 * half[1] + 1
    assert (
        ParameterCollector()
        .conv(MapShape(3, *size), 5, kernel, pad=compute_same_padding(kernel))
        .shape[1:]
        == size
    )


def test_rejects_joining_maps_of_different_sizes(messages):
    assert concat_shapes(MapShape(2, 5, 5), MapShape(3, 5, 5)) == MapShape(5, 5, 5)
    with messages.raises(ValueError):
        concat_shapes(MapShape(2, 5, 5), MapShape(3, 4, 5))
    assert require_equal_shapes(MapShape(2, 5, 5), MapShape(2, 5, 5)) == MapShape(2, 5, 5)
    with messages.raises(ValueError):
        require_equal_shapes(MapShape(2, 5, 5), MapShape(3, 5, 5))
