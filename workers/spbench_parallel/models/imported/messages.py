"""Error messages for networks that cannot be imported: cause, user's line, remedy."""

from __future__ import annotations

import re
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any

from torch import fx, nn

from spbench_core.models.parts import MapShape
from spbench_parallel.errors import CannotRunError
from spbench_parallel.models.imported.loading import (
    describe_error,
    find_user_line,
    is_installed,
    is_user_code,
    shorten_path,
)

_LINE = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)')
_COMMON_SIZES = 32, 64, 96, 128, 224, 256, 299, 384, 512
"""Image sizes that networks are often designed for."""
_MAX_SEARCH_SECONDS = 20.0  # for trying other sizes
_CHANNELS = re.compile(r"to have (?P<wanted>\d+) channels, but got (?P<given>\d+) channels")
# Modules of sequences or volumes, which no image size fits.
_MODULES_OF_OTHER_DATA = (
    *(nn.Conv1d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose3d, nn.BatchNorm3d),
    *(nn.InstanceNorm1d, nn.InstanceNorm3d, nn.MaxPool1d, nn.MaxPool3d, nn.AvgPool1d),
    *(nn.AvgPool3d, nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool3d),
)


class ImageSizeError(CannotRunError):
    """Error: a network's code rejects images of a size."""


def locate(node: fx.Node) -> str:
    """Return the user's line of an operator, ``file:line``, and the operator.

    For a library's operator it is the line that calls the library, with the path of the module.
    Without a known line it is only the operator.
    """
    lines = [
        match for match in _LINE.finditer(node.stack_trace or "") if is_user_code(match["file"])
    ]
    operator_name = str(node.target) if node.op != "call_function" else _function_name(node.target)
    if not lines:
        return operator_name
    locations = [f"{shorten_path(match['file'])}:{match['line']}" for match in lines]
    if not is_installed(lines[-1]["file"]):
        return f"{locations[-1]}: {operator_name}"
    user_locations = [
        location
        for match, location in zip(lines, locations, strict=True)
        if not is_installed(match["file"])
    ]
    module_paths = [path for path, _ in node.meta.get("nn_module_stack", {}).values()]
    return ": ".join(
        [
            *user_locations[-1:],
            f"{module_paths[-1] if module_paths else 'it'} ({locations[-1]})",
            operator_name,
        ]
    )


def _function_name(target: Any) -> str:
    return str(getattr(target, "__name__", target))


def make_tracing_error(
    network: str, error: Exception, calling: Sequence[str], image: MapShape
) -> CannotRunError:
    """Return the error for a forward pass that cannot be traced.

    Args:
        network: The network's name.
        error: The error that its code raised.
        calling: The paths of the submodules that were being called.
        image: The shape of an image.
    """
    prefix = f"network {network}: {_describe_line(error, calling)}"
    if not _needs_values(error):
        problem = f"it cannot take images of {image.height}x{image.width} ({describe_error(error)})"
        return ImageSizeError(f"{prefix}{problem}")
    code = _quote_code(error)
    remedy = "write it without that: sizes of images are known, their number and values are not"
    if calling and _is_in_library(error):
        remedy = (
            f"take network_args that leave it out, or give {calling[-1]} a forward of your own "
            "without it: sizes of images are known, their number and values are not"
        )
    return CannotRunError(
        f"{prefix}the forward pass cannot be traced, as {code}asks for numbers that are not known "
        f"before ({describe_error(error)}); {remedy}"
    )


def _needs_values(error: Exception) -> bool:
    """Return whether an error is about a symbol that was used like a number."""
    text = str(error)
    return isinstance(error, fx.proxy.TraceError) or any(
        name in text for name in ("Proxy", "Symbol", "symbolic")
    )


def _user_frames(error: BaseException) -> list[traceback.FrameSummary]:
    return [
        frame for frame in traceback.extract_tb(error.__traceback__) if is_user_code(frame.filename)
    ]


def _is_in_library(error: BaseException) -> bool:
    frames = _user_frames(error)
    return bool(frames) and is_installed(frames[-1].filename)


def _describe_line(error: BaseException, calling: Sequence[str]) -> str:
    """Return the line of an error; in a library, also the user's line before it."""
    if not _is_in_library(error):
        return find_user_line(error)
    frames = _user_frames(error)
    user_frames = [frame for frame in frames if not is_installed(frame.filename)]
    lines = [
        f"{shorten_path(frame.filename)}:{frame.lineno}"
        for frame in (*user_frames[-1:], frames[-1])
    ]
    path = f"{calling[-1]} " if calling and calling[-1] else ""
    return f"{lines[0]}: {path}" + (f"({lines[1]}): " if user_frames else ": ")


def _quote_code(error: BaseException) -> str:
    """Return the code of the line that raised an error, followed by a space."""
    frames = _user_frames(error)
    line = (frames[-1].line or "").strip() if frames else ""
    return f"`{line}` " if line else "it "


def called_module(root: nn.Module, node: fx.Node | None) -> nn.Module | None:
    """Return the module that a node calls, if it calls one."""
    if node is None or node.op != "call_module":
        return None
    return root.get_submodule(str(node.target))


def make_size_error(
    network: str, location: str, error: BaseException, image: MapShape, module: nn.Module | None
) -> CannotRunError:
    """Return the error for a network with operators that do not support an image.

    Args:
        network: The network's name.
        location: The line and the name of the operator that failed; empty if unknown.
        error: Its error.
        image: The shape of the image.
        module: The module that failed, if one did.

    Returns:
        An `ImageSizeError` if images of another size may help.
    """
    cause = describe_error(error.__cause__ or error)
    if isinstance(module, _MODULES_OF_OTHER_DATA):
        return CannotRunError(
            f"network {network}: {location}{type(module).__name__} is of sequences or volumes, and "
            f"images have two sides and {image.channels} channels; take a network of 2-D images"
        )
    channels = _CHANNELS.search(cause)
    if channels is not None and int(channels["given"]) == image.channels:
        return CannotRunError(
            f"network {network}: {location}it takes {channels['wanted']} channels, and images have "
            f"{image.channels}; let it take {image.channels}, by network_args"
        )
    problem = f"it cannot take images of {image.height}x{image.width} ({cause})"
    return ImageSizeError(f"network {network}: {location}{problem}")


def find_size_remedy(image: MapShape, takes: Callable[[MapShape], bool]) -> str:
    """Return the remedy if a network does not support images of a size.

    Args:
        image: The shape of the image.
        takes: Returns whether the network supports another shape.
    """
    supported_size = _find_size(image, takes)
    if supported_size is not None:
        return f"take another image_size, such as {supported_size}"
    return (
        f"it took none of {_COMMON_SIZES[0]}x{_COMMON_SIZES[0]} to "
        f"{_COMMON_SIZES[-1]}x{_COMMON_SIZES[-1]} that were tried; take the image_size that it is "
        "made for, or other network_args"
    )


def _find_size(image: MapShape, takes: Callable[[MapShape], bool]) -> str | None:
    """Return the nearest supported image size as text for ``image_size``; or None."""
    rounded_sizes = {
        tuple(max(step, (side + step // 2) // step * step) for side in image.shape[1:])
        for step in (8, 32)
    }
    deadline_seconds = time.monotonic() + _MAX_SEARCH_SECONDS
    sizes = [
        *sorted(rounded_sizes),
        *((side, side) for side in sorted(_COMMON_SIZES, key=_distance_to(image))),
    ]
    for height, width in sizes:
        if time.monotonic() > deadline_seconds:
            break
        if takes(MapShape(image.channels, height, width)):
            return str(height) if height == width else f"{height}x{width}"
    return None


def _distance_to(image: MapShape) -> Callable[[int], int]:
    return lambda side: abs(side - max(image.height, image.width))


def make_modes_message(network: str, evaluated: str, trained: str, *, outputs_differ: bool) -> str:
    """Return the message for a network with different operators in training.

    Args:
        network: The network's name.
        evaluated: The line and name of the first operator that differs, in evaluation.
        trained: The same in training.
        outputs_differ: Whether it returns several outputs in one mode.
    """
    remedy = "compute the same in both modes: the code asks self.training"
    if outputs_differ:
        remedy = "leave out auxiliary outputs, by network_args"
    return (
        f"network {network}: {trained}: the forward pass has other operators in training than in "
        f"evaluation, which has {evaluated} there; {remedy}"
    )


def make_extra_argument_error(network: str, argument: str) -> CannotRunError:
    """Return the error for an argument of the forward pass that is not an image."""
    return CannotRunError(
        f"network {network}: it takes {argument} beside images; give {argument} a default of None, "
        "a number or a bool, which is then taken"
    )
