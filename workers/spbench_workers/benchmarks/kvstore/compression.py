"""Gradient compression with error feedback, in MXNet's codes.

An element's gradient is added to its residual. The value of the code is sent and subtracted from
the residual. So delivered values and residual together are the sum of all gradients.

* ``2bit``: ``11`` is +t for a residual of at least +t, ``10`` is -t for a residual of at most -t,
  and ``00`` is 0 for the others. 16 elements are one word of four bytes.
* ``1bit``: ``1`` is +1 for a residual above t, and ``0`` is -1. 32 elements are one word.

Within a byte the first element has the top bits. Padding codes of the last word are zeros.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from spbench_workers.benchmarks.kvstore.arrays import Float32Array

Code = npt.NDArray[np.uint8]

THRESHOLD = 0.5
"""The default of MXNet."""

WORD_BYTES = 4

BLOCK_ELEMENTS = 1 << 15
"""Elements processed by all steps together: whole words that fit in a core's cache."""


class Compression(ABC):
    """A gradient compression; it owns scratch memory, so it is not thread-safe.

    Gradients, residuals and results are one-dimensional float32 arrays, and codes are
    one-dimensional uint8 arrays. All are contiguous. Calls allocate only views.

    Args:
        threshold: The threshold t, above 0; it is rounded to float32.
        block_elements: Elements processed by all steps together: whole words.

    Attributes:
        name: Its name in COMPRESSIONS.
        word: Elements of a word.
        step: The largest value that one code delivers.
    """

    name: str
    word: int
    step: float

    def __init__(self, threshold: float = THRESHOLD, block_elements: int = BLOCK_ELEMENTS) -> None:
        if not 0 < threshold < float("inf"):
            raise ValueError(f"threshold {threshold} is not a number above 0")
        self.threshold = float(np.float32(threshold))
        self._per_byte = self.word // WORD_BYTES
        self._block_elements = block_elements
        block_bytes = block_elements // self._per_byte
        self._above = np.zeros(block_elements, np.bool_)
        self._below = np.zeros(block_elements, np.bool_)
        self._bytes = np.zeros(block_bytes, np.intp)
        self._values_scratch = np.zeros((block_bytes, self._per_byte), np.float32)
        self._table = self._build_byte_table()

    def count_words(self, elements: int) -> int:
        """Return the words of a number of elements."""
        return -(-elements // self.word)

    def nbytes(self, elements: int) -> int:
        """Return the bytes of a number of elements."""
        return WORD_BYTES * self.count_words(elements)

    def encode(self, gradient: Float32Array, residual: Float32Array, code: Code) -> None:
        """Add the gradient to the residual, write the code, and subtract its value.

        Args:
            gradient: n elements; unchanged.
            residual: n elements, zeros before the first call.
            code: ``nbytes(n)`` bytes, which are all written.
        """
        for element_slice, code_slice in self._blocks(len(gradient)):
            residual_block = residual[element_slice]
            code_block = code[code_slice]
            np.add(residual_block, gradient[element_slice], out=residual_block)
            self._set_flags(residual_block, len(code_block) * self._per_byte)
            byte_indices = self._bytes[: len(code_block)]
            self._pack_flags(byte_indices)
            np.copyto(code_block, byte_indices, casting="unsafe")
            np.subtract(
                residual_block,
                self._look_up_values(byte_indices, len(residual_block)),
                out=residual_block,
            )

    def decode(self, code: Code, into: Float32Array) -> None:
        """Write the values of the codes; the invalid ``2bit`` code ``01`` becomes NaN."""
        for element_slice, code_slice in self._blocks(len(into)):
            value_block = into[element_slice]
            np.copyto(value_block, self._decode_block(code[code_slice], len(value_block)))

    def decode_add(self, code: Code, into: Float32Array) -> None:
        """Add the values of the codes, in float32."""
        for element_slice, code_slice in self._blocks(len(into)):
            value_block = into[element_slice]
            np.add(
                value_block, self._decode_block(code[code_slice], len(value_block)), out=value_block
            )

    def count_saturated(self, residual: Float32Array) -> int:
        """Count residuals larger than gradients of at most `step` can produce.

        If gradients stay larger than `step`, the residual grows without bound. NaN counts too.
        """
        low, high = self._residual_bounds()
        saturated = 0
        for element_slice, _ in self._blocks(len(residual)):
            residual_block = residual[element_slice]
            above = self._above[: len(residual_block)]
            below = self._below[: len(residual_block)]
            np.greater(residual_block, low, out=above)
            np.less(residual_block, high, out=below)
            np.logical_and(above, below, out=above)
            saturated += len(residual_block) - int(np.count_nonzero(above))
        return saturated

    def _blocks(self, count: int) -> Iterator[tuple[slice, slice]]:
        """Yield the elements of each block and the bytes of their words."""
        for first in range(0, count, self._block_elements):
            last = min(first + self._block_elements, count)
            first_byte = first // self._per_byte
            yield slice(first, last), slice(first_byte, first_byte + self.nbytes(last - first))

    def _decode_block(self, code: Code, count: int) -> Float32Array:
        byte_indices = self._bytes[: len(code)]
        np.copyto(byte_indices, code)
        return self._look_up_values(byte_indices, count)

    def _look_up_values(self, byte_indices: npt.NDArray[np.intp], count: int) -> Float32Array:
        """Return the values of the first ``count`` codes of the bytes, in scratch memory."""
        rows = self._values_scratch[: len(byte_indices)]
        # In any other mode numpy buffers the result in a copy.
        np.take(self._table, byte_indices, axis=0, out=rows, mode="clip")
        return rows.reshape(-1)[:count]

    def _build_byte_table(self) -> Float32Array:
        """Return a row for each byte with the values of its codes, top bits first."""
        bits_per_code = 8 // self._per_byte
        shifts = range(8 - bits_per_code, -1, -bits_per_code)
        code_values = self._code_values()
        rows = [
            [code_values[byte >> shift & (1 << bits_per_code) - 1] for shift in shifts]
            for byte in range(256)
        ]
        return np.array(rows, np.float32)

    @abstractmethod
    def _code_values(self) -> tuple[float, ...]:
        """Return the value of each code."""

    @abstractmethod
    def _residual_bounds(self) -> tuple[float, float]:
        """Return the open interval of residuals for gradients of at most `step`."""

    @abstractmethod
    def _set_flags(self, residuals: Float32Array, padded: int) -> None:
        """Set the flags of each element's code, and clear the rest up to ``padded``."""

    @abstractmethod
    def _pack_flags(self, out: npt.NDArray[np.intp]) -> None:
        """Write the flags as bytes of code."""


class TwoBit(Compression):
    """The 2-bit compression: an element's code is the threshold, its negative, or 0."""

    name = "2bit"
    word = 16

    def __init__(self, threshold: float = THRESHOLD, block_elements: int = BLOCK_ELEMENTS) -> None:
        super().__init__(threshold, block_elements)
        self.step = self.threshold
        self._pluses = np.zeros(len(self._bytes), "<u4")
        self._minuses = np.zeros(len(self._bytes), "<u4")

    def _code_values(self) -> tuple[float, ...]:
        return 0.0, float("nan"), -self.threshold, self.threshold

    def _residual_bounds(self) -> tuple[float, float]:
        return -self.threshold, self.threshold

    def _set_flags(self, residuals: Float32Array, padded: int) -> None:
        count = len(residuals)
        np.greater_equal(residuals, self.threshold, out=self._above[:count])
        np.less_equal(residuals, -self.threshold, out=self._below[:count])
        self._above[count:padded] = False
        self._below[count:padded] = False

    def _pack_flags(self, out: npt.NDArray[np.intp]) -> None:
        # Four flags are the bytes of one number. The factor moves code i to bits 30 - 2i, in the
        # top byte. All other products fall on distinct bits below, so no carry occurs.
        multiplier = 1 << 30 | 1 << 20 | 1 << 10 | 1
        pluses = self._pluses[: len(out)]
        minuses = self._minuses[: len(out)]
        np.multiply(self._above.view("<u4")[: len(out)], 0b11 * multiplier, out=pluses)
        np.multiply(self._below.view("<u4")[: len(out)], 0b10 * multiplier, out=minuses)
        np.add(pluses, minuses, out=pluses)
        np.right_shift(pluses, 24, out=pluses)
        np.copyto(out, pluses)


class OneBit(Compression):
    """The 1-bit compression: an element's code is 1 or -1."""

    name = "1bit"
    word = 32
    step = 1.0

    def __init__(self, threshold: float = THRESHOLD, block_elements: int = BLOCK_ELEMENTS) -> None:
        super().__init__(threshold, block_elements)
        self._flags = np.zeros(len(self._bytes), "<u8")

    def _code_values(self) -> tuple[float, ...]:
        return -1.0, 1.0

    def _residual_bounds(self) -> tuple[float, float]:
        # A residual of t + 1 becomes t, which is not above t, so the upper end is included.
        return self.threshold - 1, float(np.nextafter(np.float32(self.threshold + 1), np.inf))

    def _set_flags(self, residuals: Float32Array, padded: int) -> None:
        np.greater(residuals, self.threshold, out=self._above[: len(residuals)])
        self._above[len(residuals) : padded] = False

    def _pack_flags(self, out: npt.NDArray[np.intp]) -> None:
        # Like with two bits, flag i of eight goes to bit 63 - i.
        multiplier = sum(1 << 9 * position for position in range(8))
        flags = self._flags[: len(out)]
        np.multiply(self._above.view("<u8")[: len(out)], multiplier, out=flags)
        np.right_shift(flags, 56, out=flags)
        np.copyto(out, flags, casting="unsafe")


COMPRESSIONS: dict[str, Callable[[float, int], Compression]] = {"2bit": TwoBit, "1bit": OneBit}


def create_compression(
    name: str, threshold: float = THRESHOLD, *, block_elements: int = BLOCK_ELEMENTS
) -> Compression:
    """Return a new compression by name.

    Raises:
        KeyError: The name is not in COMPRESSIONS.
        ValueError: The threshold is not above 0.
    """
    return COMPRESSIONS[name](threshold, block_elements)
