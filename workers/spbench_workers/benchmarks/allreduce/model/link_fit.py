"""Fit of alpha, beta and gamma of a link to times measured in the same job."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import fsum

from spbench_workers.benchmarks.allreduce.model.cost_model import LinkCosts

Point = tuple[int, float]
"""A number of bytes and the seconds for it."""

_STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447)
"""Student's t at 97.5 % for 1 to 6 degrees of freedom."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A fitted number with its 95 % confidence interval; neither is below 0."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Line:
    """A straight line of seconds over bytes.

    Attributes:
        start: Seconds at no bytes.
        slope: Seconds per byte.
        relative_residual: The relative residuals of the points (root mean square).
    """

    start: Estimate
    slope: Estimate
    relative_residual: float


@dataclass(frozen=True, slots=True)
class LinkFit:
    """The fitted link: alpha, beta and gamma.

    Attributes:
        alpha: Seconds per message.
        beta: Seconds per byte sent.
        gamma: Seconds per byte reduced.
        relative_residual: The relative residuals of the ping-pong times (root mean square).
    """

    alpha: Estimate
    beta: Estimate
    gamma: Estimate
    relative_residual: float

    @property
    def link(self) -> LinkCosts:
        """The fitted values."""
        return LinkCosts(self.alpha.value, self.beta.value, self.gamma.value)

    def interval(self, predict: Callable[[LinkCosts], float]) -> tuple[float, float]:
        """Return the bounds of a prediction within the intervals.

        Every prediction of the model rises with each of the three numbers, so the bounds are the
        predictions with all lower and with all upper ends.
        """
        low = LinkCosts(self.alpha.low, self.beta.low, self.gamma.low)
        high = LinkCosts(self.alpha.high, self.beta.high, self.gamma.high)
        return predict(low), predict(high)


def fit_link(ping_pong: Sequence[Point], reductions: Sequence[Point]) -> LinkFit:
    """Fit a link to one-way times of messages and to times of reductions.

    Gamma is the slope of the reductions; their constant time is ignored.

    Raises:
        ValueError: One of them has fewer than three sizes, or a time that is not above 0.
    """
    messages = fit_line(ping_pong)
    return LinkFit(
        messages.start, messages.slope, fit_line(reductions).slope, messages.relative_residual
    )


def fit_line(points: Sequence[Point]) -> Line:
    """Fit a line by least squares of relative errors, which weights all sizes equally.

    A start or slope below 0 is set to 0, and only the other one is fitted. Intervals are
    Student's, for independent errors in proportion to the time.

    Raises:
        ValueError: The points have fewer than three sizes, or a time that is not above 0.
    """
    if len({nbytes for nbytes, _ in points}) < 3:
        raise ValueError("a line needs times of at least three sizes")
    seconds_by_size = [seconds for _, seconds in points]
    if not all(seconds > 0.0 for seconds in seconds_by_size):
        raise ValueError("a line needs times above 0")
    sizes = [float(nbytes) for nbytes, _ in points]
    line = _fit_scaled_line(sizes, seconds_by_size, seconds_by_size)
    # Errors relative to measured times favour short ones; errors relative to the line do not.
    expected = [line.start.value + line.slope.value * size for size in sizes]
    return (
        _fit_scaled_line(sizes, seconds_by_size, expected)
        if line.start.value and line.slope.value
        else line
    )


def _fit_scaled_line(
    sizes: Sequence[float], seconds: Sequence[float], divisors: Sequence[float]
) -> Line:
    """Fit a line to times with errors in proportion to ``divisors``, no term below 0."""
    line = _fit_two_terms(sizes, seconds, divisors)
    if line.start.value <= 0.0:
        slope, relative_residual = _fit_one_term(sizes, seconds)
        return Line(_clip_to_zero(line.start), slope, relative_residual)
    if line.slope.value < 0.0:
        start, relative_residual = _fit_one_term([1.0] * len(seconds), seconds)
        return Line(start, _clip_to_zero(line.slope), relative_residual)
    return line


def _fit_two_terms(
    sizes: Sequence[float], seconds: Sequence[float], divisors: Sequence[float]
) -> Line:
    """Fit start and slope with errors in proportion to ``divisors``."""
    scaled_ones = [1.0 / divisor for divisor in divisors]
    scaled_sizes = _divide(sizes, divisors)
    scaled_seconds = _divide(seconds, divisors)
    ones_dot_ones = _dot(scaled_ones, scaled_ones)
    sizes_dot_sizes = _dot(scaled_sizes, scaled_sizes)
    ones_dot_sizes = _dot(scaled_ones, scaled_sizes)
    ones_dot_seconds = _dot(scaled_ones, scaled_seconds)
    sizes_dot_seconds = _dot(scaled_sizes, scaled_seconds)
    determinant = ones_dot_ones * sizes_dot_sizes - ones_dot_sizes * ones_dot_sizes
    start = (sizes_dot_sizes * ones_dot_seconds - ones_dot_sizes * sizes_dot_seconds) / determinant
    slope = (ones_dot_ones * sizes_dot_seconds - ones_dot_sizes * ones_dot_seconds) / determinant
    residuals = [
        y - start * a - slope * b
        for y, a, b in zip(scaled_seconds, scaled_ones, scaled_sizes, strict=True)
    ]
    degrees_of_freedom = len(residuals) - 2
    variance = _dot(residuals, residuals) / degrees_of_freedom / determinant
    return Line(
        _make_estimate(start, variance * sizes_dot_sizes, degrees_of_freedom),
        _make_estimate(slope, variance * ones_dot_ones, degrees_of_freedom),
        _root_mean_square(residuals),
    )


def _fit_one_term(column: Sequence[float], seconds: Sequence[float]) -> tuple[Estimate, float]:
    """Fit ``times = a column`` by relative errors; return the residual too."""
    ratios = _divide(column, seconds)
    ratios_dot_ratios = _dot(ratios, ratios)
    coefficient = fsum(ratios) / ratios_dot_ratios
    residuals = [1.0 - coefficient * ratio for ratio in ratios]
    degrees_of_freedom = len(residuals) - 1
    variance = _dot(residuals, residuals) / degrees_of_freedom / ratios_dot_ratios
    return _make_estimate(coefficient, variance, degrees_of_freedom), _root_mean_square(residuals)


def _make_estimate(value: float, variance: float, degrees_of_freedom: int) -> Estimate:
    half_width = student_t(degrees_of_freedom) * math.sqrt(variance)
    return Estimate(value, max(0.0, value - half_width), value + half_width)


def _clip_to_zero(estimate: Estimate) -> Estimate:
    """Return an estimate of 0 with the upper end of the interval of one below 0."""
    return Estimate(0.0, 0.0, max(0.0, estimate.high))


def _divide(values: Sequence[float], divisors: Sequence[float]) -> list[float]:
    return [value / divisor for value, divisor in zip(values, divisors, strict=True)]


def _dot(a: Sequence[float], b: Sequence[float]) -> float:
    return fsum(x * y for x, y in zip(a, b, strict=True))


def _root_mean_square(values: Sequence[float]) -> float:
    return math.sqrt(_dot(values, values) / len(values))


def student_t(degrees_of_freedom: int) -> float:
    """Return Student's t at 97.5 %: half of a 95 % interval in standard errors.

    Beyond the table it is an expansion around the normal quantile (Abramowitz and Stegun 26.7.5),
    correct to a thousandth.
    """
    if degrees_of_freedom <= len(_STUDENT):
        return _STUDENT[degrees_of_freedom - 1]
    return (
        1.95996
        + 2.37227 / degrees_of_freedom
        + 2.82250 / degrees_of_freedom**2
        + 2.55585 / degrees_of_freedom**3
    )
