"""The origin of a profile: its model and parameters, by which a plan of it can be run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Origin:
    """The run of ``model.profile`` that a profile was measured by.

    Attributes:
        model: ``resnet``, ``amoebanet``, or a ``module:callable``.
        params: The model's parameters, as the benchmark has them; those without a value left out.
        ranks: How many ranks did the same work at once.
        threads: Threads of each.
    """

    model: str
    params: tuple[tuple[str, Any], ...] = ()
    ranks: int = 1
    threads: int = 1
