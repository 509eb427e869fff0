"""Deferred weight gradients: computed after the gradients of the data."""

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


def make_images(dtype=torch.float32):
    torch.manual_seed(6)
    return [torch.randn(2, 3, 16, 16, dtype=dtype).requires_grad_() for _ in range(3)]


def compute_gradients(net, batches, deferred=None, order=((0, 1, 2), (0, 1, 2))):
    """Run backward passes and weight gradients in the given orders."""
    outputs = []
    for index, batch in enumerate(batches):
        if deferred is None:
            outputs.append(net(batch))
        else:
            with deferred.record(index):
                outputs.append(net(batch))
    backward_order, weight_order = order
    for index in backward_order:
        outputs[index].square().sum().backward()
    if deferred is not None:
        for index in weight_order:
            deferred.compute(index)
    return [tensor.grad for tensor in (*batches, *net.parameters())]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradients_equal_undeferred_ones_bitwise(dtype):
    expected = compute_gradients(Net(dtype), make_images(dtype))
    gradients = compute_gradients(Net(dtype), make_images(dtype), DeferredWeightGrad())
    assert all(map(torch.equal, gradients, expected))


@pytest.mark.filterwarnings("ignore:Using padding=.same. with even kernel:UserWarning")
@pytest.mark.parametrize("padding", ["same", "valid"])
@pytest.mark.parametrize("kernel", [3, (3, 5), 4, (1, 2)])
def test_supports_padding_by_name(padding, kernel):
    def make_net():
        torch.manual_seed(5)
        return nn.Sequential(nn.Conv2d(3, 4, kernel, padding=padding, dilation=(1, 3)))

    gradients = compute_gradients(make_net(), make_images(), DeferredWeightGrad())
    assert all(map(torch.equal, gradients, compute_gradients(make_net(), make_images())))


def test_computes_weight_gradients_of_convolutions_on_request():
    net = Net()
    deferred = DeferredWeightGrad()
    compute_gradients(net, make_images(), deferred, order=((0, 1, 2), ()))
    assert net[0].weight.grad is None
    assert net[0].bias.grad is None
    assert net[6].weight.grad is not None
    deferred.compute(1)
    after_one_batch = copy.deepcopy(net[0].weight.grad)
    deferred.compute(0)
    assert not torch.equal(net[0].weight.grad, after_one_batch)
    with pytest.raises(KeyError):
        deferred.compute(0)


def test_a_hook_of_a_weight_receives_its_gradient():
    net = Net()
    net[3].weight.register_hook(lambda gradient: 2 * gradient)
    expected = compute_gradients(Net(), make_images())[-4]
    gradients = compute_gradients(net, make_images(), DeferredWeightGrad())[-4]
    assert gradients.shape == net[4].weight.shape
    assert torch.equal(gradients, expected)
    single = Net()
    double = net
    compute_gradients(single, make_images())
    assert torch.equal(double[3].weight.grad, 2 * single[3].weight.grad)


def test_images_without_requires_grad_get_no_gradient():
    net = Net()
    deferred = DeferredWeightGrad()
    pixels = make_images()[0].detach()
    with deferred.record(0):
        output = net(pixels)
    output.square().sum().backward()
    deferred.compute(0)
    assert pixels.grad is None
    assert net[0].weight.grad is not None


def test_16_bit_products_give_equal_gradients():
    products = MixedProducts(torch.bfloat16, torch.device("cpu"))

    def narrow(net):
        forward = net.forward

        def narrow_forward(pixels):
            with products:
                return forward(pixels)

        net.forward = narrow_forward
        return net

    expected = compute_gradients(narrow(Net()), make_images())
    gradients = compute_gradients(narrow(Net()), make_images(), DeferredWeightGrad())
    assert all(map(torch.equal, gradients, expected))


def test_keeps_nothing_after_weight_gradients():
    net = Net()
    deferred = DeferredWeightGrad()
    with deferred.record(0):
        output = net(make_images()[0])
    pending = deferred._pending_by_micro_batch[0]
    output.square().sum().backward()
    alive = [weakref.ref(tensor) for layer in pending for tensor in (layer.gradient, layer.pixels)]
    assert len(alive) == 6
    # Otherwise the graph would keep itself alive, and Python could not collect it.
    assert all(layer.pixels.grad_fn is None for layer in pending)
    deferred.compute(0)
    assert pending == []
    assert [reference() for reference in alive] == [None] * 6
