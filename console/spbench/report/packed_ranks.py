"""Ranks of a case as compressed text: most of the memory that a large run takes is theirs."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, overload

from spbench.report.model import CasePart, RankPart

_FASTEST = 1
"""zlib's level: ranks are much alike, so that higher levels save little."""


class PackedRanks(Sequence[RankPart]):
    """The ranks of a case, made again each time that they are asked for.

    Args:
        ranks: The ranks as JSON has them, which fit the format.
    """

    def __init__(self, ranks: Sequence[dict[str, Any]]) -> None:
        self._count = len(ranks)
        self._packed = zlib.compress(json.dumps(ranks).encode(), _FASTEST)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[RankPart]:
        return iter(self._unpack())

    @overload
    def __getitem__(self, index: int) -> RankPart: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[RankPart]: ...
    def __getitem__(self, index: int | slice) -> RankPart | Sequence[RankPart]:
        return self._unpack()[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self._unpack() == list(other)

    __hash__ = None  # type: ignore[assignment]

    def _unpack(self) -> list[RankPart]:
        return [RankPart.model_validate(rank) for rank in json.loads(zlib.decompress(self._packed))]


def read_packed_case(case: Any) -> CasePart:
    """Return a case as JSON has it, checked against the format, with its ranks packed.

    Raises:
        ValueError: It does not fit the format.
    """
    part = CasePart.model_validate(case)
    # Fields of parts are not checked when they are copied: this is no list, and read like one.
    return part.model_copy(update={"ranks": PackedRanks(case["ranks"])})
