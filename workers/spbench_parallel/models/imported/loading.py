"""Loading of a user's network: the module that ``module:callable`` returns."""

from __future__ import annotations

import importlib
import importlib.util
import os
import pkgutil
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
from spbench_parallel.errors import CannotRunError, MissingModuleError
from spbench_parallel.models.imported.state import map_names_in_state
from spbench_parallel.models.imported.state_files import read_state

# The package that runs this one on ranks, if it is installed; it is not imported here.
_WORKERS_SPEC = importlib.util.find_spec("spbench_workers")
_OWN_PACKAGES = tuple(
    os.path.join(os.path.abspath(folder), "")
    for folder in (
        *torch.__path__,
        *spbench_core.__path__,
        *spbench_parallel.__path__,
        *((_WORKERS_SPEC and _WORKERS_SPEC.submodule_search_locations) or ()),
    )
)
_STDLIB = os.path.join(sysconfig.get_path("stdlib"), "")
_PACKAGE_FOLDERS = ("site-packages" + os.sep, "dist-packages" + os.sep)
"""Folders of installed packages; they may be inside that of the standard library."""


def load_network(network: str, arguments: Mapping[str, Any], seed: int) -> nn.Module:
    """Return the module that a callable returns, on the host, with seeded weights.

    Args:
        network: The callable, ``module:callable``.
        arguments: Its keyword arguments.
        seed: The seed of torch and of Python's ``random``.

    Raises:
        MissingModuleError: A module that it imports is not installed here.
        CannotRunError: The callable is missing, fails, or does not return a module.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        random_state = random.getstate()
        random.seed(seed)
        try:
            module = call_by_name(network, arguments)
        except Exception as error:  # the user's code may raise anything
            line = find_user_line(error)
            root = _find_root_cause(error)
            message = f"network {network}: {line}{describe_error(error)}{_describe_cause(error)}"
            if not isinstance(root, ModuleNotFoundError):
                raise CannotRunError(f"{message}{_advice(root)}") from error
            similar_module = _find_similar_module(root.name or "", network)
            if similar_module is not None:
                raise CannotRunError(f"{message}; did you mean {similar_module}?") from error
            raise MissingModuleError(message) from error
        finally:
            random.setstate(random_state)
    if not isinstance(module, nn.Module):
        raise CannotRunError(
            f"network {network}: it returned {type(module).__name__}, and must return an nn.Module"
        )
    return module


def call_by_name(name: str, arguments: Mapping[str, Any]) -> Any:
    """Return the result of ``module:callable``; the working folder is importable.

    Raises:
        Exception: Any error of the user's code.
    """
    module, _, function = name.partition(":")
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    return getattr(importlib.import_module(module), function)(**arguments)


def load_weights(network: str, module: nn.Module, path: Path) -> None:
    """Load a file with the ``state_dict`` of a module, without running code in it.

    Raises:
        CannotRunError: The file is missing, or of another module.
    """
    try:
        state = read_state(path)
    except CannotRunError as error:
        raise CannotRunError(f"network {network}: {error}") from None
    expected = module.state_dict()
    if not isinstance(state, dict) or state.keys() != expected.keys():
        loaded_names = set(state) if isinstance(state, dict) else set()
        differing_names = sorted(map(str, loaded_names ^ expected.keys()))
        problem = "has no" if differing_names[0] in expected else "has an unknown"
        raise CannotRunError(f"network {network}: weights {path} {problem} {differing_names[0]}")
    for name, tensor in expected.items():
        loaded_shape = list(state[name].shape)
        expected_shape = list(tensor.shape)
        if loaded_shape != expected_shape:
            mismatch = f"{name} of shape {loaded_shape}, the network's is {expected_shape}"
            raise CannotRunError(f"network {network}: weights {path} has {mismatch}")
    for names_of_tensor in map_names_in_state(module).values():
        for name in names_of_tensor[1:]:
            if not torch.equal(state[names_of_tensor[0]], state[name]):
                raise CannotRunError(
                    f"network {network}: weights {path} has other values for {names_of_tensor[0]} "
                    f"than for {name}, which are one tensor of the network; save it from "
                    "a trained network"
                )
    module.load_state_dict(state)


def describe_error(error: BaseException) -> str:
    """Return an error's class and the first line of its text."""
    lines = str(error).strip().splitlines() or ["no reason given"]
    return f"{type(error).__name__}: {lines[0]}"


def _find_root_cause(error: BaseException) -> BaseException:
    """Return the first error in a chain of errors."""
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return error if cause is None else _find_root_cause(cause)


def _describe_cause(error: BaseException) -> str:
    """Return the root cause of an error in brackets; empty if there is none."""
    root = _find_root_cause(error)
    return "" if root is error else f" (caused by {describe_error(root)})"


def _advice(error: BaseException) -> str:
    """Return the remedy for an error with an unclear text; empty if it is unknown."""
    if isinstance(error, AttributeError) and isinstance(error.obj, ModuleType):
        matches = get_close_matches(error.name or "", dir(error.obj), n=1)
        return f"; did you mean {matches[0]}?" if matches else ""
    missing_operator = re.match(r"operator (\w+)::\w+ does not exist", str(error))
    if missing_operator is None:
        return ""
    return (
        f"; the compiled part of {missing_operator[1]} does not load over torch "
        f"{torch.__version__}: install a build of it for this torch"
    )


def _find_similar_module(name: str, network: str) -> str | None:
    """Return the module that a network with a missing module probably means, or None.

    The names are those next to the missing module: of its package, or of the working folder. Other
    modules, which the network's own one imports, are spelt by code.
    """
    if not f"{network.partition(':')[0]}.".startswith(f"{name}."):
        return None
    package, _, last_part = name.rpartition(".")
    parent = sys.modules.get(package)
    # A module that is a file has no folder with other modules.
    folders = getattr(parent, "__path__", ()) if parent is not None else [str(Path.cwd())]
    names = [module.name for module in pkgutil.iter_modules(folders)]
    matches = get_close_matches(last_part, names, n=1)
    if not matches:
        return None
    return f"{package}.{matches[0]}" if package else matches[0]


def find_current_line() -> str:
    """Return the innermost running line of the user's code, as ``file:line: ``."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if is_user_code(frame.f_code.co_filename):
            return f"{shorten_path(frame.f_code.co_filename)}:{frame.f_lineno}: "
        frame = frame.f_back
    return ""


def find_user_line(error: BaseException) -> str:
    """Return the user's line of an error, as ``file:line: ``; empty if there is none."""
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if is_user_code(frame.filename)
    ]
    return f"{shorten_path(frames[-1].filename)}:{frames[-1].lineno}: " if frames else ""


def is_user_code(file: str) -> bool:
    """Return whether a file does not belong to torch, spbench or Python."""
    if file.startswith((*_OWN_PACKAGES, "<")):
        return False
    return not file.startswith(_STDLIB) or file.removeprefix(_STDLIB).startswith(_PACKAGE_FOLDERS)


def is_installed(file: str) -> bool:
    """Return whether a file belongs to an installed package, not to the user's code."""
    return any(folder in file for folder in _PACKAGE_FOLDERS)


def shorten_path(file: str) -> str:
    """Return a file's path, relative to the working folder if it is inside."""
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else file
