"""The shuffled order of a data set's images, over epochs and replicas."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from spbench_core.quantities import format_quantity
from spbench_parallel.errors import CannotRunError
from spbench_parallel.images.seeds import make_generator


@dataclass(slots=True)
class Shuffle:
    """The order of a data set's images: another in each pass over them, the same on every rank.

    Each step takes ``replicas * batch`` images, no image twice, a replica's after the other's. The
    images left at the end of a pass, too few for a step, are dropped; the next pass draws a new
    order.

    Attributes:
        count: Number of images of the data set.
        batch: Images of a replica's step.
        replicas: The number of replicas, each with images of its own.
        seed: The seed of the order.
    """

    count: int
    batch: int
    replicas: int
    seed: int
    _order: tuple[int, list[int]] = field(default=(-1, []), init=False)

    def __post_init__(self) -> None:
        if self.count < self.batch * self.replicas:
            raise CannotRunError(
                f"the data set has {format_quantity(self.count, 'image')}, and a step "
                f"takes {self.batch * self.replicas} (batch_size x replicas): take a smaller "
                "batch_size or add images"
            )

    @property
    def steps(self) -> int:
        """Steps of one pass over the images."""
        return self.count // (self.batch * self.replicas)

    def images(self, step: int, replica: int) -> list[int]:
        """Return a replica's images of a step, as numbers of the data set."""
        passed, index = divmod(step, self.steps)
        if self._order[0] != passed:
            order = torch.randperm(self.count, generator=make_generator("order", self.seed, passed))
            self._order = passed, order.tolist()
        first = (index * self.replicas + replica) * self.batch
        return self._order[1][first : first + self.batch]
