import pytest
import torch

from spbench_parallel.device.convolution import convolve


@pytest.mark.parametrize("side", [16, 1024])
@pytest.mark.parametrize("stride", [1, 2])
def test_the_gradient_of_a_bias_is_right_to_some_bits_however_large_the_image(side, stride):
    generator = torch.Generator().manual_seed(side)
    pixels = torch.rand(1, 4, side, side, generator=generator)
    weight = torch.rand(4, 4, 3, 3, generator=generator, requires_grad=True)
    bias = torch.rand(4, generator=generator, requires_grad=True)
    made = convolve(pixels, weight, bias, stride, 1, 1, 1)
    assert torch.equal(made, torch.conv2d(pixels, weight, bias, stride, 1))
    gradient = torch.rand(made.shape, generator=generator)
    made.backward(gradient)
    wanted = gradient.double().sum((0, 2, 3))
    assert ((bias.grad - wanted) / wanted).abs().max() < 8 * torch.finfo(torch.float32).eps
    (of_weight,) = torch.autograd.grad(
        torch.conv2d(pixels, weight, bias, stride, 1), weight, gradient
    )
    assert torch.equal(weight.grad, of_weight)


def test_what_was_convolved_can_be_changed_in_place_and_without_gradients():
    pixels = torch.rand(1, 2, 8, 8)
    weight = torch.rand(2, 2, 3, 3, requires_grad=True)
    bias = torch.rand(2, requires_grad=True)
    made = convolve(pixels, weight, bias, 1, 1, 1, 1).relu_()
    made.sum().backward()
    assert bias.grad is not None
    with torch.no_grad():
        assert not convolve(pixels, weight, bias, 1, 1, 1, 1).requires_grad
