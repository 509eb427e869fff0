import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spbench_core.models.compose import add_maps, concat_maps
from spbench_core.models.parts import Map, ModelError
from spbench_core.networks.graph import NetworkGraph, Parameter, TooSmallError, same_padding
from spbench_core.networks.registry import NETWORKS, list_parameters, sum_megabytes
from spbench_core.networks.resnet import is_small_depth

BIG = 1_000_000
"""From this many elements on MXNet's servers share an array."""


def elements(*args, **kwargs):
    return [param.elements for param in list_parameters(*args, **kwargs)]


def convolutions(params):
    return [param for param in params if len(param.shape) == 4]


def shapes(params):
    return {param.name: param.shape for param in params}


@pytest.mark.parametrize(
    ("name", "depth", "image", "arrays", "megabytes"),
    [
        ("resnet", 200, (3, 224, 224), 205, "257.991328"),
        ("inception-v3", None, (3, 299, 299), 96, "95.200544"),
        ("resnet", 50, (3, 224, 224), 55, "102.015648"),
    ],
)
def test_lists_that_mxnet_published_come_out_to_the_byte(name, depth, image, arrays, megabytes):
    found = list_parameters(name, depth, image)
    assert (len(found), f"{sum_megabytes(found):.6f}") == (arrays, megabytes)


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
def test_networks_without_normalization_have_the_published_number_of_parameters(
    name, depth, published
):
    assert sum(elements(name, depth)) == published


# What other libraries publish counts gamma and beta of each convolution's normalization too.
# MXNet has one convolution more where noted: (filters, weights).
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


@pytest.mark.parametrize(("name", "depth", "published", "more"), PUBLISHED)
def test_normalized_networks_have_the_published_number_of_parameters(name, depth, published, more):
    found = list_parameters(name, depth)
    filters = sum(param.shape[0] for param in convolutions(found)) - more[0]
    assert sum(param.elements for param in found) - more[1] + 2 * filters == published


def test_inception_v4_has_the_published_number_and_the_wide_classifier_of_mxnet():
    found = list_parameters("inception-v4")
    assert found[-2] == Parameter("fc1_weight", (1000, 13824))
    filters = sum(param.shape[0] for param in convolutions(found))
    weights = sum(param.elements for param in convolutions(found))
    assert weights + 2 * filters + 1000 * 1536 + 1000 == 42_679_816


def test_inception_resnet_v2_has_the_published_number_but_for_129_filters_and_biases():
    found = list_parameters("inception-resnet-v2")
    filters = sum(param.shape[0] for param in convolutions(found))
    weights = sum(param.elements for param in convolutions(found))
    assert [param.shape[0] for param in convolutions(found)].count(129) == 20
    added = 10 * 320 + 20 * 1088 + 10 * 2080  # of these layers others keep the bias
    weights -= 20 * (1088 + 7 * 160)
    normalized = filters - added - 20
    assert weights + 2 * normalized + added + 1000 * 1536 + 1000 == 55_843_464
    biases = [param for param in found if param.name.endswith("_bias")]
    assert 2 * len(biases) == len(found)


def hashed_imbalance(sizes, servers, bound=BIG):
    """The most loaded of MXNet's parameter servers over their mean."""
    load = [0] * servers
    for key, size in enumerate(sizes):
        if size < bound:
            load[key * 9973 % servers] += size
        else:
            for at in range(servers):
                load[at] += round(size * (at + 1) / servers) - round(size * at / servers)
    return max(load) / statistics.mean(load)


def home_imbalance(sizes, devices):
    load = [0] * devices
    for size in sorted(sizes, reverse=True):
        load[load.index(min(load))] += size
    return max(load) / statistics.mean(load)


# Share of bytes in big arrays, in per cent; imbalance of 2, 4 and 8 servers, to two places.
FACTS = [
    ("inception-bn", None, 9.1, (1.91, 1.98, 2.05)),
    ("resnet", 200, 25.5, (1.02, 1.03, 1.06)),
    ("inception-v3", None, 21.6, (1.00, 1.07, 1.13)),
    ("resnet", 50, 64.6, (1.04, 1.05, 1.22)),
    ("vgg", 16, 98.7, (1.01, 1.02, 1.03)),
    ("alexnet", None, 95.2, (1.05, 1.09, 1.10)),
]


@pytest.mark.parametrize(("name", "depth", "share", "imbalance"), FACTS)
def test_sizes_and_their_order_give_the_known_load_of_servers(name, depth, share, imbalance):
    sizes = elements(name, depth)
    big = sum(size for size in sizes if size >= BIG)
    assert round(100 * big / sum(sizes), 1) == share
    found = [hashed_imbalance(sizes, servers) for servers in (2, 4, 8)]
    assert found == pytest.approx(imbalance, abs=0.0055)


def test_another_order_gives_another_load():
    sizes = elements("inception-bn")
    biases_last = [*sizes[::2], *sizes[1::2]]
    assert hashed_imbalance(biases_last, 2) < 1.5 < hashed_imbalance(sizes, 2)


def test_big_arrays_that_are_not_split_overload_a_server_or_a_device():
    vgg = elements("vgg", 16)
    alexnet = elements("alexnet")
    whole = [round(hashed_imbalance(vgg, servers, math.inf), 1) for servers in (2, 4, 8)]
    assert whole == [2.0, 3.3, 6.1]
    assert [round(home_imbalance(vgg, devices), 2) for devices in (2, 4, 8)] == [1.49, 2.97, 5.94]
    homes = [home_imbalance(alexnet, devices) for devices in (2, 4, 8)]
    assert homes == pytest.approx([1.03, 2.06, 4.13], abs=0.0055)


@pytest.mark.parametrize(
    ("name", "depth", "median"),
    [("resnet", 200, 262144), ("inception-v3", None, 147456), ("inception-bn", None, 4096)],
)
def test_medians_are_the_known_ones(name, depth, median):
    assert statistics.median_high(elements(name, depth)) == median


def test_half_of_inception_bn_is_small_and_resnet_200_makes_1693_slices():
    sizes = elements("inception-bn")
    assert (len(sizes), sum(4 * size < 4096 for size in sizes)) == (140, 70)
    assert sum(math.ceil(size / 40000) for size in elements("resnet", 200)) == 1693


def test_names_and_shapes_of_a_residual_network_are_in_graph_order():
    found = list_parameters("resnet", 50)
    assert [(param.name, param.shape) for param in found[:6]] == [
        ("conv0_weight", (64, 3, 7, 7)),
        ("stage1_unit1_conv1_weight", (64, 64, 1, 1)),
        ("stage1_unit1_conv2_weight", (64, 64, 3, 3)),
        ("stage1_unit1_conv3_weight", (256, 64, 1, 1)),
        ("stage1_unit1_sc_weight", (256, 64, 1, 1)),
        ("stage1_unit2_conv1_weight", (64, 256, 1, 1)),
    ]
    assert [param.name for param in found[-2:]] == ["fc1_weight", "fc1_bias"]


@pytest.mark.parametrize("depth", [18, 34, 50, 101, 152, 200, 269])
def test_both_residual_networks_have_the_same_shapes(depth):
    first = list_parameters("resnet", depth)
    second = list_parameters("resnet-v1", depth)
    assert [param.shape for param in first] == [param.shape for param in second]
    assert sum(param.name.endswith("_sc_weight") for param in first) == 4
    assert sum(param.name.endswith("_conv1sc_weight") for param in second) == 4


def test_resnext_has_32_groups_of_half_the_width():
    assert shapes(list_parameters("resnext", 50))["stage2_unit1_conv2_weight"] == (256, 8, 3, 3)


@pytest.mark.parametrize("name", ["resnet", "resnext", "inception-v3", "inception-v4"])
def test_only_the_classifier_of_normalized_networks_has_a_bias(name):
    found = [param.name for param in list_parameters(name)]
    assert [name for name in found if name.endswith("_bias")] == [found[-1]]


def test_depthwise_convolutions_have_one_channel_each():
    depthwise = [p for p in list_parameters("mobilenet-0.25") if "_dw_" in p.name]
    assert len(depthwise) == 13
    assert {param.shape[1:] for param in depthwise} == {(1, 3, 3)}
    widened = shapes(list_parameters("mobilenetv2"))
    assert widened["seq-1-block0-depthwise-conv2d_weight"] == (96, 1, 3, 3)


def test_names_of_wide_modules_are_mxnets():
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


def test_long_windows_lie_and_stand_in_turn():
    found = shapes(list_parameters("inception-v3"))
    layers = ["tower_conv_1", "tower_conv_2", *(f"tower_1_conv_{at}" for at in range(1, 5))]
    windows = [found[f"mixed_4_{layer}_conv2d_weight"][2:] for layer in layers]
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
def test_branches_come_in_the_order_in_which_they_are_joined(name, first, kernels):
    names = [param.name for param in list_parameters(name)]
    at = names.index(first)
    module = first.removesuffix("1x1_weight")
    expected = [
        f"{module}{kernel}_{kind}" for kernel in kernels.split() for kind in ("weight", "bias")
    ]
    assert names[at : at + len(expected)] == expected


def test_names_of_inception_v4_say_what_mxnet_says_even_where_it_is_wrong():
    found = shapes(list_parameters("inception-v4"))
    assert found["in1B_conv5_1*7_conv2d_weight"] == (256, 224, 7, 1)
    assert found["in2C_conv9_1*3_conv2d_weight"] == (256, 512, 3, 1)
    assert found["in_stem_conv8_7*1_conv2d_weight"] == (64, 64, 7, 1)


def test_layers_without_names_are_counted_by_kind():
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
def test_the_image_decides_family_and_classifier(name, depth, side, arrays, classifier):
    found = list_parameters(name, depth, (3, side, side), 10)
    assert (len(found), found[-2].shape, found[-1].shape) == (arrays, classifier, (10,))


def test_small_images_keep_their_size_in_the_first_convolution():
    stems = [list_parameters("resnet", 18, (3, side, side))[0].shape for side in (32, 33)]
    assert stems == [(64, 3, 3, 3), (64, 3, 7, 7)]


def test_channels_of_the_image_reach_the_first_layer():
    assert list_parameters("alexnet", image_shape=(1, 224, 200))[0].shape == (96, 1, 11, 11)
    assert list_parameters("mlp", image_shape=(3, 5, 7))[0].shape == (128, 105)


@pytest.mark.parametrize("name", NETWORKS)
def test_each_network_has_names_of_its_own_for_every_array(name):
    found = list_parameters(name)
    assert len(shapes(found)) == len(found)
    assert found == list_parameters(
        name, NETWORKS[name].num_layers or None, NETWORKS[name].image_shape
    )
    assert all(param.name.endswith(("_weight", "_bias")) for param in found)
    assert found[-2].shape[0] == found[-1].elements == 1000


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
def test_what_does_not_exist_is_refused_in_one_sentence(args, param, message):
    with pytest.raises(ModelError) as caught:
        list_parameters(*args)
    assert caught.value.param == param
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", NETWORKS)
def test_the_image_that_an_error_names_fits_and_one_less_does_not(name):
    try:
        list_parameters(name, image_shape=(2, 1, 1))
    except ModelError as error:
        shape = tuple(int(word) for word in str(error).split()[-1].split(","))
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
def test_windows_are_counted_as_they_are_laid(size, kernel, pad, stride):
    laid = tuple(
        len(range(-border, length + border - window + 1, stride))
        for length, window, border in zip(size, kernel, pad, strict=True)
    )
    graph = NetworkGraph()
    if 0 in laid:
        with pytest.raises(TooSmallError, match="here has a window of"):
            graph.conv(Map(3, *size), 5, kernel, stride=stride, pad=pad, name="here")
    else:
        assert graph.conv(Map(3, *size), 5, kernel, stride=stride, pad=pad) == Map(5, *laid)
        assert graph.parameters == [Parameter("convolution0_weight", (5, 3, *kernel))]


@given(
    size=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    half=st.tuples(st.integers(0, 4), st.integers(0, 4)),
)
def test_padding_of_odd_kernels_keeps_height_and_width(size, half):
    kernel = 2 * half[0] + 1, 2 * half[1] + 1
    assert NetworkGraph().conv(Map(3, *size), 5, kernel, pad=same_padding(kernel)).shape[1:] == size


def test_maps_of_other_sizes_are_not_joined():
    assert concat_maps(Map(2, 5, 5), Map(3, 5, 5)) == Map(5, 5, 5)
    with pytest.raises(ValueError, match="maps of different sizes"):
        concat_maps(Map(2, 5, 5), Map(3, 4, 5))
    assert add_maps(Map(2, 5, 5), Map(2, 5, 5)) == Map(2, 5, 5)
    with pytest.raises(ValueError, match="cannot be added"):
        add_maps(Map(2, 5, 5), Map(3, 5, 5))
