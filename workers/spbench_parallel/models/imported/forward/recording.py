"""Recording of a network's forward pass, without draws of random numbers.

A random number that is drawn during recording would become a constant of the graph.
"""

from __future__ import annotations

import random
import sys
import types
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx, nn

from spbench_core.models.parts import MapShape
from spbench_parallel.errors import CannotRunError
from spbench_parallel.models.imported.forward.recorder import GraphRecorder
from spbench_parallel.models.imported.loading import is_user_code, shorten_path
from spbench_parallel.models.imported.messages import make_tracing_error


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
        return any(to_bytes(field) != to_bytes(present_field) for field, present_field in pairs)


def to_bytes(value: Any) -> Any:
    """Return an array's bytes, and any other value unchanged.

    Arrays cannot be compared with == to one boolean.
    """
    return value.tobytes() if hasattr(value, "tobytes") else value


def record_graph(name: str, module: nn.Module, image: MapShape, *, training: bool) -> fx.Graph:
    """Return the graph of a module's forward pass.

    Raises:
        CannotRunError: It does something that a graph cannot represent, such as drawing random
            numbers that do not depend on a tensor. Its cause is the error of the user's code, if
            there was one.
    """
    states = RandomStates.capture()
    recorder = GraphRecorder(name, image, training=training)
    try:
        graph = recorder.record(module)
        if not states.have_changed():
            return graph
        states.restore()
        line = _find_drawing_line(name, module, image, states, training=training)
    except CannotRunError:
        raise
    except Exception as error:  # the user's code may raise any error with symbols
        raise make_tracing_error(name, error, recorder.calling, image) from error
    finally:
        states.restore()
    raise CannotRunError(
        f"network {name}: {line}the forward pass draws random numbers that a graph holds as "
        "constants; take nn.Dropout, or draw them in the training script"
    )


def _find_drawing_line(
    name: str, module: nn.Module, image: MapShape, states: RandomStates, *, training: bool
) -> str:
    """Return the user's line that changed the state of a random generator."""
    drawing_lines: list[str] = []
    last_line: list[str] = [""]

    def trace_lines(frame: types.FrameType, event: str, _: Any) -> Any:
        if not is_user_code(frame.f_code.co_filename):
            return None
        if not drawing_lines and states.have_changed():
            drawing_lines.append(last_line[0])
        if event == "line":
            last_line[0] = f"{shorten_path(frame.f_code.co_filename)}:{frame.f_lineno}: "
        return trace_lines

    previous = sys.gettrace()
    sys.settrace(trace_lines)
    try:
        GraphRecorder(name, image, training=training).record(module)
    except Exception:  # only the line is needed
        return drawing_lines[0] if drawing_lines else ""
    finally:
        sys.settrace(previous)
    return drawing_lines[0] if drawing_lines else ""
