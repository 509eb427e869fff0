"""Synthetic images for a plan's model, for comparisons and timings."""

from __future__ import annotations

import torch

from spbench_parallel.images.synthetic import SyntheticImages
from spbench_parallel.plan import ModelPlan


def synthetic_images(
    plan: ModelPlan, seed: int, dtype: torch.dtype | None = None
) -> SyntheticImages:
    """Return images for a plan's model, with a class per image or per pixel.

    Args:
        plan: The model.
        seed: The seed of all images.
        dtype: The number format of the pixels (default: that of the plan).
    """
    model = plan.model
    return SyntheticImages(
        model.image,
        model.classes,
        seed=seed,
        masked=model.is_segmentation,
        dtype=dtype or plan.dtype,
        device=plan.device,
    )
