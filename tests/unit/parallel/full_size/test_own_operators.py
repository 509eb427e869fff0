"""The recomputed operators of one rank, in networks of the user."""

import pytest
import torch
from torch import fx, nn

from spbench_parallel.full_size.hooks import OperatorHooks
from spbench_parallel.models.imported.plain_modules import find_comparable_convs
from spbench_parallel.progress import NO_PROGRESS


class DoublingConv(nn.Conv2d):
    def forward(self, images):
        return 2.0 * super().forward(images)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 3, 3, padding=1)
        self.twice = nn.Conv2d(3, 3, 1)
        self.tied = nn.Conv2d(3, 3, 1)
        self.doubling = DoublingConv(3, 3, 1)
        self.mirrored = nn.Conv2d(3, 3, 3, padding=1, padding_mode="reflect")
        self.hooked = nn.Conv2d(3, 3, 1)
        self.hooked.register_forward_hook(lambda *_: None)

    def forward(self, images):
        maps = self.twice(self.twice(self.first(images)))
        maps = nn.functional.conv2d(self.tied(maps), self.tied.weight)
        return self.hooked(self.mirrored(self.doubling(maps)))


class Tracer(fx.Tracer):
    def is_leaf_module(self, module, name):
        return isinstance(module, nn.Conv2d)


def test_compares_only_plain_convolutions_that_run_once():
    net = Net()
    piece = fx.GraphModule(net, Tracer().trace(net))
    assert find_comparable_convs(nn.Sequential(piece)) == [piece.first]
    assert len(find_comparable_convs(net)) == 6  # spbench's models have no such cases


class Recorder:
    """Keep the weight gradients of each complete call."""

    def __init__(self):
        self.calls = []

    def check(self, call):
        self.calls.append((call.pixels.clone(), call.parameter_gradients["weight"].clone()))


@pytest.mark.parametrize("backwards", [False, True], ids=["in order", "last first"])
@pytest.mark.parametrize("max_calls", [1, 2, None])
def test_the_first_calls_have_separate_gradients(max_calls, backwards):
    torch.manual_seed(0)
    conv = nn.Conv2d(2, 2, 1, bias=False)
    recorder = Recorder()
    hooks = OperatorHooks(conv, recorder, NO_PROGRESS, learns=True, max_calls=max_calls)
    images = [torch.randn(1, 2, 3, 3) for _ in range(3)]
    losses = [conv(batch).square().sum() for batch in images]
    for loss in reversed(losses) if backwards else losses:
        loss.backward()
    hooks.remove()
    checked = images[:max_calls]
    calls = recorder.calls[::-1] if backwards else recorder.calls
    assert len(calls) == len(checked)
    for batch, (pixels, gradient) in zip(checked, calls, strict=True):
        (expected,) = torch.autograd.grad(conv(batch).square().sum(), conv.weight)
        assert torch.equal(pixels, batch)
        torch.testing.assert_close(gradient, expected)
