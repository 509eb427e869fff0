"""Each command of docs/references.md on its number of ranks, with smaller sizes."""

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
"""The arguments that write the checkpoint which the commands of inference read."""


def build_small_arguments(alias, command, folder):
    """Return a command's arguments with smaller sizes and a test's checkpoint."""
    small = SMALL.get(alias) or SMALL[alias.partition("_")[0]]
    arguments = [*command.split(), *small.split()]
    if "--checkpoint" in arguments:
        arguments += ["--checkpoint", str(folder)]
    return arguments


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Start MPI once; return the results of the ranks by command."""
    folder = tmp_path_factory.mktemp("rows")
    cases = [
        {
            "ranks": 5,
            "arguments": ["resnet_sp", *build_small_arguments("resnet_sp", TRAINING, folder)],
        }
    ]
    cases += [
        {"ranks": ranks, "arguments": [alias, *build_small_arguments(alias, command, folder)]}
        for ranks, _, _, alias, command in REFERENCE_COMMANDS
    ]
    checkpoint_results, *command_results = run_cases_on_ranks(
        RANKS, "run_lines.py", folder, cases, seconds=560
    )
    assert not any(result["failed"] for result in checkpoint_results[:5])
    return dict(zip(REFERENCE_COMMANDS, command_results, strict=True))


@pytest.mark.parametrize(
    "command", REFERENCE_COMMANDS, ids=lambda command: f"{command[3]} {command[4]}"
)
def test_each_command_runs_with_correct_results(results, command):
    ranks, _, _, alias, _ = command
    rank_results = results[command][:ranks]
    assert not any(result["failed"] for result in rank_results)
    output = "".join(result["stdout"] for result in rank_results)
    assert "Validation failed" not in output
    # measure.py has no such line; it prints the error in the lines of its batches.
    if alias != "measure":
        assert all("Validation passed" in result["stdout"] for result in rank_results)
    assert {result["stderr"] for result in rank_results} == {""}
