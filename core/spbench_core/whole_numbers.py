"""Whole numbers in text, limited in length."""

from __future__ import annotations

MAX_DIGITS = 250
"""Digits of the longest whole number, in any base.

A number of so many digits fits a float, also in base 16. Python raises ValueError when it converts
more than 4300 decimal digits to or from text, so a longer one could not even be named in a message.
"""


class TooManyDigitsError(ValueError):
    """A number of more than `MAX_DIGITS` digits."""

    def __init__(self) -> None:
        super().__init__(f"the number has more than {MAX_DIGITS} digits")


def parse_whole(text: str, base: int = 10) -> int:
    """Return the whole number of a text.

    Raises:
        TooManyDigitsError: It is longer than `MAX_DIGITS`.
        ValueError: It is no whole number.
    """
    if len(text) > MAX_DIGITS + 1:  # one for a sign
        raise TooManyDigitsError
    return int(text, base)
