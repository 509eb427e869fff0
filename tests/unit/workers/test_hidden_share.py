"""The share of a communication that overlap hides."""

import pytest

from spbench_workers.timing import compute_hidden_share


@pytest.mark.parametrize(
    ("complete", "exposed", "compute", "share"),
    [
        (10.0, 10.0, 100.0, 0.0),
        (10.0, 1.0, 100.0, 0.9),
        (10.0, 0.0, 100.0, 1.0),
        # The computation is shorter: if the exchange covers all of it, the share is 1.
        (10.0, 6.0, 4.0, 1.0),
        (10.0, 8.0, 4.0, 0.5),
        # Overlap can cost more than it hides.
        (10.0, 15.0, 100.0, -0.5),
    ],
)
def test_the_share_refers_to_the_time_that_can_be_hidden(complete, exposed, compute, share):
    assert compute_hidden_share(complete, exposed, compute) == pytest.approx(share)
