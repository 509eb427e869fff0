"""States of the random generators that all code shares."""

from __future__ import annotations

import random
import sys
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True, eq=False)
class RandomStates:
    """The states of torch's CPU generator, Python's, and NumPy's if it is imported."""

    torch_state: torch.Tensor
    python_state: tuple[Any, ...]
    numpy_state: tuple[Any, ...] | None

    @classmethod
    def capture(cls) -> RandomStates:
        """Return the present states."""
        numpy = sys.modules.get("numpy")
        numpy_state = None if numpy is None else numpy.random.get_state()
        return cls(torch.get_rng_state(), random.getstate(), numpy_state)

    def restore(self) -> None:
        """Set the generators to these states."""
        torch.set_rng_state(self.torch_state)
        random.setstate(self.python_state)
        if self.numpy_state is not None:
            sys.modules["numpy"].random.set_state(self.numpy_state)

    def have_changed(self) -> bool:
        """Return whether a generator has another state now."""
        present = RandomStates.capture()
        if not torch.equal(self.torch_state, present.torch_state):
            return True
        if self.python_state != present.python_state:
            return True
        if self.numpy_state is None or present.numpy_state is None:
            return False
        pairs = zip(self.numpy_state, present.numpy_state, strict=True)
        return any(to_bytes(value) != to_bytes(present_value) for value, present_value in pairs)


def to_bytes(value: Any) -> Any:
    """Return an array's bytes, and any other value unchanged.

    Arrays cannot be compared with == to one boolean.
    """
    return value.tobytes() if hasattr(value, "tobytes") else value
