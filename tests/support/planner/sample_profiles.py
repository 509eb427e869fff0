"""Synthetic profiles, and the paths of measured ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spbench.planner.profile.layers import LayerProfile, Profile
from support.paths import SHARED_DATA


def find_shared_file(name: str) -> Path:
    """Return the path of a file of the shared data; skip the test if it is missing."""
    path = SHARED_DATA / name
    if not path.exists():
        pytest.skip(f"the shared data has no {name} here")
    return path


def load_hpgo_outputs():
    """Return the rows of HPGO's outputs; empty if the shared data is missing."""
    path = SHARED_DATA / "planner_goldens.json"
    return json.loads(path.read_text())["rows"] if path.exists() else []


def make_layer(
    name, forward=1.0, backward=2.0, activation=0.0, parameters=0.0, description=None, **more
):
    return LayerProfile(
        name, description or name, forward, backward, activation, parameters, **more
    )


def make_chain(times, activations=None, parameters=None, batch_size=1):
    """Return a chain with these forward times in ms; backward takes twice as long."""
    count = len(times)
    activations = activations or [0.0] * count
    parameters = parameters or [0.0] * count
    rows = zip(times, activations, parameters, strict=True)
    layers = tuple(
        make_layer(f"n{index}", t, 2.0 * t, a, p) for index, (t, a, p) in enumerate(rows)
    )
    return Profile(
        "made-up", batch_size, layers, tuple((index - 1, index) for index in range(1, count))
    )


def make_diamond():
    """Return a diamond a, (b, c), d with outputs of 1, 2, 4 and 8 bytes."""
    layers = tuple(
        make_layer(name, activation=float(1 << index)) for index, name in enumerate("abcd")
    )
    return Profile("diamond", 1, layers, ((0, 1), (0, 2), (1, 3), (2, 3)))


def render_torchgraph(profile):
    """Return a profile as torchgraph text, without the fields that the format lacks."""
    lines = []
    for row in profile.layers:
        description = " ".join(row.description.split("\n")).replace(" -- ", " - ").strip()
        numbers = {
            "forward_compute_time": row.forward_ms,
            "backward_compute_time": row.backward_ms,
            "activation_size": row.activation_bytes,
            "parameter_size": row.parameter_bytes,
        }
        fields = ", ".join(f"{key}={value!r}" for key, value in numbers.items())
        lines.append(f"{row.name} -- {description or row.name} -- {fields}")
    names = [row.name for row in profile.layers]
    lines += [f"\t{names[source]} -- {names[target]}" for source, target in profile.edges]
    return "\n".join(lines) + "\n"
