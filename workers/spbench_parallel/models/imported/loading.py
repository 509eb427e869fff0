"""Loading of a user's network: the module that ``module:callable`` returns."""

from __future__ import annotations

import importlib
import importlib.util
import os
import random
import re
import sys
import sysconfig
import traceback
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import torch
from torch import nn

import spbench_core
import spbench_parallel
from spbench_parallel.errors import CannotRunError
from spbench_parallel.models.imported.state import names_in_state
from spbench_parallel.models.imported.state_files import read_state

_RANKS = importlib.util.find_spec("spbench_workers")
"""The package that runs this one on ranks, if it is there: this one does not import it."""
_PACKAGES = tuple(
    os.path.join(os.path.abspath(folder), "")
    for folder in (
        *torch.__path__,
        *spbench_core.__path__,
        *spbench_parallel.__path__,
        *((_RANKS and _RANKS.submodule_search_locations) or ()),
    )
)
_STDLIB = os.path.join(sysconfig.get_path("stdlib"), "")
_INSTALLED = ("site-packages" + os.sep, "dist-packages" + os.sep)
"""Folders of installed packages, which may lie inside that of the standard library."""


def load_network(network: str, arguments: Mapping[str, Any], seed: int) -> nn.Module:
    """Return the module that a callable returns, on the host, with weights that the seed draws.

    Args:
        network: The callable, ``module:callable``.
        arguments: All that it is given, by name.
        seed: The seed of torch and of Python's ``random``.

    Raises:
        CannotRunError: There is no such callable, it fails, or it returns no module.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        state = random.getstate()
        random.seed(seed)
        try:
            made = call_by_name(network, arguments)
        except Exception as error:  # it is the user's own code
            raise CannotRunError(
                f"network {network}: {find_user_line(error)}{describe_error(error)}{_cause(error)}"
                f"{_advice(_root_of(error))}"
            ) from error
        finally:
            random.setstate(state)
    if not isinstance(made, nn.Module):
        raise CannotRunError(
            f"network {network}: it returned {type(made).__name__}, and must return an nn.Module"
        )
    return made


def call_by_name(name: str, arguments: Mapping[str, Any]) -> Any:
    """Return what ``module:callable`` returns; the working folder is importable.

    Raises:
        Exception: Whatever the user's own code raises.
    """
    module, _, function = name.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    return getattr(importlib.import_module(module), function)(**arguments)


def load_weights(network: str, module: nn.Module, path: Path) -> None:
    """Load a file with the ``state_dict`` of a module; no code in it is run.

    Raises:
        CannotRunError: There is no such file, or it is of another module.
    """
    try:
        found = read_state(path)
    except CannotRunError as error:
        raise CannotRunError(f"network {network}: {error}") from None
    wanted = module.state_dict()
    if not isinstance(found, dict) or found.keys() != wanted.keys():
        names = set(found) if isinstance(found, dict) else set()
        other = sorted(map(str, names ^ wanted.keys()))
        what = "has no" if other[0] in wanted else "has an unknown"
        raise CannotRunError(f"network {network}: weights {path} {what} {other[0]}")
    for name, tensor in wanted.items():
        shapes = [list(one.shape) for one in (found[name], tensor)]
        if shapes[0] != shapes[1]:
            told = f"{name} of shape {shapes[0]}, the network's is {shapes[1]}"
            raise CannotRunError(f"network {network}: weights {path} has {told}")
    for same in names_in_state(module).values():
        for name in same[1:]:
            if not torch.equal(found[same[0]], found[name]):
                raise CannotRunError(
                    f"network {network}: weights {path} has other values for {same[0]} than for "
                    f"{name}, which are one tensor of the network; save it from a trained network"
                )
    module.load_state_dict(found)


def describe_error(error: BaseException) -> str:
    """Return an error's class and the first line of its text."""
    told = str(error).strip().splitlines() or ["no reason given"]
    return f"{type(error).__name__}: {told[0]}"


def _root_of(error: BaseException) -> BaseException:
    """Return the error that an error came from, over all that lie between."""
    above = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return error if above is None else _root_of(above)


def _cause(error: BaseException) -> str:
    """Return the first cause of an error in brackets; empty if it has none."""
    root = _root_of(error)
    return "" if root is error else f" (caused by {describe_error(root)})"


def _advice(error: BaseException) -> str:
    """Return what to do about an error whose text does not say it; empty if nothing is known."""
    if isinstance(error, AttributeError) and isinstance(error.obj, ModuleType):
        near = get_close_matches(error.name or "", dir(error.obj), n=1)
        return f"; did you mean {near[0]}?" if near else ""
    missing = re.match(r"operator (\w+)::\w+ does not exist", str(error))
    if missing is None:
        return ""
    return (
        f"; the compiled part of {missing[1]} does not load over torch {torch.__version__}: "
        "install a build of it for this torch"
    )


def find_current_line() -> str:
    """Return the innermost line of the user's code that runs now, as ``file:line: ``."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if is_user_code(frame.f_code.co_filename):
            return f"{shorten_path(frame.f_code.co_filename)}:{frame.f_lineno}: "
        frame = frame.f_back
    return ""


def find_user_line(error: BaseException) -> str:
    """Return the user's line in which an error came up as ``file:line: ``; empty if in none."""
    frames = [
        one for one in traceback.extract_tb(error.__traceback__) if is_user_code(one.filename)
    ]
    return f"{shorten_path(frames[-1].filename)}:{frames[-1].lineno}: " if frames else ""


def is_user_code(file: str) -> bool:
    """Return whether a file is neither torch's nor spbench's nor Python's."""
    if file.startswith((*_PACKAGES, "<")):
        return False
    return not file.startswith(_STDLIB) or file.removeprefix(_STDLIB).startswith(_INSTALLED)


def is_installed(file: str) -> bool:
    """Return whether a file is of an installed package, and not of the user's own code."""
    return any(folder in file for folder in _INSTALLED)


def shorten_path(file: str) -> str:
    """Return a file's path from the working folder, where it is in it."""
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else file
