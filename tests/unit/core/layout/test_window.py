"""Windows along an axis, compared with all taps of all outputs and with torch."""

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


def list_taps(window, output):
    """Return the inputs that an output reads, including padding."""
    first = output * window.stride - window.padding
    return [first + window.dilation * tap for tap in range(window.kernel)]


@brute_force
@given(windows, intervals)
def test_needed_inputs_reach_from_first_to_last_tap(window, outputs):
    taps = [tap for output in range(*outputs) for tap in list_taps(window, output)]
    first, last = window.find_inputs(outputs)
    if taps:
        assert (first, last) == (min(taps), max(taps) + 1)
    else:
        assert first == last


@brute_force
@given(windows, st.integers(0, 12), intervals)
def test_finds_the_outputs_that_read_only_the_inputs(window, margin, inputs):
    length = max(inputs[1], window.span - 2 * window.padding) + margin
    outputs = range(window.count_outputs(length))
    available = range(*inputs)
    expected = [
        output for output in outputs if all(tap in available for tap in list_taps(window, output))
    ]
    assert list(range(*window.find_outputs(inputs))) == expected


@brute_force
@given(windows, windows, st.integers(1, 20), st.integers(1, 20))
def test_output_sizes_match_torch(rows, cols, height, width):
    window = Window2d(rows, cols)
    image = torch.empty(1, 1, height, width)
    weight = torch.empty(1, 1, rows.kernel, cols.kernel)
    stride, padding, dilation = (
        (getattr(rows, name), getattr(cols, name)) for name in ("stride", "padding", "dilation")
    )
    try:
        output = functional.conv2d(image, weight, None, stride, padding, dilation)
    except RuntimeError:
        with pytest.raises(ValueError, match="larger than"):
            window.output_size(height, width)
    else:
        assert window.output_size(height, width) == tuple(output.shape[2:])


def test_rejects_a_kernel_larger_than_the_input(messages):
    with messages.raises(ValueError):
        Window(kernel=4, padding=1, dilation=2).count_outputs(4)


@brute_force
@given(windows, windows, intervals, intervals)
def test_inputs_of_a_box_combine_rows_and_columns(rows, cols, row_range, column_range):
    outputs = Box(row_range, column_range)
    inputs = Window2d(rows, cols).find_inputs(outputs)
    if outputs.empty:
        assert inputs.empty
    else:
        assert inputs == Box(rows.find_inputs(row_range), cols.find_inputs(column_range))


@pytest.mark.parametrize(
    ("rows", "cols", "pointwise"),
    [
        (Window(1), Window(1), True),
        (Window(1, dilation=3), Window(1), True),
        (Window(1), Window(3), False),
        (Window(2), Window(1), False),
        (Window(1, stride=2), Window(1), False),
        (Window(1), Window(1, padding=1), False),
    ],
)
def test_detects_pointwise_windows(rows, cols, pointwise):
    assert Window2d(rows, cols).is_pointwise is pointwise
