"""Ranks' places in the layout of a benchmark, in short: stage 0, tile 0,1."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

MIRRORED = "mirrored_"
"""How the names of a rank's second place begin, where a mirrored pipeline runs through it too."""


@dataclass(frozen=True, slots=True)
class CoordinateName:
    """A name that places have.

    Attributes:
        width: Letters of its longest text.
        differs: Whether it tells ranks apart.
    """

    name: str
    width: int
    differs: bool


def shorten_coordinates(place: Mapping[str, Any]) -> dict[str, str]:
    """Return a place's texts by name; those of the second place behind a plus: ``0+1``.

    Of a rank with several stages, one after the other, the first is not told twice.
    """
    names = dict.fromkeys(name.removeprefix(MIRRORED) for name in place)
    if "stages" in names:
        names.pop("stage", None)
    return {name: _text(place, name) for name in names}


def _text(place: Mapping[str, Any], name: str) -> str:
    first = place.get(name, "-")
    second = place.get(MIRRORED + name)
    return str(first) if second is None else f"{first}+{second}"


def describe_coordinates(place: Mapping[str, str]) -> str:
    """Return a short place in words: ``stage 0+1 tile 0,0``."""
    return " ".join(f"{name} {text}" for name, text in place.items())


def list_coordinate_names(places: Iterable[Mapping[str, Any]]) -> tuple[CoordinateName, ...]:
    """Return the names that any of the places has, in the order in which they come."""
    short = [shorten_coordinates(place) for place in places]
    texts: dict[str, set[str]] = {name: set() for place in short for name in place}
    for place in short:
        for name, known in texts.items():
            known.add(place.get(name, ""))
    return tuple(
        CoordinateName(name, max(map(len, known)), len(known) > 1) for name, known in texts.items()
    )
