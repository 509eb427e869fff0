"""Images of the model benchmarks: pixels do not depend on the requested part."""

import io
import pickle
import struct
import tarfile
import threading

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn import functional

from spbench_core.layout.tiles import Box, Grid
from spbench_core.models.parts import MapShape
from spbench_parallel.errors import CannotRunError
from spbench_parallel.images import folder as image_folder
from spbench_parallel.images.sources import open_images

SHAPE = MapShape(3, 45, 62)
WHOLE = Box((0, 45), (0, 62))
GRIDS = [Grid(2, 2), Grid(1, 4), Grid(5, 1), Grid(2, 3), Grid(45, 1)]
BATCH = 3


def open_source(app, datapath=None, **settings):
    settings = {
        "image": SHAPE,
        "num_classes": 10,
        "batch": BATCH,
        "replicas": 2,
        "seed": 7,
    } | settings
    return open_images(app, datapath=datapath and str(datapath), **settings)


def make_cifar_files(count, batches=2, seed=1):
    """Return pixels, labels and number of some batches."""
    numbers = np.random.default_rng(seed)
    return [
        (
            numbers.integers(0, 256, (count, 3072), dtype=np.uint8),
            numbers.integers(0, 10, count).tolist(),
            index,
        )
        for index in range(1, batches + 1)
    ]


def pickle_text(content):
    """Return a text as Python 2 pickles it."""
    return b"U" + bytes([len(content)]) + content


def pickle_like_python_2(data, labels):
    """Return a batch byte for byte like the authors' files.

    Python 3 pickles arrays and texts differently.
    """
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85"
        + pickle_text(b"b")
        + b"\x87R"
        b"(K\x01M" + struct.pack("<H", len(data)) + b"M\x00\x0c\x86"
        b"cnumpy\ndtype\n" + pickle_text(b"u1") + b"K\x00K\x01\x87R"
        b"(K\x03" + pickle_text(b"|") + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
        b"\x89T" + struct.pack("<I", data.nbytes) + data.tobytes() + b"tb"
    )
    numbers = b"](" + b"".join(b"K" + bytes([label]) for label in labels) + b"e"
    label = pickle_text(b"batch_label") + pickle_text(b"training batch 1 of 5")
    items = pickle_text(b"data") + array + pickle_text(b"labels") + numbers + label
    return b"\x80\x02}(" + items + b"u."


def write_pickles(folder, files):
    folder.mkdir(parents=True)
    for data, labels, index in files:
        (folder / f"data_batch_{index}").write_bytes(pickle_like_python_2(data, labels))
    # Code that reads these loads other images.
    (folder / "test_batch").write_bytes(b"not to be read")
    (folder / "batches.meta").write_bytes(b"nor this")


def write_records(folder, files):
    folder.mkdir(parents=True)
    for data, labels, index in files:
        records = np.concatenate([np.array(labels, np.uint8)[:, None], data], axis=1)
        (folder / f"data_batch_{index}.bin").write_bytes(records.tobytes())


@pytest.fixture
def pickles(tmp_path):
    write_pickles(tmp_path / "data" / "cifar-10-batches-py", make_cifar_files(10))
    return tmp_path / "data"


@pytest.fixture
def medical(tmp_path):
    """Create two classes of images in several formats and sizes."""
    numbers = np.random.default_rng(3)
    for name, size in (
        ("benign/b.png", (50, 70, 3)),
        ("benign/a.jpg", (61, 40, 3)),
        ("benign/deeper/c.tif", (45, 62, 3)),
        ("malign/d.ppm", (20, 33, 3)),
        ("malign/e.bmp", (90, 124, 3)),
        ("malign/f.png", (45, 62)),
    ):
        file = tmp_path / "scans" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(numbers.integers(0, 256, size, dtype=np.uint8)).save(file)
    (tmp_path / "scans" / "benign" / "notes.txt").write_text("no image")
    (tmp_path / "scans" / ".hidden").mkdir()
    (tmp_path / "scans" / "empty").mkdir()
    return tmp_path / "scans"


@pytest.fixture
def sources(pickles, medical):
    return {
        "synthetic": lambda **settings: open_source("synthetic", **settings),
        "patterns": lambda **settings: open_source("patterns", **settings),
        "cifar": lambda **settings: open_source("cifar", pickles, **settings),
        "medical": lambda **settings: open_source("medical", medical, **settings),
    }


apps = pytest.mark.parametrize("app", ["synthetic", "patterns", "cifar", "medical"])


# Every app


@apps
@pytest.mark.parametrize("workers", [0, 2])
def test_tiles_and_shares_equal_parts_of_whole_images(sources, app, workers):
    complete = sources[app]().pixels(1, (0, BATCH), WHOLE)
    assert complete.shape == (BATCH, 3, 45, 62)
    images = sources[app](num_workers=workers)
    for grid in GRIDS:
        for tile in range(grid.size):
            box = grid.tile(tile, 45, 62)
            for share in ((0, 2), (2, 3), (1, 1)):
                pixels = images.pixels(1, share, box)
                expected = complete[slice(*share), :, slice(*box.rows), slice(*box.cols)]
                assert torch.equal(pixels, expected)
    images.close()


@apps
def test_a_repeated_step_is_equal_and_another_differs(sources, app):
    images = sources[app](batch=1)
    batches = []
    for step in (0, 1, 2, 0, 2):
        images.set_step(step)
        batches.append((images.pixels(0, (0, 1), WHOLE), images.targets(0, (0, 1), WHOLE)))
    for first, repeated in ((0, 3), (2, 4)):
        assert all(
            torch.equal(a, b) for a, b in zip(batches[first], batches[repeated], strict=True)
        )
    assert not torch.equal(batches[0][0], batches[1][0])
    assert not torch.equal(batches[1][0], batches[2][0])


@apps
def test_replicas_and_seeds_have_different_images(sources, app):
    images = sources[app]()
    first, second = (images.pixels(replica, (0, BATCH), WHOLE) for replica in (0, 1))
    pairs = [(a, b) for a in first for b in second]
    assert not any(torch.equal(a, b) for a, b in pairs)
    assert not torch.equal(first, sources[app](seed=8).pixels(0, (0, BATCH), WHOLE))


@apps
@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_pixels_have_the_format_of_the_model(sources, app, dtype):
    pixels = sources[app](dtype=dtype).pixels(0, (0, BATCH), WHOLE)
    plain = sources[app]().pixels(0, (0, BATCH), WHOLE)
    assert pixels.dtype == dtype
    assert torch.equal(pixels, plain.to(dtype))


@apps
def test_a_tile_without_pixels_is_empty(sources, app):
    pixels = sources[app]().pixels(0, (0, 2), Box((5, 5), (0, 62)))
    assert pixels.shape == (2, 3, 0, 62)
    assert sources[app]().pixels(0, (1, 1), WHOLE).shape == (0, 3, 45, 62)


@apps
def test_classes_are_whole_numbers_in_range(sources, app):
    pixels = sources[app]().targets(0, (0, BATCH), WHOLE)
    assert pixels.dtype == torch.int64
    assert pixels.shape == (BATCH,)
    assert 0 <= int(pixels.min()) <= int(pixels.max()) < 10


# Synthetic


def test_synthetic_pixels_are_uncorrelated_white_noise():
    images = open_source("synthetic", image=MapShape(3, 256, 256))
    pixels = images.pixels(0, (0, 2), Box((0, 256), (0, 256)))
    assert images.count is None
    assert abs(float(pixels.mean())) < 0.01
    assert abs(float(pixels.var()) - 1) < 0.01
    planes = pixels.flatten(0, 1).flatten(1)
    neighbours = torch.stack([planes[0], planes[0].roll(1), planes[0].roll(256), *planes[1:]])
    correlations = torch.corrcoef(neighbours).fill_diagonal_(0)
    assert float(correlations.abs().max()) < 0.02
    # White noise: no row, column or wave dominates.
    power = torch.fft.fft2(pixels[0, 0]).abs() ** 2 / planes.shape[1]
    assert float(power.max()) < 20


# Patterns


def compute_spectra(app, seed):
    """Return the strength of each wave in each channel of images, and the classes."""
    images = open_source(app, seed=seed, image=MapShape(3, 32, 32), num_classes=4, batch=400)
    pixels = images.pixels(0, (0, 400), Box((0, 32), (0, 32)))
    return torch.fft.rfft2(pixels).abs().flatten(1), images.targets(0, (0, 400), WHOLE)


@pytest.mark.parametrize(
    ("app", "lowest", "highest"), [("patterns", 0.9, 1.0), ("synthetic", 0.1, 0.4)]
)
def test_patterns_of_one_seed_predict_classes_of_another(app, lowest, highest):
    training, labels = compute_spectra(app, 1)
    means = torch.stack([training[labels == label].mean(0) for label in range(4)])
    test_spectra, expected = compute_spectra(app, 2)
    predicted = torch.cdist(test_spectra, means).argmin(1)
    assert lowest < float((predicted == expected).double().mean()) <= highest


def test_synthetic_classes_are_even():
    images = open_source("synthetic", num_classes=4)
    counts = torch.bincount(images.targets(0, (0, 2000), WHOLE), minlength=4)
    assert 420 < int(counts.min()) <= int(counts.max()) < 580


# CIFAR


def test_cifar_is_resized_like_by_torch(pickles):
    files = make_cifar_files(10)
    images = open_source("cifar", pickles)
    assert images.count == 20
    data = np.concatenate([data for data, _, _ in files]).reshape(-1, 3, 32, 32)
    labels = [label for _, batch_labels, _ in files for label in batch_labels]
    resized = functional.interpolate(torch.from_numpy(data).double(), (45, 62), mode="bilinear")
    expected = (resized / 127.5 - 1).float()
    for step in range(3):
        images.set_step(step)
        for replica in range(2):
            pixels = images.pixels(replica, (0, BATCH), WHOLE)
            classes = images.targets(replica, (0, BATCH), WHOLE).tolist()
            for image, label in zip(pixels, classes, strict=True):
                errors = (expected - image).abs().amax(dim=(1, 2, 3))
                assert float(errors.min()) < 1e-5
                assert labels[int(errors.argmin())] == label


def test_cifar_is_equal_in_every_form(pickles, tmp_path):
    plain = open_source("cifar", pickles).pixels(0, (0, BATCH), WHOLE)
    write_records(tmp_path / "other" / "cifar-10-batches-bin", make_cifar_files(10))
    packed = {}
    for name, folder in (("python", pickles), ("binary", tmp_path / "other")):
        packed[name] = tmp_path / name / f"cifar-10-{name}.tar.gz"
        packed[name].parent.mkdir()
        with tarfile.open(packed[name], "w:gz") as archive:
            archive.add(next(folder.iterdir()), arcname=next(folder.iterdir()).name)
    paths = [
        pickles / "cifar-10-batches-py",
        tmp_path / "other",
        tmp_path / "other" / "cifar-10-batches-bin",
        *packed.values(),
        *(archive.parent for archive in packed.values()),
    ]
    for path in paths:
        assert torch.equal(open_source("cifar", path).pixels(0, (0, BATCH), WHOLE), plain)


def test_rejects_a_pickle_that_would_run_code(tmp_path, messages):
    ran = tmp_path / "ran"

    class Evil:
        def __reduce__(self):
            return (open, (str(ran), "w"))

    (tmp_path / "data_batch_1").write_bytes(pickle.dumps({b"data": Evil(), b"labels": []}))
    with messages.raises(CannotRunError):
        open_source("cifar", tmp_path)
    assert not ran.exists()


def test_reads_an_archive_without_unpacking(tmp_path):
    (data, labels, _), *_ = make_cifar_files(6)
    content = pickle.dumps({"data": data, "labels": labels}, protocol=2)
    path = tmp_path / "inner" / "cifar-10-python.tar.gz"
    path.parent.mkdir()
    with tarfile.open(path, "w:gz") as archive:
        member = tarfile.TarInfo("../data_batch_1")
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
    assert open_source("cifar", path).count == 6
    assert [file.name for file in tmp_path.rglob("*")] == ["inner", path.name]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "no pickle"),
        (pickle.dumps([1]), "it holds a list"),
        (pickle.dumps({"data": np.zeros((1, 3072), np.uint8)}), "it has no labels"),
        (pickle.dumps({"data": np.zeros((1, 3072)), "labels": [1]}, 2), "no array of uint8"),
        (pickle.dumps({"data": np.zeros((1, 9), np.uint8), "labels": [1]}, 2), r"\(1, 9\)"),
        (pickle.dumps({"data": np.zeros((1, 3072), np.uint8), "labels": [10]}, 2), "below 10"),
        (pickle.dumps({"data": np.zeros((9, 3072), np.uint8)}, 2)[:500], "truncated"),
    ],
)
def test_reports_a_damaged_batch(tmp_path, content, expected):
    (tmp_path / "data_batch_1").write_bytes(content)
    with pytest.raises(CannotRunError, match=rf"{tmp_path}/data_batch_1 is no batch.*{expected}"):
        open_source("cifar", tmp_path)


def test_reports_truncated_records(tmp_path, messages):
    (tmp_path / "data_batch_1.bin").write_bytes(bytes(3073 * 4 - 1))
    with messages.raises(CannotRunError):
        open_source("cifar", tmp_path)


def test_reports_a_missing_or_unsuitable_cifar(tmp_path, pickles, messages):
    with pytest.raises(CannotRunError, match=rf"there is no {tmp_path}/none: .* not downloaded"):
        open_source("cifar", tmp_path / "none")
    with messages.raises(CannotRunError):
        open_source("cifar", tmp_path)
    archive = tmp_path / "some.tar.gz"
    archive.write_bytes(b"no archive")
    with pytest.raises(CannotRunError, match=rf"{archive} cannot be read"):
        open_source("cifar", archive)
    with tarfile.open(archive, "w:gz") as file:
        file.add(pickles, arcname="cifar")
    archive.write_bytes(archive.read_bytes()[:-2000])
    with pytest.raises(CannotRunError, match=rf"{archive} cannot be read"):
        open_source("cifar", archive)
    with messages.raises(CannotRunError):
        open_source("cifar", pickles, num_classes=4)


# Folders of images


def test_classes_are_folders_by_name(medical):
    images = open_source("medical", medical, num_classes=2)
    assert images.count == 6
    # f.png has the size of the model, so its pixels identify it.
    grey = np.asarray(Image.open(medical / "malign" / "f.png"))
    expected = torch.from_numpy(grey / np.float32(127.5) - np.float32(1)).expand(3, -1, -1)
    labels = {
        label
        for replica in range(2)
        for image, label in zip(
            images.pixels(replica, (0, BATCH), WHOLE),
            images.targets(replica, (0, BATCH), WHOLE).tolist(),
            strict=True,
        )
        if torch.equal(image, expected)
    }
    assert labels == {1}


def test_an_image_is_resized_like_by_torch(tmp_path):
    for size in ((90, 124), (20, 33), (45, 62)):
        pixels = np.random.default_rng(5).integers(0, 256, (*size, 3), dtype=np.uint8)
        path = tmp_path / f"{size[0]}" / "only" / "a.png"
        path.parent.mkdir(parents=True)
        Image.fromarray(pixels).save(path)
        images = open_source("medical", path.parents[1], batch=1, replicas=1)
        data = torch.from_numpy(pixels).permute(2, 0, 1)[None].double()
        expected = functional.interpolate(data, (45, 62), mode="bilinear") / 127.5 - 1
        assert torch.allclose(images.pixels(0, (0, 1), WHOLE).double(), expected, atol=1e-5)


@pytest.mark.parametrize("name", ["a.tif", "a.png", "a.pgm"])
def test_keeps_sixteen_bits(tmp_path, name):
    grey = np.linspace(0, 65535, 45 * 62).astype(np.uint16).reshape(45, 62)
    (tmp_path / "one").mkdir()
    Image.fromarray(grey).save(tmp_path / "one" / name)
    pixels = open_source("medical", tmp_path, batch=1, replicas=1).pixels(0, (0, 1), WHOLE)
    expected = torch.from_numpy(grey.astype(np.float32) / 32767.5 - 1)
    assert torch.allclose(pixels, expected.expand(1, 3, -1, -1), atol=1e-6)


@pytest.mark.parametrize("mode", ["P", "RGBA", "LA", "1", "CMYK"])
def test_converts_images_of_other_colours_to_rgb(tmp_path, mode):
    (tmp_path / "one").mkdir()
    suffix = ".tif" if mode == "CMYK" else ".png"
    Image.new("RGB", (62, 45), (255, 255, 255)).convert(mode).save(tmp_path / "one" / f"a{suffix}")
    pixels = open_source("medical", tmp_path, batch=1, replicas=1).pixels(0, (0, 1), WHOLE)
    assert torch.equal(pixels, torch.ones(1, 3, 45, 62))


def test_reports_a_missing_or_empty_folder(tmp_path):
    with pytest.raises(CannotRunError, match=rf"there is no folder {tmp_path}/none: set datapath"):
        open_source("medical", tmp_path / "none")
    with pytest.raises(CannotRunError, match=rf"{tmp_path} holds no images: put them in a folder"):
        open_source("medical", tmp_path)
    Image.new("L", (3, 3)).save(tmp_path / "a.png")  # without a class
    with pytest.raises(CannotRunError, match=rf"{tmp_path} holds no images"):
        open_source("medical", tmp_path)


def test_reports_too_many_classes_and_too_few_images(medical, messages):
    with messages.raises(CannotRunError):
        open_source("medical", medical, num_classes=1)
    with messages.raises(CannotRunError):
        open_source("medical", medical, batch=4)
    with messages.raises(CannotRunError):
        open_source("medical")
    with messages.raises(ValueError):
        open_source("cat", medical)


@pytest.mark.parametrize("workers", [0, 2])
def test_reports_the_path_of_an_unreadable_image(tmp_path, workers):
    file = tmp_path / "one" / "a.png"
    file.parent.mkdir()
    Image.new("RGB", (300, 300), (1, 2, 3)).save(file)
    contents = file.read_bytes()
    for content in (b"", b"text", contents[: len(contents) // 2]):
        file.write_bytes(content)
        images = open_source("medical", tmp_path, batch=1, replicas=1, num_workers=workers)
        with pytest.raises(CannotRunError, match=rf"{file} cannot be read as an image"):
            images.pixels(0, (0, 1), WHOLE)
        images.close()


# The order of images


def test_each_pass_takes_each_image_once_in_another_order(medical):
    images = open_source("medical", medical, batch=1, replicas=2)
    passes = []
    for first in (0, 3, 6, 9):
        sums = []
        for step in range(first, first + 3):
            images.set_step(step)
            sums += [images.pixels(replica, (0, 1), WHOLE).sum().item() for replica in (0, 1)]
        passes.append(sums)
    assert all(len(set(sums)) == 6 and set(sums) == set(passes[0]) for sums in passes)
    assert len({tuple(sums) for sums in passes}) > 1


def test_skips_images_too_few_for_a_step(medical):
    images = open_source("medical", medical, batch=4, replicas=1)
    for step in range(4):
        images.set_step(step)
        pixels = images.pixels(0, (0, 4), WHOLE)
        assert len({image.sum().item() for image in pixels}) == 4


# In the background


def test_decodes_the_images_of_the_next_step_in_advance(medical, monkeypatch):
    decoded = []
    original = image_folder.ImageFolder.crop
    ready = threading.Event()

    def crop(self, number, box):
        image = original(self, number, box)
        decoded.append(threading.current_thread().name)
        if len(decoded) == 4:
            ready.set()
        return image

    monkeypatch.setattr(image_folder.ImageFolder, "crop", crop)
    images = open_source("medical", medical, batch=2, replicas=1, num_workers=1)
    images.pixels(0, (0, 2), WHOLE)
    assert ready.wait(10)
    images.set_step(1)
    images.pixels(0, (0, 2), WHOLE)
    images.close()
    assert len(decoded) in (4, 5, 6)  # step 1 is not decoded again, step 2 only in part
    assert all(name.startswith("images") for name in decoded)


def test_steps_out_of_order_are_correct(medical):
    plain, ahead = (open_source("medical", medical, batch=1, num_workers=n) for n in (0, 2))
    for step in (0, 1, 5, 4, 4, 9, 0):
        plain.set_step(step)
        ahead.set_step(step)
        for _ in range(2):
            expected = plain.pixels(1, (0, 1), WHOLE)
            assert torch.equal(ahead.pixels(1, (0, 1), WHOLE), expected)
    ahead.close()
