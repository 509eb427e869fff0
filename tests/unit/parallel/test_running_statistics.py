"""Running statistics of mirrored pipelines: the share of each norm."""

import pytest
import torch
from torch import nn

from spbench_parallel.errors import CannotRunError
from spbench_parallel.training.running_statistics import FlatStatistics


def test_decays_each_norm_by_its_momentum():
    stage = nn.Sequential(
        nn.BatchNorm2d(2, momentum=0.1),
        nn.BatchNorm2d(1, track_running_stats=False),
        nn.BatchNorm1d(3, momentum=0.5),
    )
    stage[2].running_mean.fill_(8.0)
    stage[0].running_mean.fill_(1.0)
    statistics = FlatStatistics(stage)
    before = statistics.flat_tensor.clone()
    statistics.decay(2)
    assert torch.equal(stage[2].running_var, torch.full((3,), 0.25))
    assert torch.equal(stage[2].running_mean, torch.full((3,), 2.0))
    assert torch.allclose(stage[0].running_mean, torch.full((2,), 0.81))
    assert stage[1].running_mean is None
    statistics.add_decayed(before, 1)
    assert torch.equal(stage[2].running_mean, torch.full((3,), 2.0 + 4.0))
    assert torch.allclose(stage[0].running_var, torch.full((2,), 0.81 + 0.9))


def test_a_stage_without_norms_has_no_statistics():
    statistics = FlatStatistics(nn.Conv2d(3, 3, 1))
    statistics.decay(3)
    assert statistics.flat_tensor.numel() == 0


def test_rejects_a_norm_without_momentum():
    with pytest.raises(CannotRunError, match="which takes a momentum; give it one, or take scheme"):
        FlatStatistics(nn.BatchNorm2d(2, momentum=None))
