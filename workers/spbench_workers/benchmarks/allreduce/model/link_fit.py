"""Alpha, beta and gamma of a link, fitted to times that were measured in the same job."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import fsum

from spbench_workers.benchmarks.allreduce.model.cost_model import LinkCosts

Point = tuple[int, float]
"""Bytes, and their seconds."""

_STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447)
"""Student's t at 97.5 % for 1 to 6 degrees of freedom."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A fitted number, with its 95 % confidence interval; neither is below 0."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Line:
    """A straight line of seconds over bytes.

    Attributes:
        start: Seconds at no bytes.
        slope: Seconds a byte.
        spread: The relative residuals of the points (root mean square).
    """

    start: Estimate
    slope: Estimate
    spread: float


@dataclass(frozen=True, slots=True)
class LinkFit:
    """The fitted link: alpha, beta and gamma.

    Attributes:
        alpha: Seconds a message.
        beta: Seconds a byte sent.
        gamma: Seconds a byte reduced.
        spread: The relative residuals of the ping-pong times (root mean square).
    """

    alpha: Estimate
    beta: Estimate
    gamma: Estimate
    spread: float

    @property
    def link(self) -> LinkCosts:
        """The fitted values."""
        return LinkCosts(self.alpha.value, self.beta.value, self.gamma.value)

    def interval(self, predict: Callable[[LinkCosts], float]) -> tuple[float, float]:
        """Return the least and the most that a prediction can be within the intervals.

        Every prediction of the model rises with each of the three numbers, so that it is enough
        to ask for all lower and all upper ends.
        """
        low = LinkCosts(self.alpha.low, self.beta.low, self.gamma.low)
        high = LinkCosts(self.alpha.high, self.beta.high, self.gamma.high)
        return predict(low), predict(high)


def fit_link(ping_pong: Sequence[Point], reductions: Sequence[Point]) -> LinkFit:
    """Fit a link to one-way times of messages and to times of reductions, by size.

    Gamma is the slope of the reductions; the time of a reduction of no bytes is left out.

    Raises:
        ValueError: One of them has fewer than three sizes, or a time that is not above 0.
    """
    messages = fit_line(ping_pong)
    return LinkFit(messages.start, messages.slope, fit_line(reductions).slope, messages.spread)


def fit_line(points: Sequence[Point]) -> Line:
    """Fit a line by least squares of the relative errors, so that small sizes count as much.

    Where start or slope come out below 0 they are set to 0, and only the other is fitted.
    Intervals are Student's, for errors that are a share of the time and independent.

    Raises:
        ValueError: The points have fewer than three sizes, or a time that is not above 0.
    """
    if len({nbytes for nbytes, _ in points}) < 3:
        raise ValueError("a line needs times of at least three sizes")
    times = [seconds for _, seconds in points]
    if not all(seconds > 0.0 for seconds in times):
        raise ValueError("a line needs times above 0")
    sizes = [float(nbytes) for nbytes, _ in points]
    line = _line(sizes, times, times)
    # Errors relative to the times favour short ones; errors relative to the line do not.
    expected = [line.start.value + line.slope.value * size for size in sizes]
    return _line(sizes, times, expected) if line.start.value and line.slope.value else line


def _line(sizes: Sequence[float], times: Sequence[float], scale: Sequence[float]) -> Line:
    """Fit a line to times with errors as large as ``scale``, with no term below 0."""
    start, slope, spread = _two_terms(sizes, times, scale)
    if start.value <= 0.0:
        fitted, spread = _one_term(sizes, times)
        return Line(_none(start), fitted, spread)
    if slope.value < 0.0:
        fitted, spread = _one_term([1.0] * len(times), times)
        return Line(fitted, _none(slope), spread)
    return Line(start, slope, spread)


def _two_terms(
    sizes: Sequence[float], times: Sequence[float], scale: Sequence[float]
) -> tuple[Estimate, Estimate, float]:
    """Fit start and slope to times with errors as large as ``scale``; last is the spread."""
    ones = [1.0 / by for by in scale]
    wide = _over(sizes, scale)
    one = _over(times, scale)
    aa = _dot(ones, ones)
    bb = _dot(wide, wide)
    ab = _dot(ones, wide)
    a_one = _dot(ones, one)
    b_one = _dot(wide, one)
    determinant = aa * bb - ab * ab
    start = (bb * a_one - ab * b_one) / determinant
    slope = (aa * b_one - ab * a_one) / determinant
    left = [y - start * a - slope * b for y, a, b in zip(one, ones, wide, strict=True)]
    freedom = len(left) - 2
    variance = _dot(left, left) / freedom / determinant
    estimates = _estimate(start, variance * bb, freedom), _estimate(slope, variance * aa, freedom)
    return *estimates, _root_mean_square(left)


def _one_term(column: Sequence[float], times: Sequence[float]) -> tuple[Estimate, float]:
    """Fit ``times = a column`` by the relative errors; last is the spread."""
    shares = _over(column, times)
    square = _dot(shares, shares)
    a = fsum(shares) / square
    left = [1.0 - a * share for share in shares]
    freedom = len(left) - 1
    variance = _dot(left, left) / freedom / square
    return _estimate(a, variance, freedom), _root_mean_square(left)


def _estimate(value: float, variance: float, freedom: int) -> Estimate:
    half = student_t(freedom) * math.sqrt(variance)
    return Estimate(value, max(0.0, value - half), value + half)


def _none(estimate: Estimate) -> Estimate:
    """Return 0 for an estimate below 0, with the upper end of its interval."""
    return Estimate(0.0, 0.0, max(0.0, estimate.high))


def _over(values: Sequence[float], by: Sequence[float]) -> list[float]:
    return [value / divisor for value, divisor in zip(values, by, strict=True)]


def _dot(a: Sequence[float], b: Sequence[float]) -> float:
    return fsum(one * two for one, two in zip(a, b, strict=True))


def _root_mean_square(values: Sequence[float]) -> float:
    return math.sqrt(_dot(values, values) / len(values))


def student_t(freedom: int) -> float:
    """Return Student's t at 97.5 %: half a 95 % interval in standard errors.

    Beyond the table it is expanded around the normal quantile (Abramowitz and Stegun 26.7.5), and
    right to a thousandth.
    """
    if freedom <= len(_STUDENT):
        return _STUDENT[freedom - 1]
    return 1.95996 + 2.37227 / freedom + 2.82250 / freedom**2 + 2.55585 / freedom**3
