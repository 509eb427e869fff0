"""Images with classes of pixels: masks do not depend on the requested part."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn import functional

from spbench_core.layout.tiles import Box, Grid
from spbench_core.models.parts import MapShape
from spbench_parallel.errors import CannotRunError
from spbench_parallel.images.masks import MaskedFolder
from spbench_parallel.images.sources import open_images
from spbench_parallel.images.synthetic import PatternImages

SHAPE = MapShape(3, 45, 62)
WHOLE = Box((0, 45), (0, 62))
BATCH = 3
CLASSES = 4


def open_source(app, datapath=None, **settings):
    settings = {
        "image": SHAPE,
        "num_classes": CLASSES,
        "batch": BATCH,
        "replicas": 1,
        "seed": 7,
    } | settings
    return open_images(app, masked=True, datapath=datapath and str(datapath), **settings)


def save_image(file, values):
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(values).save(file)


@pytest.fixture
def scans(tmp_path):
    """Create images of several sizes, and masks of 8 and 16 bits.

    One mask has twice the size of its image.
    """
    numbers = np.random.default_rng(3)
    for name, size, factor, dtype in (
        ("a.png", (45, 62), 1, np.uint8),
        ("deep/b.jpg", (50, 70), 1, np.uint16),
        ("c.tif", (20, 33), 2, np.uint8),
    ):
        save_image(tmp_path / "images" / name, numbers.integers(0, 256, (*size, 3), dtype=np.uint8))
        mask = numbers.integers(0, CLASSES, [factor * side for side in size]).astype(dtype)
        save_image((tmp_path / "masks" / name).with_suffix(".png"), mask)
    return tmp_path


@pytest.fixture
def sources(scans):
    return {
        "synthetic": lambda **settings: open_source("synthetic", **settings),
        "patterns": lambda **settings: open_source("patterns", **settings),
        "medical": lambda **settings: open_source("medical", scans, **settings),
    }


apps = pytest.mark.parametrize("app", ["synthetic", "patterns", "medical"])


@apps
@pytest.mark.parametrize("workers", [0, 2])
def test_tiles_equal_parts_of_whole_masks_and_images(sources, app, workers):
    images = sources[app](num_workers=workers)
    complete = images.targets(0, (0, BATCH), WHOLE)
    pixels = images.pixels(0, (0, BATCH), WHOLE)
    assert (complete.shape, complete.dtype) == ((BATCH, 45, 62), torch.int64)
    assert 0 <= int(complete.min()) < int(complete.max()) < CLASSES
    for grid in (Grid(2, 2), Grid(5, 1), Grid(45, 1)):
        for tile in range(grid.size):
            box = grid.tile(tile, 45, 62)
            cut = slice(1, 3), slice(*box.rows), slice(*box.cols)
            assert torch.equal(images.targets(0, (1, 3), box), complete[cut])
            assert torch.equal(images.pixels(0, (1, 3), box), pixels[cut[0], :, cut[1], cut[2]])
    assert images.targets(0, (0, 2), Box((5, 5), (0, 62))).shape == (2, 0, 62)
    images.close()


@apps
def test_a_repeated_step_has_equal_masks_another_differs(sources, app):
    images = sources[app](batch=1)
    masks = []
    for step in (0, 1, 0):
        images.set_step(step)
        masks.append(images.targets(0, (0, 1), WHOLE))
    assert torch.equal(masks[0], masks[2])
    assert not torch.equal(masks[0], masks[1])


def test_synthetic_masks_have_uniform_classes():
    masks = open_source("synthetic").targets(0, (0, BATCH), WHOLE)
    shares = torch.bincount(masks.flatten(), minlength=CLASSES) / masks.numel()
    assert (shares - 1 / CLASSES).abs().max() < 0.02


def test_a_pattern_has_one_class_and_wave_on_each_side():
    images = open_source("patterns", batch=40, num_classes=10)
    masks = images.targets(0, (0, 40), WHOLE)
    divided = [mask for mask in masks if len(mask.unique()) == 2]
    assert all(len(mask.unique()) <= 2 for mask in masks)
    assert len(divided) > 20
    # Along a row, or a column, the class changes once at most.
    for mask in divided:
        assert max(int((mask.diff(dim=axis) != 0).sum(axis).max()) for axis in (0, 1)) == 1
    plain = PatternImages(SHAPE, 10, seed=7).noise(0, (0, 40), WHOLE)
    waves = images.pixels(0, (0, 40), WHOLE) - 1.5 * plain
    assert 0.9 < float(waves.square().mean().sqrt()) < 1.1


def test_a_mask_is_resized_by_nearest_exact(scans):
    images = open_source("medical", scans)
    masks = [np.asarray(Image.open(file)) for file in sorted((scans / "masks").rglob("*.png"))]
    expected = [
        functional.interpolate(
            torch.from_numpy(mask.astype(np.float32))[None, None], (45, 62), mode="nearest-exact"
        )[0, 0].long()
        for mask in masks
    ]
    resized = images.targets(0, (0, BATCH), WHOLE)
    assert all(any(torch.equal(target, mask) for mask in expected) for target in resized)
    assert len({target.numpy().tobytes() for target in resized}) == BATCH


def test_reports_the_path_of_missing_masks(scans, messages):
    (scans / "masks" / "deep" / "b.png").unlink()
    with messages.raises(CannotRunError):
        open_source("medical", scans)
    (scans / "masks").rename(scans / "other")
    with messages.raises(CannotRunError):
        open_source("medical", scans)


def test_reports_too_many_classes_and_coloured_masks(scans, messages):
    images = open_source("medical", scans, num_classes=3)
    with messages.raises(CannotRunError):
        images.targets(0, (0, BATCH), WHOLE)
    for file in (scans / "masks").rglob("*.png"):
        save_image(file, np.zeros((9, 9, 3), np.uint8))
    with messages.raises(CannotRunError):
        open_source("medical", scans).targets(0, (0, BATCH), WHOLE)


def test_reads_the_masks_of_the_next_step_in_advance(scans, monkeypatch):
    read = []
    original = MaskedFolder.target

    def record_target(self, number, box):
        read.append(number)
        return original(self, number, box)

    monkeypatch.setattr(MaskedFolder, "target", record_target)
    images = open_source("medical", scans, batch=1, num_workers=1)
    first = images.targets(0, (0, 1), WHOLE)
    images.set_step(1)
    images.targets(0, (0, 1), WHOLE)
    images.close()
    assert len(read) >= 2
    assert len(set(read[:2])) == 2  # of this step, and of the next one before its request
    reopened = open_source("medical", scans, batch=1)
    assert torch.equal(reopened.targets(0, (0, 1), WHOLE), first)


def test_reports_a_negative_class(scans, messages):
    for file in (scans / "masks").rglob("*.png"):
        file.unlink()
        mask = np.full((9, 9), -1, np.int32)
        Image.fromarray(mask).save(file.with_suffix(".tif"))
    with messages.raises(CannotRunError):
        open_source("medical", scans).targets(0, (0, BATCH), WHOLE)


def test_cifar_has_no_masks(tmp_path, messages):
    with messages.raises(CannotRunError):
        open_source("cifar", tmp_path)
