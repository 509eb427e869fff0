"""Training steps with Winograd convolutions, correct ones and faulty ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from support.runs import run_cases_on_ranks

RANKS = 2
PARAMS = {
    "version": 1,
    "depth": 8,
    "image_size": 32,
    "batch_size": 2,
    "num_classes": 5,
    "scheme": "sp",
    "split_size": 1,
    "grid": "1x2",
    "balance": "estimated",
    "baseline": False,
}
FAULTS = {
    "wrong-neighbour": "operators",
    "lost-halo-gradient": "operators",
    "zero-weight-gradient": "operators",
    "zero-input-gradient": "operators",
    "drop-tile": "operators",
    "scale-weight-gradient": "scales",
    "scale-input-gradient": "scales",
}
"""Faults that change a window over tiles, with the check that must detect each."""


def make_winograd_case(
    seed: int, fault: str | None = None, *, on_gpu: bool = True
) -> dict[str, Any]:
    """Return a case of ``check_winograd.py`` with error bounds of a GPU or CPU."""
    return {
        "benchmark": "model.resnet",
        "ranks": RANKS,
        "params": PARAMS | {"seed": seed},
        "inject": None if fault is None else f"full:{fault}",
        "on_gpu": on_gpu,
    }


def run_winograd_cases(
    cases: list[dict[str, Any]], folder: Path, *, seconds: float = 280
) -> list[list[dict[str, Any]]]:
    """Run the steps in one launch; return the results of the ranks by case."""
    results: list[list[dict[str, Any]]] = run_cases_on_ranks(
        RANKS, "check_winograd.py", folder, cases, seconds=seconds
    )
    return results


def find_largest_error(ranks: list[dict[str, Any]], check: str) -> float:
    """Return the largest error of a check over all ranks, relative to its bound."""
    return max(float(rank["errors"][check]) for rank in ranks)
