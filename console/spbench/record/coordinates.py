"""Coordinates of ranks in a benchmark's layout: stage 0, tile 0,1."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from spbench.suites.case import MIRRORED


@dataclass(frozen=True, slots=True)
class CoordinateName:
    """The name of a coordinate.

    Attributes:
        width: The length of its longest text.
        differs: Whether ranks differ in it.
    """

    name: str
    width: int
    differs: bool


def shorten_coordinates(coordinates: Mapping[str, Any]) -> dict[str, str]:
    """Return a rank's coordinates by name, with the second one after a plus: ``0+1``.

    If a rank has several consecutive stages, the first one is not shown separately.
    """
    names = dict.fromkeys(name.removeprefix(MIRRORED) for name in coordinates)
    if "stages" in names:
        names.pop("stage", None)
    return {name: _format_coordinate(coordinates, name) for name in names}


def _format_coordinate(coordinates: Mapping[str, Any], name: str) -> str:
    first = coordinates.get(name, "-")
    second = coordinates.get(MIRRORED + name)
    return str(first) if second is None else f"{first}+{second}"


def describe_coordinates(coordinates: Mapping[str, str]) -> str:
    """Return short coordinates as text: ``stage 0+1 tile 0,0``."""
    return " ".join(f"{name} {text}" for name, text in coordinates.items())


def list_coordinate_names(
    all_coordinates: Iterable[Mapping[str, Any]],
) -> tuple[CoordinateName, ...]:
    """Return the names of all coordinates, in the order of their first appearance."""
    short = [shorten_coordinates(coordinates) for coordinates in all_coordinates]
    texts: dict[str, set[str]] = {name: set() for coordinates in short for name in coordinates}
    for coordinates in short:
        for name, values in texts.items():
            values.add(coordinates.get(name, ""))
    return tuple(
        CoordinateName(name, max(map(len, values)), len(values) > 1)
        for name, values in texts.items()
    )
