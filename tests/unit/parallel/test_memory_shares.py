import torch
from torch import nn

from spbench_parallel.memory_shares import Activations


def make_chain():
    """Return two convolutions without bias and a ReLU, for images of 8x8 in fp32."""
    conv = [nn.Conv2d(4, 4, 3, padding=1, bias=False) for _ in range(2)]
    return nn.Sequential(conv[0], nn.ReLU(), conv[1])


MAPS = 2 * 4 * 8 * 8 * 4
"""Bytes of two images of the chain."""


def test_counts_shared_tensors_once_and_no_parameters():
    module = make_chain()
    images = torch.ones(2, 4, 8, 8)
    activations = Activations([module])
    assert activations.peak is None
    with activations.count():
        module(images).sum().backward()
    # The images, and the output of the ReLU, which the second convolution also keeps.
    assert activations.peak == 2 * MAPS
    with_parameters = Activations([])
    with with_parameters.count():
        module(images).sum().backward()
    assert with_parameters.peak == 2 * MAPS + sum(
        parameter.nbytes for parameter in module.parameters()
    )


def test_the_peak_is_of_simultaneous_activations():
    module = make_chain()
    images = [torch.ones(2, 4, 8, 8) for _ in range(3)]
    one_by_one = Activations([module])
    simultaneous = Activations([module])
    with one_by_one.count():
        for batch in images:
            module(batch).sum().backward()
    with simultaneous.count():
        for output in [module(batch) for batch in images]:
            output.sum().backward()
    assert (one_by_one.peak, simultaneous.peak) == (2 * MAPS, 6 * MAPS)


def test_counting_does_not_change_gradients():
    module = make_chain()
    images = torch.randn(2, 4, 8, 8)
    module(images).square().sum().backward()
    expected = [parameter.grad.clone() for parameter in module.parameters()]
    module.zero_grad()
    with Activations([module]).count():
        module(images).square().sum().backward()
    assert all(map(torch.equal, expected, (parameter.grad for parameter in module.parameters())))
