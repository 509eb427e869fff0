"""Checks of the errors that the programs of tests find in a model over ranks."""

from __future__ import annotations

from collections.abc import Sequence


def assert_errors_below(
    rank_errors: Sequence[dict[str, float]], ranks: int, kinds: set[str], limit: float
) -> None:
    """Check that each rank has a small error of each kind of tensor."""
    assert len(rank_errors) == ranks
    for errors in rank_errors:
        assert errors.keys() == kinds, errors
        assert max(errors.values()) < limit, errors


def find_large_errors(
    rank_errors: Sequence[dict[str, float]], kinds: set[str], limit: float
) -> set[str]:
    """Return the kinds of tensors that have a large error on some rank."""
    assert all(errors.keys() == kinds for errors in rank_errors), rank_errors
    return {kind for errors in rank_errors for kind, error in errors.items() if error > limit}
