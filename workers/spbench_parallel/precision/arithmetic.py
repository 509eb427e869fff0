"""The arithmetic of a rank's stages: number format, and scale of the loss."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext

import torch
from mpi4py import MPI
from torch import nn

from spbench_parallel.precision.formats import MixedProducts, Precision, ProductMode, narrow_weights
from spbench_parallel.precision.int8 import Int8Products, RangeRecorder, Ranges, merge_ranges
from spbench_parallel.precision.loss_scale import LossScale
from spbench_parallel.precision.product_errors import ProductErrors, product_tolerance


class Arithmetic:
    """The number format of a rank's stages, applied to their products and to the loss.

    All ranks must create it, and call its methods, together.

    Args:
        world: The ranks that work together.
        precision: The number format.
        stages: This rank's modules, with weights in ``precision.weights``. For inference, the
            weights of convolutions are converted to ``precision.work``.
        device: The device of the stages.
        learns: Whether they are trained.

    Attributes:
        loss_scale: Dynamic loss scaling, in training in fp16; otherwise None.

    Raises:
        ValueError: Training in int8 is requested, or int8 on a GPU.
    """

    def __init__(
        self,
        world: MPI.Intracomm,
        precision: Precision,
        stages: Sequence[nn.Module],
        device: torch.device,
        *,
        learns: bool,
    ) -> None:
        if precision.int8 and (learns or device.type != "cpu"):
            raise ValueError("in int8 a model can infer, on a CPU; take fp32, fp16 or bf16")
        self.loss_scale = LossScale(world) if learns and precision.scales_loss else None
        self._world = world
        self._precision = precision
        self._stages = stages
        self._products: ProductMode | None = None
        self._int8: Int8Products | None = None
        if precision.mixed:
            self._products = MixedProducts(precision.work, device)
            for stage in () if learns else stages:
                narrow_weights(stage, precision)

    @property
    def scale(self) -> float:
        """The scale of the loss; 1 without loss scaling."""
        return 1.0 if self.loss_scale is None else self.loss_scale.value

    @property
    def skipped_steps(self) -> int:
        """Steps without an update, because their gradients were too large for fp16."""
        return 0 if self.loss_scale is None else self.loss_scale.skipped_steps

    @contextmanager
    def activate(self) -> Iterator[None]:
        """Compute all convolutions inside in this number format.

        Raises:
            ValueError: The format is int8, and `quantise` has not been called.
        """
        if self._precision.int8 and self._products is None:
            raise ValueError("calibrate, and quantise, before inferring in int8")
        with self._products or nullcontext():
            yield

    @contextmanager
    def record_ranges(self) -> Iterator[Ranges]:
        """Record the ranges of values that convolutions read inside, over all ranks.

        The ranges are filled in at the end.
        """
        recorder = RangeRecorder(self._stages)
        previous = self._products
        ranges: Ranges = {}
        self._products = recorder
        yield ranges
        self._products = previous
        ranges.update(merge_ranges(self._world, recorder.ranges))

    @contextmanager
    def compare_products(self) -> Iterator[ProductErrors]:
        """Compute inside as the device does, and compare each product with float64."""
        previous = self._products
        errors = ProductErrors(product_tolerance(self._precision))
        self._products = errors
        yield errors
        self._products = previous

    def quantise(self, ranges: Ranges) -> None:
        """Convolve in int8 from now on; see `Engine.calibrate`.

        Args:
            ranges: The ranges of each convolution's input, from any layout of the same model.
        """
        self._products = self._int8 = Int8Products(self._stages, ranges)

    def int8_share(self) -> float:
        """Return the share of int8 in the multiply-adds of all ranks since `quantise`."""
        local_counts = (
            (0, 0)
            if self._int8 is None
            else (self._int8.int8_multiply_adds, self._int8.fp32_multiply_adds)
        )
        int8_count, fp32_count = (self._world.allreduce(count) for count in local_counts)
        return float(int8_count / (int8_count + fp32_count)) if int8_count else 0.0
