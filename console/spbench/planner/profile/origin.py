"""Which model a profile is of: what lets a plan of it be run."""

from __future__ import annotations

from collections.abc import Mapping
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


def written_origin(origin: Origin) -> dict[str, Any]:
    """Return an origin as JSON has it."""
    return {
        "model": origin.model,
        "params": dict(origin.params),
        "ranks": origin.ranks,
        "threads": origin.threads,
    }


def read_origin(data: Any) -> Origin:
    """Return the origin of what JSON has.

    Raises:
        ValueError: It is none.
    """
    if not isinstance(data, Mapping) or not isinstance(data.get("model"), str):
        raise ValueError("the origin must be an object with a model")
    strange = sorted(set(data) - {"model", "params", "ranks", "threads"})
    if strange:
        raise ValueError(f"{strange[0]!r} is no key of an origin")
    params = data.get("params", {})
    plain = (str, int, float, bool)
    if not isinstance(params, Mapping) or not all(isinstance(v, plain) for v in params.values()):
        raise ValueError("the origin's params must be an object of numbers, words and truths")
    counts = [data.get(name, 1) for name in ("ranks", "threads")]
    if any(type(count) is not int or count < 1 for count in counts):
        raise ValueError("the origin's ranks and threads must be whole numbers from 1")
    return Origin(data["model"], tuple(params.items()), *counts)
