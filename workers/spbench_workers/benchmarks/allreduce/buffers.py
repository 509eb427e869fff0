"""Source and result buffers of a collective between guard margins."""

from __future__ import annotations

import torch

from spbench_parallel.errors import catch_out_of_memory

_MARGIN = 64
"""Elements of a margin: whole cache lines in any format."""


class Buffers:
    """Source and result of a collective with guard margins, which no rank may write.

    Args:
        input_count: Elements of a rank's input.
        result_count: Elements of its output.
        offset: The first element of the input within the result, in place; None out of place.
        dtype: The format of both.
        device: The device of both.

    Attributes:
        source: The memory that the collective reads; the result itself, in place.
        result: The memory of the output.
        input: The input of the rank: the source, or in place a part of it.
    """

    def __init__(
        self,
        input_count: int,
        result_count: int,
        offset: int | None,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        element_counts = (
            [input_count, result_count] if offset is None else [max(input_count, result_count)]
        )
        self._poison = float("nan") if dtype.is_floating_point else torch.iinfo(dtype).min
        with catch_out_of_memory(sum(element_counts) * dtype.itemsize):
            self._memories = [
                torch.full((size + 2 * _MARGIN,), self._poison, dtype=dtype, device=device)
                for size in element_counts
            ]
        views = [memory[_MARGIN : len(memory) - _MARGIN] for memory in self._memories]
        self.source = views[0]
        self.result = views[-1]
        self.input = self.source if offset is None else self.source[offset : offset + input_count]

    @property
    def in_place(self) -> bool:
        """Whether the result overwrites the source."""
        return self.source is self.result

    def poison(self) -> None:
        """Make every element of the result wrong; in place, write the input afterwards."""
        self.result.fill_(self._poison)

    def count_margin_writes(self) -> int:
        """Return the number of elements in the margins that were written."""
        return sum(
            int((~self._is_poison(margin)).sum())
            for memory in self._memories
            for margin in (memory[:_MARGIN], memory[-_MARGIN:])
        )

    def _is_poison(self, values: torch.Tensor) -> torch.Tensor:
        return values.isnan() if values.is_floating_point() else values == self._poison
