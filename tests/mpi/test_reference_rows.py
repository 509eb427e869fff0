"""Each printed line of docs/references.md on its own number of ranks, with smaller sizes behind."""

import pytest

from support.reference_commands import REFERENCE_COMMANDS
from support.runs import run_cases_on_ranks

pytestmark = [pytest.mark.mpi, pytest.mark.long, pytest.mark.timeout(600)]

RANKS = max(ranks for ranks, *_ in REFERENCE_COMMANDS)
_SHORT = "--warmup 0 --iterations 1"
_RESNET = f"--baseline off --version 1 --depth 14 --image-size 64 --backend mpi {_SHORT}"
_AMOEBANET = f"--baseline off --num-layers 3 --num-filters 16 --image-size 64 {_SHORT}"
_HALO = f"--image-size 64 {_SHORT}"
_MEASURE = "--network resnet --num-layers 20 --image-shape 3,28,28 --num-classes 10"
SMALL = {
    "halo": _HALO,
    "halo_conv": f"{_HALO} --out-channels 3",
    "halo_compute": f"{_HALO} --out-channels 3",
    "halo_validate": f"{_HALO} --out-channels 3",
    "resnet": _RESNET,
    "resnet_inference": f"--image-size 64 --batch-size 1 {_SHORT}",
    "amoebanet": _AMOEBANET,
    "measure": _MEASURE,
}
TRAINING = "--num-spatial-parts 4 --image-size 4096 --batch-size 1 --checkpoint checkpoints"
"""What writes the checkpoint that a line of inference reads."""


def small_words(alias, line, folder):
    """A line as it is printed, what makes it small, and a checkpoint of the test's own."""
    small = SMALL.get(alias) or SMALL[alias.partition("_")[0]]
    words = [*line.split(), *small.split()]
    return [*words, "--checkpoint", str(folder)] if "--checkpoint" in words else words


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Starts MPI once; returns the answers of each line's ranks."""
    folder = tmp_path_factory.mktemp("rows")
    cases = [{"ranks": 5, "words": ["resnet_sp", *small_words("resnet_sp", TRAINING, folder)]}]
    cases += [
        {"ranks": ranks, "words": [alias, *small_words(alias, line, folder)]}
        for ranks, _, _, alias, line in REFERENCE_COMMANDS
    ]
    first, *said = run_cases_on_ranks(RANKS, "run_lines.py", folder, cases, seconds=560)
    assert not any(answer["failed"] for answer in first[:5])
    return dict(zip(REFERENCE_COMMANDS, said, strict=True))


@pytest.mark.parametrize("line", REFERENCE_COMMANDS, ids=lambda line: f"{line[3]} {line[4]}")
def test_each_printed_line_runs_and_its_results_are_right(results, line):
    ranks, _, _, alias, _ = line
    answers = results[line][:ranks]
    assert not any(answer["failed"] for answer in answers)
    printed = "".join(answer["stdout"] for answer in answers)
    assert "Validation failed" not in printed
    if alias != "measure":  # measure.py has no such line: its error is in the lines of its batches
        assert all("Validation passed" in answer["stdout"] for answer in answers)
    assert {answer["stderr"] for answer in answers} == {""}
