"""The arithmetic of a rank's stages: their number format, and the scale of the loss."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext

import torch
from mpi4py import MPI
from torch import nn

from spbench_parallel.precision.formats import MixedProducts, Precision, Products, narrow
from spbench_parallel.precision.int8 import Int8Products, RangeRecorder, Ranges, agreed
from spbench_parallel.precision.loss_scale import LossScale
from spbench_parallel.precision.product_errors import ProductErrors, tolerance_of


class Arithmetic:
    """The number format of a rank's stages, applied to their products and to the loss.

    All ranks must make it, and call its methods, together.

    Args:
        world: The ranks that work together.
        precision: The number format.
        stages: This rank's modules, with weights in ``precision.weights``. For inference, those
            of convolutions are converted to ``precision.work``.
        device: The device of the stages.
        learns: Whether they are trained.

    Attributes:
        loss_scale: Dynamic loss scaling, where they are trained in fp16; else None.

    Raises:
        ValueError: Training in int8 is asked for, or int8 on a GPU.
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
        self._products: Products | None = None
        self._int8: Int8Products | None = None
        if precision.mixed:
            self._products = MixedProducts(precision.work, device)
            for stage in () if learns else stages:
                narrow(stage, precision)

    @property
    def scale(self) -> float:
        """The scale of the loss; 1 without loss scaling."""
        return 1.0 if self.loss_scale is None else self.loss_scale.value

    @property
    def skipped_steps(self) -> int:
        """Steps without an update, since their gradients were too large for fp16."""
        return 0 if self.loss_scale is None else self.loss_scale.skipped_steps

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Compute all convolutions inside in this number format.

        Raises:
            ValueError: The format is int8, and `quantise` has not been called.
        """
        if self._precision.int8 and self._products is None:
            raise ValueError("calibrate, and quantise, before inferring in int8")
        with self._products or nullcontext():
            yield

    @contextmanager
    def recording(self) -> Iterator[Ranges]:
        """Record the ranges of values that convolutions read inside, over all ranks.

        The ranges are filled in at the end.
        """
        recorder = RangeRecorder(self._stages)
        kept = self._products
        ranges: Ranges = {}
        self._products = recorder
        yield ranges
        self._products = kept
        ranges.update(agreed(self._world, recorder.ranges))

    @contextmanager
    def comparing(self) -> Iterator[ProductErrors]:
        """Compute inside as the device does, and compare each product with float64."""
        kept = self._products
        errors = ProductErrors(tolerance_of(self._precision))
        self._products = errors
        yield errors
        self._products = kept

    def quantise(self, ranges: Ranges) -> None:
        """Convolve in int8 from now on; see `Engine.calibrate`.

        Args:
            ranges: The ranges of each convolution's input, from any layout of the same model.
        """
        self._products = self._int8 = Int8Products(self._stages, ranges)

    def int8_share(self) -> float:
        """Return the share of multiply-adds, of those of all ranks since `quantise`, in int8."""
        own = (0, 0) if self._int8 is None else (self._int8.int8, self._int8.others)
        int8, others = (self._world.allreduce(count) for count in own)
        return float(int8 / (int8 + others)) if int8 else 0.0
