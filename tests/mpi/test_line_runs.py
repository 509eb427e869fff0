"""The output of commands of the reference scripts on real ranks.

test_reference_rows runs all commands.
"""

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
"""Arguments for a small network."""

LINES = {
    "resnet_lp --image-size 1024 --split-size 4 --batch-size 4 --parts 2 -v": (4, RESNET),
    # FOLDER has 7 images, so an epoch has 3 steps of two images.
    "resnet_lp --app 1 --datapath FOLDER --num-classes 2 --batch-size 2 --num-epochs 2 -v": (
        2,
        "--baseline off --version 1 --depth 8 --image-size 32 --warmup 0",
    ),
    "measure --gpus 0,1 --kvstore device --disp-batches 2": (2, MEASURE),
    "measure --gpus 0,1 --kv-store dist_device_sync --num-workers 2 --num-servers 1 "
    "--optimizer sgd": (5, MEASURE),
}


def build_arguments(line):
    return [*line.split(), *LINES[line][1].split()]


def write_images(folder):
    """Write seven images of two classes."""
    for number in range(7):
        file = folder / "ab"[number % 2] / f"{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (32, 32), (30 * number, 255 - 30 * number, 99)).save(file)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Start MPI once; return the results of the ranks by line."""
    folder = tmp_path_factory.mktemp("lines")
    write_images(folder / "images")
    cases = [
        {
            "ranks": ranks,
            "arguments": [
                argument.replace("FOLDER", f"{folder}/images") for argument in build_arguments(line)
            ],
        }
        for line, (ranks, _) in LINES.items()
    ]
    line_results = run_cases_on_ranks(RANKS, "run_lines.py", folder, cases, seconds=560)
    return dict(zip(LINES, line_results, strict=True))


@pytest.mark.parametrize("line", LINES)
def test_line_runs_with_correct_results(results, line):
    ranks, _ = LINES[line]
    rank_results = results[line][:ranks]
    assert not any(result["failed"] for result in rank_results)
    passed = [result["stdout"].count("Validation passed") for result in rank_results]
    # measure.py has no such line; it prints the error in the lines of its batches.
    assert all(passed) or line.startswith("measure")
    assert "Validation failed" not in "".join(result["stdout"] for result in rank_results)
    assert {result["stderr"] for result in rank_results} == {""}


def test_model_prints_the_lines_of_the_scripts(results):
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


def test_line_of_an_epoch_has_the_mean_of_its_steps(results):
    first, *_ = results[next(line for line in LINES if "FOLDER" in line)]
    number = r"([\d.e+-]+)"
    steps = re.findall(rf"Epoch: (\d) Step: \d Loss: {number} Acc: {number}", first["stdout"])
    ends = re.findall(rf"Epoch (\d) Global loss: {number} Acc {number}", first["stdout"])
    assert [epoch for epoch, *_ in steps] == ["0"] * 3 + ["1"] * 3
    assert [epoch for epoch, *_ in ends] == ["0", "1"]
    last = {epoch: float(loss) for epoch, loss, _ in steps}
    assert any(float(loss) != last[epoch] for epoch, loss, _ in ends)
    for epoch, *means in ends:
        step_values = [
            [float(value) for value in values]
            for step_epoch, *values in steps
            if step_epoch == epoch
        ]
        for mean, values in zip(means, zip(*step_values, strict=True), strict=True):
            assert float(mean) == pytest.approx(sum(values) / 3, rel=1e-4)


def test_measure_prints_the_lines_of_measure_py(results):
    for line, devices in (
        ("measure --gpus 0,1 --kvstore device --disp-batches 2", 2),
        (next(line for line in LINES if "dist_device_sync" in line), 2),
    ):
        first, *_ = results[line]
        header, *lines = first["stdout"].splitlines()
        assert header.startswith("Namespace(disp_batches=")
        assert "network='lenet'" in header
        size, *batches = filter(None, map(parse_line, lines))
        assert size == SizeLine(8, 1.72432)
        for batch in batches:
            assert isinstance(batch, BatchLine)
            expected = 1.72432 * 2 * (devices - 1) / devices / batch.seconds / 1e3
            assert batch.gb_s == pytest.approx(expected, rel=1e-2)
            assert batch.error < 1e-6


def test_line_with_a_fault_fails_and_warns_of_a_useless_flag():
    line = "halo_exchange --image-size 32 --num-spatial-parts 2 --slice-method vertical"
    options = f"{_SHORT} --out-channels 3 --inject corrupt-halo"
    process = run_on_ranks(2, "-m", "spbench_workers", *line.split(), *options.split(), **YIELDING)
    assert process.returncode == 1
    assert "Validation failed Rank:1 halo" in process.stdout
    warning = "spbench_workers: warning: halo_exchange: --out-channels 3 does nothing"
    assert process.stderr.count(warning) == 1
