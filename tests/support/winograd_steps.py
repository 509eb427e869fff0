"""Steps at full size on ranks that convolve by Winograd's algorithm, right ones and faulty ones."""

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
"""The faults at full size that change a window over tiles, and the check that must find each."""


def make_winograd_case(
    seed: int, fault: str | None = None, *, on_gpu: bool = True
) -> dict[str, Any]:
    """Return a case of ``check_winograd.py``; ``on_gpu``: its bounds are those of a GPU."""
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
    """Take the steps in one launch; return by case what each rank found."""
    results: list[list[dict[str, Any]]] = run_cases_on_ranks(
        RANKS, "check_winograd.py", folder, cases, seconds=seconds
    )
    return results


def find_largest_error(ranks: list[dict[str, Any]], check: str) -> float:
    """Return the largest error over its bound of a check, of all ranks."""
    return max(float(rank["errors"][check]) for rank in ranks)
