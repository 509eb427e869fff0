"""Checksums of stage boundaries: independent of tiles, dependent on all else."""

import pytest
import torch

from spbench_core.layout.tiles import Box, Grid
from spbench_core.models.routes import Route
from spbench_parallel.full_size.stage_boundaries import (
    BoundaryChecksums,
    BoundaryTransfer,
    _compute_checksums,
)
from spbench_parallel.pipeline.stage_channel import DirectedRoute
from spbench_parallel.verify.worst_error import WorstError

MODULUS = 1 << 64
WHOLE = Box((0, 6), (0, 7))


class World:
    """The tables of all ranks after the exchange."""

    def __init__(self, *tables):
        self._tables = tables

    def allgather(self, table):
        return [table, *self._tables]


def make_image(dtype=torch.float32):
    return torch.randn(2, 3, 6, 7, generator=torch.Generator().manual_seed(3)).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("grid", [Grid(2, 2), Grid(1, 3), Grid(6, 1)], ids=str)
def test_a_checksum_does_not_depend_on_the_tiles(dtype, grid):
    values = make_image(dtype)
    totals = [0, 0]
    for tile in range(grid.size):
        box = grid.tile(tile, 6, 7)
        part = values[:, :, slice(*box.rows), slice(*box.cols)]
        totals = [
            (total + checksum) % MODULUS
            for total, checksum in zip(totals, _compute_checksums(part, box), strict=True)
        ]
    assert totals == _compute_checksums(values, WHOLE)


@pytest.mark.parametrize("axes", [(2,), (3,), (1,), (1, 2, 3)])
def test_a_moved_number_changes_a_checksum(axes):
    assert _compute_checksums(make_image().flip(axes), WHOLE) != _compute_checksums(
        make_image(), WHOLE
    )


def test_the_last_bit_changes_a_checksum():
    other = make_image()
    other[1, 2, 3, 4] = torch.nextafter(other[1, 2, 3, 4], torch.tensor(9.0))
    before = _compute_checksums(make_image(), WHOLE)
    after = _compute_checksums(other, WHOLE)
    assert before[0] == after[0]
    assert before[1] != after[1]


@pytest.mark.parametrize(
    ("sent_sums", "received_sums", "reason"),
    [
        ({1: 5}, {1: 5}, ""),
        ({1: 5}, {1: 6}, "what arrived is not what was sent"),
        ({}, {1: 0}, "what arrived is not what was sent"),
        ({1: 0}, {}, "nothing arrived"),
    ],
)
def test_reports_missing_and_changed_messages(sent_sums, received_sums, reason):
    sums = BoundaryChecksums(None)
    worst = WorstError.with_tolerance(0.0)
    transfers = {
        1: BoundaryTransfer(0, 0, DirectedRoute(Route(1, 3, (7,)), backward=True), 1, 0, 4)
    }
    sums._sent_checksums = {transfers[key]: value for key, value in sent_sums.items()}
    sums._received_checksums = {transfers[key]: value for key, value in received_sums.items()}
    sums.compare(World(), worst)
    description = (
        "gradients from stage 3 to 1, replica 0, direction 0, micro-batch 1, image 4, map 0"
    )
    assert worst.detail == (f"{description}: {reason}" if reason else "")
    assert bool(worst.error) == bool(reason)
