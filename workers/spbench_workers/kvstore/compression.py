"""Gradient compression with error feedback, in MXNet's codes: what is not sent now stays owed.

An element's residual takes in its gradient; what the code stands for is sent and taken off, and
the rest is kept: what was delivered and the residual are together the sum of all gradients.

* ``2bit``: ``11`` is +t, ``10`` is -t, ``00`` nothing, for a residual from +t up, from -t down,
  and between. 16 elements are one word of four bytes.
* ``1bit``: ``1`` is +1, for a residual above t, and ``0`` is -1. 32 elements are one word.

Within a byte the first element has the top bits; codes of the last word that stand for no element
are zeros.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]
Code = npt.NDArray[np.uint8]
Bools = npt.NDArray[np.bool_]

THRESHOLD = 0.5
"""MXNet's default."""

WORD_BYTES = 4

_BLOCK = 1 << 15
"""Elements that go through all steps together: what stays in a core's cache. Whole words."""


class Compression(ABC):
    """What both codes have in common; it owns its scratch, so one thread at a time may use it.

    Gradients, residuals and results are float32 on one axis, codes are uint8 on one axis, all of
    them contiguous. No call allocates more than views.

    Args:
        threshold: t, above 0; it is rounded to float32.

    Attributes:
        name: Its name in COMPRESSIONS.
        word: Elements of a word.
        step: What one code can deliver at most.
    """

    name: str
    word: int
    step: float

    def __init__(self, threshold: float = THRESHOLD) -> None:
        if not 0 < threshold < float("inf"):
            raise ValueError(f"threshold {threshold} is not a number above 0")
        self.threshold = float(np.float32(threshold))
        self._per_byte = self.word // WORD_BYTES
        self._above = np.zeros(_BLOCK, np.bool_)
        self._below = np.zeros(_BLOCK, np.bool_)
        self._bytes = np.zeros(_BLOCK // self._per_byte, np.intp)
        self._sent = np.zeros((_BLOCK // self._per_byte, self._per_byte), np.float32)
        self._table = self._values_of_bytes()

    def words(self, elements: int) -> int:
        """Return the words that so many elements take."""
        return -(-elements // self.word)

    def nbytes(self, elements: int) -> int:
        """Return the bytes that so many elements take."""
        return WORD_BYTES * self.words(elements)

    def encode(self, gradient: Array, residual: Array, code: Code) -> None:
        """Take the gradient into the residual; write the code, take what it says off the residual.

        Args:
            gradient: n elements; they stay as they are.
            residual: n elements, zeros before the first call.
            code: ``nbytes(n)`` bytes; all of them are written.
        """
        for elements, bytes_ in self._blocks(len(gradient)):
            owed, part = residual[elements], code[bytes_]
            np.add(owed, gradient[elements], out=owed)
            self._choose(owed, len(part) * self._per_byte)
            index = self._bytes[: len(part)]
            self._pack(index)
            np.copyto(part, index, casting="unsafe")
            np.subtract(owed, self._values(index, len(owed)), out=owed)

    def decode(self, code: Code, into: Array) -> None:
        """Write what the code stands for. ``01`` is no code of ``2bit``: it becomes NaN."""
        for elements, bytes_ in self._blocks(len(into)):
            part = into[elements]
            np.copyto(part, self._decoded(code[bytes_], len(part)))

    def decode_add(self, code: Code, into: Array) -> None:
        """Add what the code stands for, in float32."""
        for elements, bytes_ in self._blocks(len(into)):
            part = into[elements]
            np.add(part, self._decoded(code[bytes_], len(part)), out=part)

    def saturated(self, residual: Array) -> int:
        """Count the elements that owe so much that gradients up to `step` cannot have led there.

        Where gradients stay larger than that, the residual grows without bound. NaN counts too.
        """
        low, high = self._bounds()
        count = 0
        for elements, _ in self._blocks(len(residual)):
            part = residual[elements]
            above, below = self._above[: len(part)], self._below[: len(part)]
            np.greater(part, low, out=above)
            np.less(part, high, out=below)
            np.logical_and(above, below, out=above)
            count += len(part) - int(np.count_nonzero(above))
        return count

    def _blocks(self, count: int) -> Iterator[tuple[slice, slice]]:
        """Give the elements of each block, and the bytes of their whole words."""
        for first in range(0, count, _BLOCK):
            last = min(first + _BLOCK, count)
            begin = first // self._per_byte
            yield slice(first, last), slice(begin, begin + self.nbytes(last - first))

    def _decoded(self, code: Code, count: int) -> Array:
        index = self._bytes[: len(code)]
        np.copyto(index, code)
        return self._values(index, count)

    def _values(self, index: npt.NDArray[np.intp], count: int) -> Array:
        """Return what the first ``count`` codes of these bytes stand for, in the scratch."""
        rows = self._sent[: len(index)]
        # Any other mode would have numpy keep a copy of the result.
        np.take(self._table, index, axis=0, out=rows, mode="clip")
        return rows.reshape(-1)[:count]

    def _values_of_bytes(self) -> Array:
        """Return a row for each byte: what its codes stand for, top bits first."""
        bits = 8 // self._per_byte
        shifts = range(8 - bits, -1, -bits)
        value_of = self._value_of_code()
        rows = [[value_of[byte >> at & (1 << bits) - 1] for at in shifts] for byte in range(256)]
        return np.array(rows, np.float32)

    @abstractmethod
    def _value_of_code(self) -> tuple[float, ...]:
        """Return what each code stands for."""

    @abstractmethod
    def _bounds(self) -> tuple[float, float]:
        """Return between what a residual stays while no gradient is larger than `step`."""

    @abstractmethod
    def _choose(self, owed: Array, padded: int) -> None:
        """Mark in the scratch what is sent of each element, and nothing from there to padded."""

    @abstractmethod
    def _pack(self, out: npt.NDArray[np.intp]) -> None:
        """Write the marks as bytes of code."""


class TwoBit(Compression):
    """Sends the threshold, its negative, or nothing."""

    name = "2bit"
    word = 16

    def __init__(self, threshold: float = THRESHOLD) -> None:
        super().__init__(threshold)
        self.step = self.threshold
        self._pluses = np.zeros(len(self._bytes), "<u4")
        self._minuses = np.zeros(len(self._bytes), "<u4")

    def _value_of_code(self) -> tuple[float, ...]:
        return 0.0, float("nan"), -self.threshold, self.threshold

    def _bounds(self) -> tuple[float, float]:
        return -self.threshold, self.threshold

    def _choose(self, owed: Array, padded: int) -> None:
        count = len(owed)
        np.greater_equal(owed, self.threshold, out=self._above[:count])
        np.less_equal(owed, -self.threshold, out=self._below[:count])
        self._above[count:padded] = False
        self._below[count:padded] = False

    def _pack(self, out: npt.NDArray[np.intp]) -> None:
        # Four marks are four bytes of one number. The factor moves code i to bits 30 - 2i of the
        # top byte; what it moves elsewhere meets nothing and hence carries nothing.
        gather = 1 << 30 | 1 << 20 | 1 << 10 | 1
        pluses, minuses = self._pluses[: len(out)], self._minuses[: len(out)]
        np.multiply(self._above.view("<u4")[: len(out)], 0b11 * gather, out=pluses)
        np.multiply(self._below.view("<u4")[: len(out)], 0b10 * gather, out=minuses)
        np.add(pluses, minuses, out=pluses)
        np.right_shift(pluses, 24, out=pluses)
        np.copyto(out, pluses)


class OneBit(Compression):
    """Sends 1 or -1, always."""

    name = "1bit"
    word = 32
    step = 1.0

    def __init__(self, threshold: float = THRESHOLD) -> None:
        super().__init__(threshold)
        self._marks = np.zeros(len(self._bytes), "<u8")

    def _value_of_code(self) -> tuple[float, ...]:
        return -1.0, 1.0

    def _bounds(self) -> tuple[float, float]:
        # What is sent at t + 1 leaves t, and that is not above t: the upper end is within.
        return self.threshold - 1, float(np.nextafter(np.float32(self.threshold + 1), np.inf))

    def _choose(self, owed: Array, padded: int) -> None:
        np.greater(owed, self.threshold, out=self._above[: len(owed)])
        self._above[len(owed) : padded] = False

    def _pack(self, out: npt.NDArray[np.intp]) -> None:
        # As with two bits: mark i of eight goes to bit 63 - i.
        gather = sum(1 << 9 * place for place in range(8))
        marks = self._marks[: len(out)]
        np.multiply(self._above.view("<u8")[: len(out)], gather, out=marks)
        np.right_shift(marks, 56, out=marks)
        np.copyto(out, marks, casting="unsafe")


COMPRESSIONS: dict[str, Callable[[float], Compression]] = {"2bit": TwoBit, "1bit": OneBit}


def make(name: str, threshold: float = THRESHOLD) -> Compression:
    """Return a compression by name, with scratch of its own.

    Raises:
        KeyError: The name is none of COMPRESSIONS.
        ValueError: The threshold is not above 0.
    """
    return COMPRESSIONS[name](threshold)
