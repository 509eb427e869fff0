"""Gradients of weights that are computed after those of data."""

import copy
import weakref

import pytest
import torch
from torch import nn

from spbench_parallel.pipeline.deferred_weight_grad import DeferredWeightGrad
from spbench_parallel.precision.formats import MixedProducts


class Net(nn.Sequential):
    def __init__(self, dtype=torch.float32):
        torch.manual_seed(5)
        super().__init__(
            nn.Conv2d(3, 8, 3, padding=1, dtype=dtype),
            nn.BatchNorm2d(8, dtype=dtype),
            nn.ReLU(),
            nn.Conv2d(8, 8, (1, 3), stride=2, dilation=(1, 2), groups=2, bias=False, dtype=dtype),
            nn.Conv2d(8, 4, 1, dtype=dtype),
            nn.Flatten(),
            nn.Linear(4 * 8 * 6, 2, dtype=dtype),
        )


def images(dtype=torch.float32):
    torch.manual_seed(6)
    return [torch.randn(2, 3, 16, 16, dtype=dtype).requires_grad_() for _ in range(3)]


def learn(net, given, later=None, order=((0, 1, 2), (0, 1, 2))):
    """Learn from all micro-batches: backward passes, and those of weights, in these orders."""
    outputs = []
    for at, each in enumerate(given):
        if later is None:
            outputs.append(net(each))
        else:
            with later.record(at):
                outputs.append(net(each))
    backward, weights = order
    for at in backward:
        outputs[at].square().sum().backward()
    if later is not None:
        for at in weights:
            later.compute(at)
    return [one.grad for one in (*given, *net.parameters())]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradients_are_the_same_to_the_last_bit(dtype):
    wanted = learn(Net(dtype), images(dtype))
    found = learn(Net(dtype), images(dtype), DeferredWeightGrad())
    assert all(map(torch.equal, found, wanted))


@pytest.mark.filterwarnings("ignore:Using padding=.same. with even kernel:UserWarning")
@pytest.mark.parametrize("padding", ["same", "valid"])
@pytest.mark.parametrize("kernel", [3, (3, 5), 4, (1, 2)])
def test_padding_can_be_given_by_its_name(padding, kernel):
    def net():
        torch.manual_seed(5)
        return nn.Sequential(nn.Conv2d(3, 4, kernel, padding=padding, dilation=(1, 3)))

    found = learn(net(), images(), DeferredWeightGrad())
    assert all(map(torch.equal, found, learn(net(), images())))


def test_convolutions_get_theirs_when_they_are_asked_for():
    net = Net()
    later = DeferredWeightGrad()
    learn(net, images(), later, order=((0, 1, 2), ()))
    assert net[0].weight.grad is None
    assert net[0].bias.grad is None
    assert net[6].weight.grad is not None
    later.compute(1)
    once = copy.deepcopy(net[0].weight.grad)
    later.compute(0)
    assert not torch.equal(net[0].weight.grad, once)
    with pytest.raises(KeyError):
        later.compute(0)


def test_a_hook_of_a_weight_sees_its_gradient():
    net = Net()
    net[3].weight.register_hook(lambda gradient: 2 * gradient)
    wanted = learn(Net(), images())[-4]
    found = learn(net, images(), DeferredWeightGrad())[-4]
    assert found.shape == net[4].weight.shape
    assert torch.equal(found, wanted)
    single = Net()
    double = net
    learn(single, images())
    assert torch.equal(double[3].weight.grad, 2 * single[3].weight.grad)


def test_images_that_need_no_gradient_get_none():
    net = Net()
    later = DeferredWeightGrad()
    pixels = images()[0].detach()
    with later.record(0):
        output = net(pixels)
    output.square().sum().backward()
    later.compute(0)
    assert pixels.grad is None
    assert net[0].weight.grad is not None


def test_products_in_16_bits_are_the_same():
    products = MixedProducts(torch.bfloat16, torch.device("cpu"))

    def narrow(net):
        forward = net.forward

        def entered(pixels):
            with products:
                return forward(pixels)

        net.forward = entered
        return net

    wanted = learn(narrow(Net()), images())
    found = learn(narrow(Net()), images(), DeferredWeightGrad())
    assert all(map(torch.equal, found, wanted))


def test_nothing_is_kept_once_the_weights_have_their_gradients():
    net = Net()
    later = DeferredWeightGrad()
    with later.record(0):
        output = net(images()[0])
    kept = later._pending[0]
    output.square().sum().backward()
    alive = [weakref.ref(tensor) for each in kept for tensor in (each.gradient, each.pixels)]
    assert len(alive) == 6
    # Else the graph would keep itself alive, and Python could not collect it.
    assert all(each.pixels.grad_fn is None for each in kept)
    later.compute(0)
    assert kept == []
    assert [one() for one in alive] == [None] * 6
