import torch
from torch import nn

from spbench_parallel.memory_shares import Activations


def chain():
    """Two convolutions without a bias and what is between them, for images of 8x8 in fp32."""
    conv = [nn.Conv2d(4, 4, 3, padding=1, bias=False) for _ in range(2)]
    return nn.Sequential(conv[0], nn.ReLU(), conv[1])


MAPS = 2 * 4 * 8 * 8 * 4
"""Bytes of two images of the chain."""


def test_what_several_operators_keep_counts_once_and_parameters_do_not():
    module = chain()
    images = torch.ones(2, 4, 8, 8)
    activations = Activations([module])
    assert activations.peak is None
    with activations.count():
        module(images).sum().backward()
    # The images, and the ReLU's output, which the second convolution keeps too.
    assert activations.peak == 2 * MAPS
    with_parameters = Activations([])
    with with_parameters.count():
        module(images).sum().backward()
    assert with_parameters.peak == 2 * MAPS + sum(each.nbytes for each in module.parameters())


def test_the_peak_is_of_what_is_kept_at_once():
    module = chain()
    images = [torch.ones(2, 4, 8, 8) for _ in range(3)]
    one_by_one = Activations([module])
    together = Activations([module])
    with one_by_one.count():
        for each in images:
            module(each).sum().backward()
    with together.count():
        for output in [module(each) for each in images]:
            output.sum().backward()
    assert (one_by_one.peak, together.peak) == (2 * MAPS, 6 * MAPS)


def test_gradients_are_what_they_are_without_counting():
    module = chain()
    images = torch.randn(2, 4, 8, 8)
    module(images).square().sum().backward()
    expected = [each.grad.clone() for each in module.parameters()]
    module.zero_grad()
    with Activations([module]).count():
        module(images).square().sum().backward()
    assert all(map(torch.equal, expected, (each.grad for each in module.parameters())))
