"""Running statistics of mirrored pipelines: each norm's own share, and none without one."""

import pytest
import torch
from torch import nn

from spbench_workers.errors import CannotRunError
from spbench_workers.parallel.training.running_statistics import FlatStatistics


def test_each_norm_keeps_its_own_share():
    stage = nn.Sequential(
        nn.BatchNorm2d(2, momentum=0.1),
        nn.BatchNorm2d(1, track_running_stats=False),
        nn.BatchNorm1d(3, momentum=0.5),
    )
    found = FlatStatistics(stage)
    assert found.keep.tolist() == pytest.approx([0.9] * 4 + [0.5] * 6)
    found.flat.mul_(7.0)
    assert torch.equal(stage[2].running_var, torch.full((3,), 7.0))
    assert torch.equal(stage[0].running_mean, torch.zeros(2))


def test_a_stage_without_norms_has_none():
    assert FlatStatistics(nn.Conv2d(3, 3, 1)).keep.numel() == 0


def test_a_norm_without_momentum_is_refused_in_one_sentence():
    with pytest.raises(CannotRunError, match="which takes a momentum; give it one, or take scheme"):
        FlatStatistics(nn.BatchNorm2d(2, momentum=None))
