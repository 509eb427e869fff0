"""Errors of models over ranks, by kind of tensor, as the programs that train them write them."""

from __future__ import annotations

from collections.abc import Sequence


def assert_errors_below(
    found: Sequence[dict[str, float]], ranks: int, kinds: set[str], close: float
) -> None:
    """Every rank has an error of each kind, and none of them is large."""
    assert len(found) == ranks
    for errors in found:
        assert errors.keys() == kinds, errors
        assert max(errors.values()) < close, errors


def find_large_errors(found: Sequence[dict[str, float]], kinds: set[str], far: float) -> set[str]:
    """Return the kinds whose error is large on some rank."""
    assert all(errors.keys() == kinds for errors in found), found
    return {kind for errors in found for kind, error in errors.items() if error > far}
