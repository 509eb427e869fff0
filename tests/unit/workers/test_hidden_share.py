"""The share of a communication that overlap hides."""

import pytest

from spbench_workers.timing import hidden_share


@pytest.mark.parametrize(
    ("whole", "exposed", "compute", "share"),
    [
        (10.0, 10.0, 100.0, 0.0),
        (10.0, 1.0, 100.0, 0.9),
        (10.0, 0.0, 100.0, 1.0),
        # The computation is the smaller one: with all of it in the exchange's shade, all is hidden.
        (10.0, 6.0, 4.0, 1.0),
        (10.0, 8.0, 4.0, 0.5),
        # Overlap can cost more than it hides.
        (10.0, 15.0, 100.0, -0.5),
    ],
)
def test_the_share_is_of_what_could_be_hidden(whole, exposed, compute, share):
    assert hidden_share(whole, exposed, compute) == pytest.approx(share)
