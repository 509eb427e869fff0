"""Running statistics of mirrored pipelines: each norm's own share, and none without one."""

import pytest
import torch
from torch import nn

from spbench_parallel.errors import CannotRunError
from spbench_parallel.training.running_statistics import FlatStatistics


def test_each_norm_keeps_its_own_share():
    stage = nn.Sequential(
        nn.BatchNorm2d(2, momentum=0.1),
        nn.BatchNorm2d(1, track_running_stats=False),
        nn.BatchNorm1d(3, momentum=0.5),
    )
    stage[2].running_mean.fill_(8.0)
    stage[0].running_mean.fill_(1.0)
    found = FlatStatistics(stage)
    before = found.flat.clone()
    found.decay(2)
    assert torch.equal(stage[2].running_var, torch.full((3,), 0.25))
    assert torch.equal(stage[2].running_mean, torch.full((3,), 2.0))
    assert torch.allclose(stage[0].running_mean, torch.full((2,), 0.81))
    assert stage[1].running_mean is None
    found.add_decayed(before, 1)
    assert torch.equal(stage[2].running_mean, torch.full((3,), 2.0 + 4.0))
    assert torch.allclose(stage[0].running_var, torch.full((2,), 0.81 + 0.9))


def test_a_stage_without_norms_has_none():
    found = FlatStatistics(nn.Conv2d(3, 3, 1))
    found.decay(3)
    assert found.flat.numel() == 0


def test_a_norm_without_momentum_is_refused_in_one_sentence():
    with pytest.raises(CannotRunError, match="which takes a momentum; give it one, or take scheme"):
        FlatStatistics(nn.BatchNorm2d(2, momentum=None))
