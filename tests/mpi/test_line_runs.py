"""What the reference scripts' command lines print on real ranks; all run in test_reference_rows."""

import re

import pytest
from PIL import Image

from support.measure_py import BatchLine, SizeLine, parse_line
from support.runs import run_cases_on_ranks, run_on_ranks

pytestmark = [pytest.mark.mpi, pytest.mark.long, pytest.mark.timeout(600)]

RANKS = 5
YIELDING = {"OMPI_MCA_mpi_yield_when_idle": "1"}
_SHORT = "--warmup 1 --iterations 2"
RESNET = f"--baseline off --version 1 --depth 8 --image-size 32 {_SHORT}"
MEASURE = "--network lenet --image-shape 1,28,28 --num-classes 10"
"""What makes a line small, or a network so."""

LINES = {
    "resnet_lp --image-size 1024 --split-size 4 --batch-size 4 --parts 2 -v": (4, RESNET),
    # FOLDER has 7 images: a pass is 3 steps of two.
    "resnet_lp --app 1 --datapath FOLDER --num-classes 2 --batch-size 2 --num-epochs 2 -v": (
        2,
        "--baseline off --version 1 --depth 8 --image-size 32 --warmup 0",
    ),
    "measure --gpus 0,1 --kvstore device --disp-batches 2": (2, MEASURE),
    "measure --gpus 0,1 --kv-store dist_device_sync --num-workers 2 --num-servers 1 "
    "--optimizer sgd": (5, MEASURE),
}


def words_of(line):
    return [*line.split(), *LINES[line][1].split()]


def write_images(folder):
    """Write seven images of two classes."""
    for number in range(7):
        file = folder / "ab"[number % 2] / f"{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (32, 32), (30 * number, 255 - 30 * number, 99)).save(file)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Starts MPI once; returns what each rank printed, line by line."""
    folder = tmp_path_factory.mktemp("lines")
    write_images(folder / "images")
    cases = [
        {
            "ranks": ranks,
            "words": [word.replace("FOLDER", f"{folder}/images") for word in words_of(line)],
        }
        for line, (ranks, _) in LINES.items()
    ]
    said = run_cases_on_ranks(RANKS, "run_lines.py", folder, cases, seconds=560)
    return dict(zip(LINES, said, strict=True))


@pytest.mark.parametrize("line", LINES)
def test_a_line_runs_and_its_results_are_right(results, line):
    ranks, _ = LINES[line]
    answers = results[line][:ranks]
    assert not any(answer["failed"] for answer in answers)
    passed = [answer["stdout"].count("Validation passed") for answer in answers]
    # measure.py has no such line: its error is in the lines of its batches.
    assert all(passed) or line.startswith("measure")
    assert "Validation failed" not in "".join(answer["stdout"] for answer in answers)
    assert {answer["stderr"] for answer in answers} == {""}


def test_a_model_prints_the_lines_of_the_scripts(results):
    first, *others = results[
        "resnet_lp --image-size 1024 --split-size 4 --batch-size 4 --parts 2 -v"
    ]
    lines = first["stdout"].splitlines()
    assert lines[-1] == "Validation passed Rank:0"
    assert any(re.fullmatch(r"Epoch: 0 images per sec:[\d.e+]+", line) for line in lines)
    assert any(re.fullmatch(r"Epoch 0 Global loss: [\d.]+ Acc [\d.]+", line) for line in lines)
    assert any(re.fullmatch(r"Mean [\d.e+]+ Median [\d.e+]+", line) for line in lines)
    assert [other["stdout"] for other in others[:3]] == [
        f"Validation passed Rank:{rank}\n" for rank in (1, 2, 3)
    ]


def test_an_epoch_is_a_pass_over_the_images_and_its_line_is_their_mean(results):
    first, *_ = results[next(line for line in LINES if "FOLDER" in line)]
    number = r"([\d.e+-]+)"
    steps = re.findall(rf"Epoch: (\d) Step: \d Loss: {number} Acc: {number}", first["stdout"])
    ends = re.findall(rf"Epoch (\d) Global loss: {number} Acc {number}", first["stdout"])
    assert [epoch for epoch, *_ in steps] == ["0"] * 3 + ["1"] * 3
    assert [epoch for epoch, *_ in ends] == ["0", "1"]
    last = {epoch: float(loss) for epoch, loss, _ in steps}
    assert any(float(loss) != last[epoch] for epoch, loss, _ in ends)
    for epoch, *means in ends:
        own = [[float(value) for value in said] for at, *said in steps if at == epoch]
        for mean, values in zip(means, zip(*own, strict=True), strict=True):
            assert float(mean) == pytest.approx(sum(values) / 3, rel=1e-4)


def test_measure_prints_its_lines(results):
    for line, devices in (
        ("measure --gpus 0,1 --kvstore device --disp-batches 2", 2),
        (next(one for one in LINES if "dist_device_sync" in one), 2),
    ):
        first, *_ = results[line]
        head, *rest = first["stdout"].splitlines()
        assert head.startswith("Namespace(disp_batches=")
        assert "network='lenet'" in head
        size, *batches = filter(None, map(parse_line, rest))
        assert size == SizeLine(8, 1.72432)
        for batch in batches:
            assert isinstance(batch, BatchLine)
            expected = 1.72432 * 2 * (devices - 1) / devices / batch.seconds / 1e3
            assert batch.gb_s == pytest.approx(expected, rel=1e-2)
            assert batch.error < 1e-6


def test_a_fault_in_a_line_fails_it_and_a_flag_that_does_nothing_is_told_once():
    words = "halo_exchange --image-size 32 --num-spatial-parts 2 --slice-method vertical"
    extra = f"{_SHORT} --out-channels 3 --inject corrupt-halo"
    ended = run_on_ranks(2, "-m", "spbench_workers", *words.split(), *extra.split(), **YIELDING)
    assert ended.returncode == 1
    assert "Validation failed Rank:1 halo" in ended.stdout
    told = "spbench_workers: warning: halo_exchange: --out-channels 3 does nothing"
    assert ended.stderr.count(told) == 1
