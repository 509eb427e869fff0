"""Sums over joints: they do not depend on how a map is cut, and on all else they do."""

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

WORD = 1 << 64
WHOLE = Box((0, 6), (0, 7))


class World:
    """The ranks' tables, as all ranks have them in the end."""

    def __init__(self, *tables):
        self._tables = tables

    def allgather(self, table):
        return [table, *self._tables]


def image(dtype=torch.float32):
    return torch.randn(2, 3, 6, 7, generator=torch.Generator().manual_seed(3)).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("grid", [Grid(2, 2), Grid(1, 3), Grid(6, 1)], ids=str)
def test_a_sum_does_not_depend_on_the_tiles(dtype, grid):
    values = image(dtype)
    totals = [0, 0]
    for tile in range(grid.size):
        box = grid.tile(tile, 6, 7)
        part = values[:, :, slice(*box.rows), slice(*box.cols)]
        totals = [
            (one + two) % WORD
            for one, two in zip(totals, _compute_checksums(part, box), strict=True)
        ]
    assert totals == _compute_checksums(values, WHOLE)


@pytest.mark.parametrize("axes", [(2,), (3,), (1,), (1, 2, 3)])
def test_a_number_at_another_place_changes_it(axes):
    assert _compute_checksums(image().flip(axes), WHOLE) != _compute_checksums(image(), WHOLE)


def test_a_last_bit_changes_it():
    other = image()
    other[1, 2, 3, 4] = torch.nextafter(other[1, 2, 3, 4], torch.tensor(9.0))
    before = _compute_checksums(image(), WHOLE)
    after = _compute_checksums(other, WHOLE)
    assert before[0] == after[0]
    assert before[1] != after[1]


@pytest.mark.parametrize(
    ("sent", "received", "why"),
    [
        ({1: 5}, {1: 5}, ""),
        ({1: 5}, {1: 6}, "what arrived is not what was sent"),
        ({}, {1: 0}, "what arrived is not what was sent"),
        ({1: 0}, {}, "nothing arrived"),
    ],
)
def test_what_is_not_sent_or_does_not_arrive_is_told(sent, received, why):
    sums = BoundaryChecksums(None)
    worst = WorstError.with_tolerance(0.0)
    words = {1: BoundaryTransfer(0, 0, DirectedRoute(Route(1, 3, (7,)), backward=True), 1, 0, 4)}
    sums._sent_checksums = {words[key]: value for key, value in sent.items()}
    sums._received_checksums = {words[key]: value for key, value in received.items()}
    sums.compare(World(), worst)
    place = "gradients from stage 3 to 1, replica 0, direction 0, micro-batch 1, image 4, map 0"
    assert worst.detail == (f"{place}: {why}" if why else "")
    assert bool(worst.error) == bool(why)
