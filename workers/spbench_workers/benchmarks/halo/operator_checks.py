"""Checks of operators over tiles: halo, output, gradients, and adjoint exchange."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from mpi4py import MPI
from torch import nn

from spbench_core.layout.tiles import Box, Grid
from spbench_core.layout.window import Window2d
from spbench_parallel.p2p.mpi import mpi_buffer
from spbench_parallel.spatial.exchange import is_channels_last, view_box
from spbench_parallel.spatial.gather import Gather
from spbench_parallel.spatial.pixels import RandomImage
from spbench_parallel.spatial.tile_buffer import copy_into_buffer
from spbench_parallel.spatial.tiling import Tiling
from spbench_parallel.verify.worst_error import WorstError
from spbench_workers.benchmarks.halo.compare import (
    Tolerances,
    check_unreached_pixels,
    check_whole_tile,
    compare_boxes,
    compare_pixels,
    compare_values,
    find_max_error,
)
from spbench_workers.benchmarks.halo.faults import inject_gradient_fault, inject_halo_fault
from spbench_workers.benchmarks.halo.params import TileParams, TransportParams
from spbench_workers.benchmarks.halo.reference import ExpectedValues, Reference
from spbench_workers.benchmarks.halo.sampling import (
    LIMITS,
    Sampling,
    SamplingLimits,
    choose_sampling,
)
from spbench_workers.context import Context

OVERLAP_CHOICES = {"auto": None, "on": True, "off": False}
"""The values of `Tiling.overlap` by those of the parameter ``overlap``."""


def make_tiling(context: Context) -> Tiling:
    """Return the tiles of the case's image, one for each rank."""
    params = context.read_params(TileParams)
    transport = context.read_params(TransportParams)
    return Tiling.of_grid(
        context.world.comm,
        Grid(*params.grid),
        *params.image_size,
        transport=transport.transport,
        overlap=OVERLAP_CHOICES[transport.overlap or "auto"],
    )


def make_tile(
    context: Context,
    image: RandomImage,
    tiling: Tiling,
    dtype: torch.dtype,
    device: torch.device,
    buffer_box: Box | None = None,
) -> torch.Tensor:
    """Return this rank's tile of an image in the memory format of the case.

    ``buffer_box`` is the box of a larger buffer around the tile, like the one a previous layer of a
    model leaves.
    """
    channels_last = context.read_params(TransportParams).channels_last
    tile = torch.empty(
        (image.batch, image.channels, *tiling.tile.shape),
        dtype=dtype,
        device=device,
        memory_format=torch.channels_last if channels_last else torch.contiguous_format,
    )
    tile.copy_(image.make_box(tiling.tile, 0, dtype, device))
    return tile if buffer_box is None else copy_into_buffer(tile, tiling.tile, buffer_box)


def inject_faults(context: Context, gather: Gather) -> Gather:
    """Inject the requested fault into a gather, and return it."""
    inject_halo_fault(context, gather.forward)
    inject_gradient_fault(context, gather.backward)
    return gather


@dataclass(frozen=True)
class OperatorCase:
    """An operator over tiles, and the plain layers that its results are compared with.

    Attributes:
        context: The case.
        tiled: The operator, from this rank's tile to its outputs.
        plain: The same layers without tiles, in float64, with the same parameters.
        windows: The windows of the layers that have one.
        gather: The gather of the operator's first halos.
        gathers: Returns this gather and those of further halos that exist so far.
        input_tiling: The tiles of its input.
        output_tiling: The tiles of its output.
        image: Fresh values for the input, round by round.
        gradient: Fresh values for the gradient of the output.
        template: A tile with the dtype, device and memory format of all others.
        buffer_box: The box of a larger buffer around a tile; None without such a buffer.
        whole_numbers: Whether outputs and input gradients are whole numbers within the tolerance.
        sampling_limits: The size from which the tile is sampled, and the sizes of the boxes.
    """

    context: Context
    tiled: nn.Module
    plain: nn.Module
    windows: Sequence[Window2d]
    gather: Gather
    gathers: Callable[[], Sequence[Gather]]
    input_tiling: Tiling
    output_tiling: Tiling
    image: RandomImage
    gradient: RandomImage
    template: torch.Tensor
    buffer_box: Box | None = None
    whole_numbers: bool = False
    sampling_limits: SamplingLimits = LIMITS

    @cached_property
    def sampling(self) -> Sampling | None:
        """The sampling of a large tile; None if all values are compared."""
        return choose_sampling(
            self.plain,
            self.image.batch,
            self.windows,
            self.input_tiling.partition,
            self.output_tiling.partition,
            lambda round_, rank: self.context.seed_for("boxes", round_, rank),
            self.sampling_limits,
        )

    def report_sampling(self) -> None:
        """Report the sampled boxes if not all values are compared with the reference."""
        if self.sampling is not None and self.context.world.rank == 0:
            self.context.choice("checked", *self.sampling.describe(self.input_tiling.comm.rank))

    def draw_tile(self, image: RandomImage, round_: int) -> torch.Tensor:
        """Return this rank's tile of an image in the layout that the operator expects."""
        box = self.input_tiling.tile
        tile = self.draw_pixels(image, box, round_)
        return tile if self.buffer_box is None else copy_into_buffer(tile, box, self.buffer_box)

    def draw_pixels(self, image: RandomImage, box: Box, round_: int) -> torch.Tensor:
        """Return a box of an image, on the device and in the memory format of the tiles."""
        return self._like_template(
            image.make_box(box, round_, self.template.dtype, self.template.device)
        )

    def _like_template(self, values: torch.Tensor) -> torch.Tensor:
        values = values.to(self.template.device)
        channels_last = is_channels_last(self.template)
        return values.to(memory_format=torch.channels_last) if channels_last else values

    def warm_up(self) -> None:
        """Run once without checks, so that a stale halo has a predecessor.

        All ranks must call it.
        """
        self._check_halo(0)
        tile = self.draw_tile(self.image, 0).requires_grad_()
        self.tiled(tile).sum().backward()

    def check(self, rounds: Sequence[int], tolerances: Tolerances) -> dict[str, WorstError]:
        """Check rounds of fresh data; return the worst error of each check by name."""
        worst: dict[str, WorstError] = {}
        for done, round_ in enumerate(rounds):
            self.context.progress("check", done, len(rounds))
            for name, error in self.check_round(round_, tolerances).items():
                worst.setdefault(name, WorstError(keeps_first=True)).merge(error)
        return worst

    def check_round(self, round_: int, tolerances: Tolerances) -> dict[str, WorstError]:
        """Run all checks once on fresh data. All ranks must call it."""
        self._poison()
        halo = self._check_halo(round_)
        self._poison()
        tile = self.draw_tile(self.image, round_).requires_grad_()
        self.tiled.zero_grad()
        output = self.tiled(tile)
        output.backward(self._like_template(self._make_gradient(self.output_tiling.tile, round_)))
        expected = self._compute_expected(round_)
        conv = compare_boxes(
            output.detach(), self.output_tiling.tile, expected.output, tolerances.output
        )
        grad = self._check_gradients(tile, expected, tolerances)
        if self.sampling is not None:
            conv.merge(self._check_all_values(output, self.output_tiling.tile, conv.tolerance))
            grad.merge(self._check_all_gradients(tile, expected, tolerances, round_))
        return {
            "halo": halo,
            "conv": conv,
            "grad": grad,
            "adjoint": self._check_adjoint(),
        }

    def check_and_report(
        self, worst: dict[str, WorstError], rounds: Sequence[int], tolerances: Tolerances
    ) -> None:
        """Check more rounds, and report each check with its worst error so far."""
        for name, error in self.check(rounds, tolerances).items():
            worst[name].merge(error)
            self.context.check_worst(name, worst[name])

    def _poison(self) -> None:
        """Fill all receive memory with NaN."""
        # Wait until no other rank still reads the memory that is poisoned here.
        self.context.world.comm.Barrier()
        for gather in self.gathers():
            gather.forward.poison()
            gather.backward.poison()
        self.context.world.comm.Barrier()

    def _check_halo(self, round_: int) -> WorstError:
        """Compare the gathered pixels with the image, bit for bit."""
        worst = WorstError(keeps_first=True)
        image = self._distinct_image()
        with torch.no_grad():
            tile = self.draw_tile(image, round_)
            parts = self.gather.finish(self.gather.start(tile))
        for box, part in zip(self.gather.part_boxes, parts, strict=True):
            needed_box = box.intersect(self.gather.transfers.needed[self.input_tiling.comm.rank])
            expected = torch.full(part.shape, self.gather.fill, dtype=part.dtype)
            if not needed_box.empty:
                values = image.make_box(needed_box, round_, part.dtype)
                view_box(expected, box, needed_box).copy_(values)
            worst.merge(compare_pixels(part.cpu(), expected, box))
        return worst

    def _distinct_image(self) -> RandomImage:
        """Return an image without zeros, and with other values in each round."""
        like = self.image
        seed = self.context.seed_for("halo")
        return RandomImage(like.batch, like.channels, like.height, like.width, seed)

    def _make_gradient(self, box: Box, round_: int) -> torch.Tensor:
        """Return the gradient of a box of outputs, on the CPU."""
        if self.sampling is None:
            return self.gradient.make_box(box, round_, self.template.dtype)
        return self.sampling.make_gradient(self.gradient, box, round_, self.template.dtype)

    def _compute_expected(self, round_: int) -> ExpectedValues:
        rank = self.context.world.rank
        owned = self.input_tiling.partition
        reference = Reference(
            self.plain,
            self.windows,
            lambda box: self.image.make_box(box, round_, self.template.dtype),
            lambda box: self._make_gradient(box, round_),
            owned,
        )
        if self.sampling is None:
            return reference.compute_tile(owned.tile(rank), self.output_tiling.partition.tile(rank))
        return reference.compute_boxes(
            self.sampling.select_inputs(round_, rank), self.sampling.select_outputs(round_, rank)
        )

    def _check_gradients(
        self, tile: torch.Tensor, expected: ExpectedValues, tolerances: Tolerances
    ) -> WorstError:
        assert tile.grad is not None
        worst = compare_boxes(
            tile.grad, self.input_tiling.tile, expected.input_gradient, tolerances.input_gradient
        )
        comm = self.context.world.comm
        pairs = zip(self.tiled.named_parameters(), expected.parameter_gradients, strict=True)
        for (name, parameter), contribution in pairs:
            assert parameter.grad is not None
            tolerance = tolerances.parameter_gradient.max_error(
                _sum_over_ranks(comm, contribution.abs())
            )
            total = _sum_over_ranks(comm, contribution)
            error = compare_values(f"the gradient of {name}", parameter.grad, total, tolerance)
            worst.merge(error)
        return worst

    def _check_all_values(self, actual: torch.Tensor, tile: Box, tolerance: float) -> WorstError:
        return check_whole_tile(actual, tile, tolerance, whole_numbers=self.whole_numbers)

    def _check_all_gradients(
        self, tile: torch.Tensor, expected: ExpectedValues, tolerances: Tolerances, round_: int
    ) -> WorstError:
        """Check that the input's gradient is zero where no compared output reads."""
        assert self.sampling is not None
        assert tile.grad is not None
        box = self.input_tiling.tile
        max_error = find_max_error(expected.input_gradient, tolerances.input_gradient)
        worst = WorstError(keeps_first=True)
        worst.merge(self._check_all_values(tile.grad, box, max_error))
        reached_boxes = self.sampling.select_read_boxes(round_, box)
        worst.merge(check_unreached_pixels(tile.grad, box, max_error, reached_boxes))
        return worst

    def _check_adjoint(self) -> WorstError:
        """Check that <Gx, y> equals <x, G'y> over all ranks, in whole numbers."""
        gather = self.gather
        comm = self.context.world.comm
        generator = torch.Generator().manual_seed(self.context.seed_for("adjoint", comm.rank))

        def draw_numbers(shape: Sequence[int]) -> torch.Tensor:
            numbers = torch.randint(1, 4, tuple(shape), generator=generator)
            return numbers.to(device=self.template.device, dtype=self.template.dtype)

        with torch.no_grad():
            pixels = draw_numbers(self.template.shape)
            parts = gather.finish(gather.start(pixels))
            gradients = [draw_numbers(part.shape) for part in parts]
            pairs = zip(parts, gradients, strict=True)
            forward_product = comm.allreduce(sum(_dot(*pair) for pair in pairs), op=MPI.SUM)
            gather.send_gradients(gradients)
            image_gradient = gather.add_gradients(torch.zeros_like(pixels), gradients)
        backward_product = comm.allreduce(_dot(pixels, image_gradient), op=MPI.SUM)
        difference = abs(forward_product - backward_product)
        detail = (
            f"<Gx, y> is {forward_product:.17g} and <x, G'y> is {backward_product:.17g}, "
            "not the same"
        )
        return WorstError.single(difference, 0.0, "" if difference == 0.0 else detail)


def _dot(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a.double() * b.double()).sum())


def _sum_over_ranks(comm: MPI.Intracomm, values: torch.Tensor) -> torch.Tensor:
    """Return the sum over all ranks of a float64 tensor."""
    total = values.clone(memory_format=torch.contiguous_format)
    comm.Allreduce(MPI.IN_PLACE, [mpi_buffer(total), MPI.DOUBLE])
    return total
