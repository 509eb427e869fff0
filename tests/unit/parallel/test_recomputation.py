import copy
from contextlib import contextmanager, nullcontext

import pytest
import torch
from torch import nn

from spbench_parallel.memory_shares import Activations
from spbench_parallel.pipeline.recomputation import enable_recomputation


def layer(channels):
    norm = nn.BatchNorm2d(channels)
    return nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1), norm, nn.ReLU())


def stage():
    torch.manual_seed(3)
    return nn.Sequential(*(layer(4) for _ in range(4))).double()


def learnt(module, images, batches=2):
    """Outputs, gradients, statistics and the most bytes kept, of batches that are under way."""
    activations = Activations([module])
    found = []
    given = [(images + batch).requires_grad_() for batch in range(batches)]
    with activations.count():
        outputs = [module(each) for each in given]
        for each, output in zip(given, outputs, strict=True):
            output.sum().backward()
            found += [output.detach(), each.grad]
    found += [each.grad for each in module.parameters()]
    return found + [each.clone() for each in module.buffers()], activations.peak


@pytest.mark.parametrize("kind", ["stage", "block"])
def test_what_is_computed_again_is_what_would_have_been_kept(kind):
    images = torch.randn(2, 4, 8, 8, dtype=torch.float64)
    kept = stage()
    again = stage()
    enable_recomputation(again, kind, nullcontext)
    wanted, most = learnt(kept, images)
    found, least = learnt(again, images)
    assert all(map(torch.equal, found, wanted))
    assert again.state_dict().keys() == kept.state_dict().keys()
    assert least < most


def test_of_blocks_the_inputs_are_kept_and_one_block_at_a_time():
    images = torch.randn(2, 4, 8, 8, dtype=torch.float64)
    again = stage()
    one = layer(4).double()
    enable_recomputation(again, "block", nullcontext)
    _, block = learnt(one, images, batches=1)
    _, peak = learnt(again, images, batches=1)
    assert peak <= 4 * images.nbytes + block


def test_nothing_is_computed_again_without_gradients_or_training():
    calls = []
    module = stage()
    module[0].register_forward_hook(lambda *_: calls.append(1))
    enable_recomputation(module, "stage", nullcontext)
    with torch.no_grad():
        module(torch.ones(1, 4, 8, 8, dtype=torch.float64))
    module.eval()(torch.ones(1, 4, 8, 8, dtype=torch.float64)).sum().backward()
    assert calls == [1, 1]
    module.train()(torch.ones(1, 4, 8, 8, dtype=torch.float64)).sum().backward()
    assert calls == [1, 1, 1, 1]


def test_inputs_that_need_no_gradient_get_none_and_weights_do():
    module = stage()
    images = torch.ones(1, 4, 8, 8, dtype=torch.float64)
    plain = copy.deepcopy(module)
    enable_recomputation(module, "stage", nullcontext)
    module(images).sum().backward()
    plain(images).sum().backward()
    assert images.grad is None
    pairs = zip(module.parameters(), plain.parameters(), strict=True)
    assert all(torch.equal(one.grad, other.grad) for one, other in pairs)


def test_the_number_format_is_entered_again():
    entered = []

    @contextmanager
    def format_of_numbers():
        entered.append(1)
        yield

    module = stage()
    enable_recomputation(module, "stage", format_of_numbers)
    module(torch.ones(1, 4, 8, 8, dtype=torch.float64)).sum().backward()
    assert entered == [1]
