import pytest
import torch

from spbench_parallel.device.convolution import convolve


@pytest.mark.parametrize("side", [16, 1024])
@pytest.mark.parametrize("stride", [1, 2])
def test_bias_gradients_are_accurate_for_large_images(side, stride):
    generator = torch.Generator().manual_seed(side)
    pixels = torch.rand(1, 4, side, side, generator=generator)
    weight = torch.rand(4, 4, 3, 3, generator=generator, requires_grad=True)
    bias = torch.rand(4, generator=generator, requires_grad=True)
    output = convolve(pixels, weight, bias, stride, 1, 1, 1)
    assert torch.equal(output, torch.conv2d(pixels, weight, bias, stride, 1))
    gradient = torch.rand(output.shape, generator=generator)
    output.backward(gradient)
    expected = gradient.double().sum((0, 2, 3))
    assert ((bias.grad - expected) / expected).abs().max() < 8 * torch.finfo(torch.float32).eps
    (weight_gradient,) = torch.autograd.grad(
        torch.conv2d(pixels, weight, bias, stride, 1), weight, gradient
    )
    assert torch.equal(weight.grad, weight_gradient)


def test_outputs_can_change_in_place_and_need_no_gradients():
    pixels = torch.rand(1, 2, 8, 8)
    weight = torch.rand(2, 2, 3, 3, requires_grad=True)
    bias = torch.rand(2, requires_grad=True)
    output = convolve(pixels, weight, bias, 1, 1, 1, 1).relu_()
    output.sum().backward()
    assert bias.grad is not None
    with torch.no_grad():
        assert not convolve(pixels, weight, bias, 1, 1, 1, 1).requires_grad
