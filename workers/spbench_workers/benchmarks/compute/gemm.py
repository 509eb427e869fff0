"""Benchmark ``compute.gemm``: the speed of each rank's matrix products."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from spbench_parallel.device.formats import torch_dtype
from spbench_parallel.device.streams import synchronize_stream
from spbench_workers.benchmarks.compute.entry import GemmParams
from spbench_workers.context import Context
from spbench_workers.device_choice import choose_device
from spbench_workers.exact_numbers import (
    choose_distribution,
    compute_largest_sum,
    draw_whole_numbers,
    fill_uniform,
    insert_wide,
    shows_tf32,
)
from spbench_workers.single_rank_baseline import report_rate_and_limit
from spbench_workers.timing import measure

_ROWS = 256
"""Rows that are converted to float64 and multiplied at once in checks."""
_SPOT_CHECKS = 8
_VECTOR_MAX = 1 << 20
"""Keeps numbers at most 2^50, with sums of at most 2^14 and 65536 columns."""


@dataclass(frozen=True, slots=True)
class Matrices:
    """A matrix product: the two factors and the result."""

    left: torch.Tensor
    right: torch.Tensor
    result: torch.Tensor

    def multiply(self) -> None:
        """Compute the result, and wait until it is complete."""
        torch.mm(self.left, self.right, out=self.result)
        synchronize_stream(self.result.device)

    def multiply_and_corrupt(self) -> None:
        """Compute the result and change one value of it, by at least 1."""
        self.multiply()
        value = self.result[-1, -1]
        value.copy_(torch.where(value.abs() < 2, value + 4, torch.zeros_like(value)))


def run(context: Context) -> None:
    """Run the case."""
    matrices = open_matrices(context)
    planted = context.planted("corrupt-result")
    body = matrices.multiply_and_corrupt if planted else matrices.multiply
    before = check_product(context, body, matrices, "before")
    fill_uniform(context, "gemm", (matrices.left, matrices.right))
    times_ms = measure(context, body)
    after = check_product(context, body, matrices, "after")
    error, detail = before if before[0] else after
    # No step of the product of whole numbers rounds, so a right result is exact.
    context.check("product", error, 0.0, detail)
    report_rate_and_limit(
        context, matrices.multiply, times_ms, rate="gflops", work_per_iteration=count_gflop(context)
    )


def open_matrices(context: Context) -> Matrices:
    """Return the matrices of a case on this rank's device, without values."""
    params = context.read_params(GemmParams)
    n = params.n
    dtype = torch_dtype(params.dtype)
    device = choose_device(context, tf32=params.dtype == "tf32")
    empty = [torch.empty((n, n), dtype=dtype, device=device) for _ in range(3)]
    return Matrices(*empty)


def count_gflop(context: Context) -> float:
    """Return the floating-point operations of one product in 1e9."""
    return 2.0 * float(context.read_params(GemmParams).n) ** 3 / 1e9


def check_product(
    context: Context, body: Callable[[], object], matrices: Matrices, phase: str
) -> tuple[float, str]:
    """Multiply fresh matrices; return the largest error and its position."""
    params = context.read_params(GemmParams)
    context.progress("check", 0, 1)
    n = params.n
    dtype = matrices.left.dtype
    seeds = [context.seed_for("gemm", context.world.rank, phase, part) for part in range(4)]
    left, right = draw_factors(n, dtype, seeds, tf32=params.dtype == "tf32")
    matrices.left.copy_(left)
    matrices.right.copy_(right)
    matrices.result.fill_(float("nan"))
    body()
    result = matrices.result.cpu()
    error, detail = check_rows(left, right, result, seeds[2])
    if error:
        return error, detail
    return check_values(left, right, result, seeds[2])


def draw_factors(
    n: int, dtype: torch.dtype, seeds: Sequence[int], *, tf32: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return two float64 matrices of whole numbers with an exact product in ``dtype``.

    If the sums leave enough range, each row of the left matrix has a number that TF32 would round,
    so that TF32 changes the product.

    Args:
        n: The number of rows and of columns.
        dtype: The format in memory.
        seeds: The seeds of the left matrix, of the right matrix, and last of the numbers that TF32
            rounds.
        tf32: Whether the device multiplies in TF32, which must then represent all numbers.
    """
    max_exact = compute_largest_sum(dtype)
    has_wide_values = shows_tf32(max_exact) and not tf32
    distribution = choose_distribution(n, max_exact, wide=has_wide_values)
    left, right = (draw_whole_numbers((n, n), distribution, seed) for seed in seeds[:2])
    if has_wide_values:
        insert_wide(left, 1, seeds[-1])
    return left, right


def check_rows(
    left: torch.Tensor, right: torch.Tensor, result: torch.Tensor, seed: int
) -> tuple[float, str]:
    """Compare ``result x`` with ``left (right x)`` for a random vector x (Freivalds).

    x has whole numbers from 1 to `_VECTOR_MAX`, so that float64 adds the products without rounding.
    One wrong value of a row is always found; several are missed only if their errors cancel.
    """
    n = left.shape[0]
    generator = torch.Generator().manual_seed(seed)
    vector = torch.randint(1, _VECTOR_MAX + 1, (n,), generator=generator).double()
    right_times_vector = _multiply_vector(right, vector)
    errors = (_multiply_vector(result, vector) - _multiply_vector(left, right_times_vector)).abs()
    if bool((errors == 0.0).all()):
        return 0.0, ""
    row = int((errors != 0.0).nonzero()[0])
    return float(errors.max()), f"row {row} of the product is wrong (times a random vector)"


def check_values(
    left: torch.Tensor, right: torch.Tensor, result: torch.Tensor, seed: int
) -> tuple[float, str]:
    """Compare random values with sums of Python integers."""
    n = left.shape[0]
    draw = random.Random(seed)
    for _ in range(_SPOT_CHECKS):
        row = draw.randrange(n)
        col = draw.randrange(n)
        pairs = zip(left[row].tolist(), right[:, col].tolist(), strict=True)
        expected = sum(int(a) * int(b) for a, b in pairs)
        actual = float(result[row, col])
        if actual != expected:
            detail = f"row {row}, col {col} of the product is {actual:g}, not {expected}"
            return abs(actual - expected), detail
    return 0.0, ""


def _multiply_vector(matrix: torch.Tensor, vector: torch.Tensor) -> torch.Tensor:
    """Return a matrix times a vector in float64, without using a BLAS product."""
    parts = [(rows.double() * vector).sum(1) for rows in torch.split(matrix, _ROWS)]
    return torch.cat(parts)
