"""Images whose pixels have classes: the same masks whatever part of them a rank asks for."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn import functional

from spbench_core.layout.tiles import Box, Grid
from spbench_core.models.parts import Map
from spbench_parallel.errors import CannotRunError
from spbench_parallel.images.masks import MaskedFolder
from spbench_parallel.images.sources import open_images
from spbench_parallel.images.synthetic import PatternImages

SHAPE = Map(3, 45, 62)
WHOLE = Box((0, 45), (0, 62))
BATCH = 3
CLASSES = 4


def opened(app, datapath=None, **words):
    words = {
        "image": SHAPE,
        "num_classes": CLASSES,
        "batch": BATCH,
        "replicas": 1,
        "seed": 7,
    } | words
    return open_images(app, masked=True, datapath=datapath and str(datapath), **words)


def saved(file, values):
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(values).save(file)


@pytest.fixture
def scans(tmp_path):
    """Images of several sizes, and masks of 8 and 16 bits; one has twice its image's size."""
    numbers = np.random.default_rng(3)
    for name, size, factor, dtype in (
        ("a.png", (45, 62), 1, np.uint8),
        ("deep/b.jpg", (50, 70), 1, np.uint16),
        ("c.tif", (20, 33), 2, np.uint8),
    ):
        saved(tmp_path / "images" / name, numbers.integers(0, 256, (*size, 3), dtype=np.uint8))
        mask = numbers.integers(0, CLASSES, [factor * side for side in size]).astype(dtype)
        saved((tmp_path / "masks" / name).with_suffix(".png"), mask)
    return tmp_path


@pytest.fixture
def sources(scans):
    return {
        "synthetic": lambda **words: opened("synthetic", **words),
        "patterns": lambda **words: opened("patterns", **words),
        "medical": lambda **words: opened("medical", scans, **words),
    }


apps = pytest.mark.parametrize("app", ["synthetic", "patterns", "medical"])


@apps
@pytest.mark.parametrize("workers", [0, 2])
def test_tiles_of_masks_and_images_are_those_of_the_whole(sources, app, workers):
    images = sources[app](num_workers=workers)
    whole = images.targets(0, (0, BATCH), WHOLE)
    pixels = images.pixels(0, (0, BATCH), WHOLE)
    assert (whole.shape, whole.dtype) == ((BATCH, 45, 62), torch.int64)
    assert 0 <= int(whole.min()) < int(whole.max()) < CLASSES
    for grid in (Grid(2, 2), Grid(5, 1), Grid(45, 1)):
        for tile in range(grid.size):
            box = grid.tile(tile, 45, 62)
            cut = slice(1, 3), slice(*box.rows), slice(*box.cols)
            assert torch.equal(images.targets(0, (1, 3), box), whole[cut])
            assert torch.equal(images.pixels(0, (1, 3), box), pixels[cut[0], :, cut[1], cut[2]])
    assert images.targets(0, (0, 2), Box((5, 5), (0, 62))).shape == (2, 0, 62)
    images.close()


@apps
def test_a_step_asked_for_again_has_the_same_masks_and_another_has_not(sources, app):
    images = sources[app](batch=1)
    seen = []
    for step in (0, 1, 0):
        images.set_step(step)
        seen.append(images.targets(0, (0, 1), WHOLE))
    assert torch.equal(seen[0], seen[2])
    assert not torch.equal(seen[0], seen[1])


def test_synthetic_masks_have_every_class_as_often():
    masks = opened("synthetic").targets(0, (0, BATCH), WHOLE)
    shares = torch.bincount(masks.flatten(), minlength=CLASSES) / masks.numel()
    assert (shares - 1 / CLASSES).abs().max() < 0.02


def test_each_side_of_a_patterns_line_is_of_one_class_and_shows_its_wave():
    images = opened("patterns", batch=40, num_classes=10)
    masks = images.targets(0, (0, 40), WHOLE)
    parted = [mask for mask in masks if len(mask.unique()) == 2]
    assert all(len(mask.unique()) <= 2 for mask in masks)
    assert len(parted) > 20
    # Along a row, or a column, the class changes once at most.
    for mask in parted:
        assert max(int((mask.diff(dim=axis) != 0).sum(axis).max()) for axis in (0, 1)) == 1
    plain = PatternImages(SHAPE, 10, seed=7).noise(0, (0, 40), WHOLE)
    waves = images.pixels(0, (0, 40), WHOLE) - 1.5 * plain
    assert 0.9 < float(waves.square().mean().sqrt()) < 1.1


def test_a_mask_is_resized_as_torch_does_with_nearest_exact(scans):
    images = opened("medical", scans)
    masks = [np.asarray(Image.open(file)) for file in sorted((scans / "masks").rglob("*.png"))]
    wanted = [
        functional.interpolate(
            torch.from_numpy(mask.astype(np.float32))[None, None], (45, 62), mode="nearest-exact"
        )[0, 0].long()
        for mask in masks
    ]
    found = images.targets(0, (0, BATCH), WHOLE)
    assert all(any(torch.equal(one, mask) for mask in wanted) for one in found)
    assert len({one.numpy().tobytes() for one in found}) == BATCH


def test_what_is_missing_is_told_by_its_path(scans):
    (scans / "masks" / "deep" / "b.png").unlink()
    with pytest.raises(CannotRunError, match=r"deep/b.jpg has no mask .*masks/deep/b.png"):
        opened("medical", scans)
    (scans / "masks").rename(scans / "other")
    with pytest.raises(CannotRunError, match=r"there is no folder .*masks: set datapath"):
        opened("medical", scans)


def test_a_mask_of_more_classes_or_of_colours_is_told(scans):
    images = opened("medical", scans, num_classes=3)
    with pytest.raises(CannotRunError, match=r"has the class 3, and the network has 3, from 0"):
        images.targets(0, (0, BATCH), WHOLE)
    for file in (scans / "masks").rglob("*.png"):
        saved(file, np.zeros((9, 9, 3), np.uint8))
    with pytest.raises(CannotRunError, match="a mask has a number a pixel, and this one is RGB"):
        opened("medical", scans).targets(0, (0, BATCH), WHOLE)


def test_the_next_steps_masks_are_read_meanwhile(scans, monkeypatch):
    read = []
    whole = MaskedFolder.target

    def noted(self, number, box):
        read.append(number)
        return whole(self, number, box)

    monkeypatch.setattr(MaskedFolder, "target", noted)
    images = opened("medical", scans, batch=1, num_workers=1)
    first = images.targets(0, (0, 1), WHOLE)
    images.set_step(1)
    images.targets(0, (0, 1), WHOLE)
    images.close()
    assert len(read) >= 2
    assert len(set(read[:2])) == 2  # this step's, and the next one's before it was asked for
    again = opened("medical", scans, batch=1)
    assert torch.equal(again.targets(0, (0, 1), WHOLE), first)


def test_a_class_below_0_is_told(scans):
    for file in (scans / "masks").rglob("*.png"):
        file.unlink()
        mask = np.full((9, 9), -1, np.int32)
        Image.fromarray(mask).save(file.with_suffix(".tif"))
    with pytest.raises(CannotRunError, match="has the class -1, and the network has 4, from 0"):
        opened("medical", scans).targets(0, (0, BATCH), WHOLE)


def test_cifar_has_no_masks(tmp_path):
    with pytest.raises(CannotRunError, match="app cifar has no masks"):
        opened("cifar", tmp_path)
