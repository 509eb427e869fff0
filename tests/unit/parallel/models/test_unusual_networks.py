"""Rejections of networks name the true cause, the user's line and a remedy."""

import sys

import pytest

from spbench_core.layout.stages import build_layout
from spbench_core.layout.tiles import Grid
from spbench_core.models.parts import MapShape
from spbench_parallel.errors import CannotRunError
from spbench_parallel.models.imported.layouts import StepSettings, check_layout
from spbench_parallel.models.imported.model import import_network

IMAGE = MapShape(3, 24, 36)
LIBRARY = """
from torch import nn
from torch.nn import functional


class Checked(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Conv2d(3, 4, 3, padding=1), Padded())


class Padded(nn.Module):
    def forward(self, maps):
        if maps.shape[-1] % 8 != 0:
            maps = functional.pad(maps, (0, 8 - maps.shape[-1] % 8))
        return maps


class ValueClipper(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Conv2d(3, 4, 3, padding=1), Clipped())


class Clipped(nn.Module):
    def forward(self, maps):
        if maps.max() > 10:
            maps = maps.clamp(max=10)
        return maps


class OfSize(nn.Sequential):
    def forward(self, image):
        if image.shape[-2] % 32:
            raise RuntimeError(f"wrong height {image.shape[-2]}, a multiple of 32 is expected")
        return functional.pad(image, (0, 0, 0, 0, 0, 1))


class Normalised(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Conv2d(3, 4, 3, padding=1), Norm())


class Norm(nn.BatchNorm2d):
    def __init__(self):
        super().__init__(4)

    def forward(self, maps):
        return functional.batch_norm(
            maps, self.running_mean, self.running_var, self.weight, self.bias, self.training
        )
"""


@pytest.fixture(autouse=True)
def library(tmp_path, monkeypatch):
    """Install a library of networks like pip does."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "library_of_networks.py").write_text(LIBRARY)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "library_of_networks", raising=False)
    yield
    sys.modules.pop("library_of_networks", None)


def import_unusual_network(name, image=IMAGE, **arguments):
    return import_network(f"support.networks.unusual_networks:{name}", arguments, image, 0)


LINE = r"unusual_networks.py:\d+: "
LIBRARY_LINE = r"\(.*site-packages/library_of_networks.py:\d+\): "


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        (
            "Rows",
            {},
            LINE + "conv: Conv1d is of sequences or volumes.*take a network of 2-D",
        ),
        ("Volumes", {}, LINE + r"stem.1: BatchNorm3d is of sequences or volumes"),
        (
            "Channels",
            {"channels": 1},
            LINE + "conv: it takes 1 channels, and images have 3",
        ),
        (
            "Channels",
            {"channels": 4},
            LINE + "conv: it takes 4 channels, and images have 3",
        ),
        ("Channels", {"channels": 1, "in_function": True}, LINE + "conv2d: it takes 1 channels"),
        (
            "FixedImageSize",
            {},
            "it cannot take images of 24x36 .*; take another image_size, such as 64$",
        ),
        (
            "WrongHeadSize",
            {},
            "it cannot take .*; it took none of 32x32 to 512x512 that were tried",
        ),
        ("MaskNetwork", {}, "it takes mask beside images; give mask a default"),
        (
            "ModeDependent",
            {},
            LINE + "mul: .* in training than in evaluation, .* self.training$",
        ),
        (
            "ModeDependent",
            {"variant": "auxiliary"},
            "in training than in .*; leave out auxiliary outputs",
        ),
        (
            "LibraryEncoder",
            {"inner": "ValueClipper"},
            LINE + "encoder.1 " + LIBRARY_LINE + r"the forward pass cannot be traced, as "
            r"`if maps.max\(\) > 10:` asks for .*give encoder.1 a forward of your own without it",
        ),
        (
            "LibraryEncoder",
            {"inner": "OfSize"},
            LINE + "encoder " + LIBRARY_LINE + r"it cannot take images of 24x36 \(RuntimeError: "
            "wrong height 24, a multiple of 32 is expected.*; take another image_size, such as 32$",
        ),
        (
            "fail_to_import",
            {},
            r"Could not import .* \(caused by RuntimeError: operator torchvision",
        ),
        ("fail_to_import", {}, "compiled part of torchvision does not load over torch"),
        (
            "fail_while_handling",
            {},
            r"is not there \(caused by ImportError: libcudart.so.12: cannot",
        ),
    ],
)
def test_names_the_cause_the_line_and_a_remedy(name, arguments, expected):
    with pytest.raises(CannotRunError, match=expected) as caught:
        import_unusual_network(name, **arguments)
    assert "\n" not in str(caught.value)


def test_imports_a_network_with_a_replaced_forward():
    with pytest.raises(CannotRunError, match=r"give encoder\.1 a forward of your own"):
        import_unusual_network("LibraryEncoder", inner="ValueClipper")
    assert import_unusual_network("ReplacedForward", inner="ValueClipper").classes == 5


def test_arguments_keep_their_defaults():
    model = import_unusual_network("Optional")
    assert [node.op for node in model.network.graph.nodes].count("placeholder") == 1
    assert "2.0" in str(model.network.graph)


def test_a_library_can_use_the_size_of_images():
    assert import_unusual_network("LibraryEncoder", inner="Checked").classes == 5


def test_names_the_line_that_calls_a_library():
    model = import_unusual_network("LibraryEncoder", inner="Normalised")
    expected = LINE + "encoder.1 " + LIBRARY_LINE + "batch_norm mixes the images of a batch"
    with pytest.raises(CannotRunError, match=expected):
        check_layout(model, build_layout(1, [], members=2), None, StepSettings())


@pytest.mark.parametrize(
    ("grid", "expected"),
    [
        (Grid(1, 2), "has 24x1 pixels, too few .* at any image_size; .*tiles in rows alone"),
        (Grid(2, 1), None),
    ],
)
def test_rejects_tiles_along_a_side_of_fixed_length(grid, expected):
    arguments = import_unusual_network("Strips"), build_layout(1, [grid]), None, StepSettings()
    if expected is None:
        check_layout(*arguments)
        return
    with pytest.raises(CannotRunError, match=expected):
        check_layout(*arguments)


def test_suggests_a_larger_image_if_it_helps():
    arguments = (
        import_unusual_network("FixedImageSize", MapShape(3, 64, 64)),
        build_layout(1, [Grid(1, 9)]),
        None,
        StepSettings(),
    )
    with pytest.raises(CannotRunError, match="too few for a grid of 1x9; take a larger image_size"):
        check_layout(*arguments)
