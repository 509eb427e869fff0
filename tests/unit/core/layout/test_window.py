"""Windows along an axis, against every tap of every output and against torch."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from spbench_core.layout.tiles import Box
from spbench_core.layout.window import Window, Window2d

brute_force = settings(max_examples=80)

windows = st.builds(
    Window,
    kernel=st.integers(1, 6),
    stride=st.integers(1, 4),
    padding=st.integers(0, 5),
    dilation=st.integers(1, 3),
)
intervals = st.tuples(st.integers(0, 12), st.integers(0, 12)).map(lambda pair: tuple(sorted(pair)))


def taps(window, output):
    """The inputs that one output reads, padding among them."""
    first = output * window.stride - window.padding
    return [first + window.dilation * tap for tap in range(window.kernel)]


@brute_force
@given(windows, intervals)
def test_need_is_from_the_first_tap_to_the_last(window, outputs):
    read = [tap for output in range(*outputs) for tap in taps(window, output)]
    first, last = window.find_inputs(outputs)
    if read:
        assert (first, last) == (min(read), max(read) + 1)
    else:
        assert first == last


@brute_force
@given(windows, st.integers(0, 12), intervals)
def test_inside_are_the_outputs_that_read_nothing_else(window, beyond, inputs):
    length = max(inputs[1], window.span - 2 * window.padding) + beyond
    outputs = range(window.count_outputs(length))
    own = range(*inputs)
    wanted = [output for output in outputs if all(tap in own for tap in taps(window, output))]
    assert list(range(*window.find_outputs(inputs))) == wanted


@brute_force
@given(windows, windows, st.integers(1, 20), st.integers(1, 20))
def test_outputs_are_as_many_as_torch_makes(rows, cols, height, width):
    window = Window2d(rows, cols)
    image = torch.empty(1, 1, height, width)
    weight = torch.empty(1, 1, rows.kernel, cols.kernel)
    stride, padding, dilation = (
        (getattr(rows, name), getattr(cols, name)) for name in ("stride", "padding", "dilation")
    )
    try:
        made = functional.conv2d(image, weight, None, stride, padding, dilation)
    except RuntimeError:
        with pytest.raises(ValueError, match="larger than"):
            window.output_size(height, width)
    else:
        assert window.output_size(height, width) == tuple(made.shape[2:])


def test_outputs_names_the_kernel_that_does_not_fit():
    with pytest.raises(ValueError, match=r"spans 7 pixels is larger than 4 pixels with padding 1"):
        Window(kernel=4, padding=1, dilation=2).count_outputs(4)


@brute_force
@given(windows, windows, intervals, intervals)
def test_the_need_of_a_box_is_that_of_its_rows_and_columns(rows, cols, high, wide):
    outputs = Box(high, wide)
    need = Window2d(rows, cols).find_inputs(outputs)
    if outputs.empty:
        assert need.empty
    else:
        assert need == Box(rows.find_inputs(high), cols.find_inputs(wide))


@pytest.mark.parametrize(
    ("rows", "cols", "single"),
    [
        (Window(1), Window(1), True),
        (Window(1, dilation=3), Window(1), True),
        (Window(1), Window(3), False),
        (Window(2), Window(1), False),
        (Window(1, stride=2), Window(1), False),
        (Window(1), Window(1, padding=1), False),
    ],
)
def test_single_is_the_window_of_one_input(rows, cols, single):
    assert Window2d(rows, cols).is_pointwise is single
