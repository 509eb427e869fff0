import copy
from contextlib import contextmanager, nullcontext

import pytest
import torch
from torch import nn

from spbench_parallel.memory_shares import Activations
from spbench_parallel.pipeline.recomputation import enable_recomputation


def make_layer(channels):
    norm = nn.BatchNorm2d(channels)
    return nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1), norm, nn.ReLU())


def make_stage():
    torch.manual_seed(3)
    return nn.Sequential(*(make_layer(4) for _ in range(4))).double()


def train(module, images, batches=2):
    """Return outputs, gradients, statistics and peak bytes of all micro-batches.

    All of them are in flight at once.
    """
    activations = Activations([module])
    tensors = []
    inputs = [(images + batch).requires_grad_() for batch in range(batches)]
    with activations.count():
        outputs = [module(tensor) for tensor in inputs]
        for tensor, output in zip(inputs, outputs, strict=True):
            output.sum().backward()
            tensors += [output.detach(), tensor.grad]
    tensors += [tensor.grad for tensor in module.parameters()]
    return tensors + [tensor.clone() for tensor in module.buffers()], activations.peak


@pytest.mark.parametrize("kind", ["stage", "block"])
def test_recomputed_activations_equal_kept_ones(kind):
    images = torch.randn(2, 4, 8, 8, dtype=torch.float64)
    keeping = make_stage()
    recomputing = make_stage()
    enable_recomputation(recomputing, kind, nullcontext)
    expected, kept_bytes = train(keeping, images)
    tensors, recomputed_bytes = train(recomputing, images)
    assert all(map(torch.equal, tensors, expected))
    assert recomputing.state_dict().keys() == keeping.state_dict().keys()
    assert recomputed_bytes < kept_bytes


def test_keeps_inputs_of_blocks_and_one_block_at_a_time():
    images = torch.randn(2, 4, 8, 8, dtype=torch.float64)
    recomputing = make_stage()
    block = make_layer(4).double()
    enable_recomputation(recomputing, "block", nullcontext)
    _, block_bytes = train(block, images, batches=1)
    _, peak_bytes = train(recomputing, images, batches=1)
    assert peak_bytes <= 4 * images.nbytes + block_bytes


def test_recomputes_nothing_without_gradients_or_training():
    calls = []
    module = make_stage()
    module[0].register_forward_hook(lambda *_: calls.append(1))
    enable_recomputation(module, "stage", nullcontext)
    with torch.no_grad():
        module(torch.ones(1, 4, 8, 8, dtype=torch.float64))
    module.eval()(torch.ones(1, 4, 8, 8, dtype=torch.float64)).sum().backward()
    assert calls == [1, 1]
    module.train()(torch.ones(1, 4, 8, 8, dtype=torch.float64)).sum().backward()
    assert calls == [1, 1, 1, 1]


def test_inputs_without_requires_grad_get_no_gradient():
    module = make_stage()
    images = torch.ones(1, 4, 8, 8, dtype=torch.float64)
    plain = copy.deepcopy(module)
    enable_recomputation(module, "stage", nullcontext)
    module(images).sum().backward()
    plain(images).sum().backward()
    assert images.grad is None
    pairs = zip(module.parameters(), plain.parameters(), strict=True)
    assert all(torch.equal(parameter.grad, expected.grad) for parameter, expected in pairs)


def test_recomputes_in_the_number_format():
    entered = []

    @contextmanager
    def enter_format():
        entered.append(1)
        yield

    module = make_stage()
    enable_recomputation(module, "stage", enter_format)
    module(torch.ones(1, 4, 8, 8, dtype=torch.float64)).sum().backward()
    assert entered == [1]
