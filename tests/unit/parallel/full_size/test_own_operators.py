"""The operators of one rank that are computed again, of networks of the user's own."""

import pytest
import torch
from torch import fx, nn

from spbench_parallel.full_size.hooks import OperatorHooks
from spbench_parallel.models.imported.plain_modules import find_comparable_convs
from spbench_parallel.progress import NO_PROGRESS


class Doubled(nn.Conv2d):
    def forward(self, images):
        return 2.0 * super().forward(images)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 3, 3, padding=1)
        self.twice = nn.Conv2d(3, 3, 1)
        self.tied = nn.Conv2d(3, 3, 1)
        self.own = Doubled(3, 3, 1)
        self.mirrored = nn.Conv2d(3, 3, 3, padding=1, padding_mode="reflect")
        self.hooked = nn.Conv2d(3, 3, 1)
        self.hooked.register_forward_hook(lambda *_: None)

    def forward(self, images):
        maps = self.twice(self.twice(self.first(images)))
        maps = nn.functional.conv2d(self.tied(maps), self.tied.weight)
        return self.hooked(self.mirrored(self.own(maps)))


class Tracer(fx.Tracer):
    def is_leaf_module(self, module, name):
        return isinstance(module, nn.Conv2d)


def test_only_torchs_own_convolutions_that_run_once_are_compared():
    net = Net()
    piece = fx.GraphModule(net, Tracer().trace(net))
    assert find_comparable_convs(nn.Sequential(piece)) == [piece.first]
    assert len(find_comparable_convs(net)) == 6  # spbench's own models have no such cases


class Recorder:
    """Keeps the gradients of the weight of each call that is complete."""

    def __init__(self):
        self.calls = []

    def check(self, call):
        self.calls.append((call.pixels.clone(), call.parameter_gradients["weight"].clone()))


@pytest.mark.parametrize("backwards", [False, True], ids=["in order", "last first"])
@pytest.mark.parametrize("most", [1, 2, None])
def test_the_first_calls_have_their_own_gradients(most, backwards):
    torch.manual_seed(0)
    conv = nn.Conv2d(2, 2, 1, bias=False)
    recorder = Recorder()
    hooks = OperatorHooks(conv, recorder, NO_PROGRESS, learns=True, max_calls=most)
    images = [torch.randn(1, 2, 3, 3) for _ in range(3)]
    losses = [conv(one).square().sum() for one in images]
    for loss in reversed(losses) if backwards else losses:
        loss.backward()
    hooks.remove()
    checked = images[:most]
    found = recorder.calls[::-1] if backwards else recorder.calls
    assert len(found) == len(checked)
    for one, (pixels, gradient) in zip(checked, found, strict=True):
        (wanted,) = torch.autograd.grad(conv(one).square().sum(), conv.weight)
        assert torch.equal(pixels, one)
        torch.testing.assert_close(gradient, wanted)
