"""Types of groups of tensors."""

from __future__ import annotations

import torch

TensorTuple = tuple[torch.Tensor, ...]
TensorOrTuple = torch.Tensor | TensorTuple
"""The data between two layers."""
