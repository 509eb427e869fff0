"""Made-up profiles, and where the measured ones are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from places import SHARED
from spbench.planner.profile.layers import LayerProfile, Profile


def shared(name: str) -> Path:
    """Return a file of the shared data; skip the test where it is not there."""
    path = SHARED / name
    if not path.exists():
        pytest.skip(f"the shared data has no {name} here")
    return path


def goldens():
    """The rows of HPGO's outputs, empty where the shared data is not there."""
    path = SHARED / "planner_goldens.json"
    return json.loads(path.read_text())["rows"] if path.exists() else []


def layer(
    name, forward=1.0, backward=2.0, activation=0.0, parameters=0.0, description=None, **more
):
    return LayerProfile(
        name, description or name, forward, backward, activation, parameters, **more
    )


def chain(times, activations=None, parameters=None, batch_size=1):
    """A chain whose layers take these ms forward, and twice as long backward."""
    count = len(times)
    activations = activations or [0.0] * count
    parameters = parameters or [0.0] * count
    rows = zip(times, activations, parameters, strict=True)
    layers = tuple(layer(f"n{at}", t, 2.0 * t, a, p) for at, (t, a, p) in enumerate(rows))
    return Profile("made-up", batch_size, layers, tuple((at - 1, at) for at in range(1, count)))


def diamond():
    """``a`` feeds ``b`` and ``c``, both feed ``d``; outputs of 1, 2, 4 and 8 bytes."""
    layers = tuple(layer(name, activation=float(1 << at)) for at, name in enumerate("abcd"))
    return Profile("diamond", 1, layers, ((0, 1), (0, 2), (1, 3), (2, 3)))


def write_torchgraph(profile):
    """A profile as torchgraph text; what the format has no place for is left out."""
    lines = []
    for one in profile.layers:
        description = " ".join(one.description.split("\n")).replace(" -- ", " - ").strip()
        numbers = {
            "forward_compute_time": one.forward_ms,
            "backward_compute_time": one.backward_ms,
            "activation_size": one.activation_bytes,
            "parameter_size": one.parameter_bytes,
        }
        told = ", ".join(f"{key}={value!r}" for key, value in numbers.items())
        lines.append(f"{one.name} -- {description or one.name} -- {told}")
    names = [one.name for one in profile.layers]
    lines += [f"\t{names[source]} -- {names[target]}" for source, target in profile.edges]
    return "\n".join(lines) + "\n"
