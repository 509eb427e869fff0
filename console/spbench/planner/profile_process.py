"""Profiles of models, measured in a separate process that can be stopped."""

from __future__ import annotations

import asyncio
import signal
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from spbench.launch.reaping import kill_and_wait, wait_for_exit
from spbench.planner.errors import PlannerError

PROFILE_FOLDER = "profiles"
"""The folder in which new profiles are written."""


@dataclass(frozen=True, slots=True)
class MeasurableModel:
    """A network that can be measured without a file of the user.

    Attributes:
        model: The model of ``spbench profile``.
        summary: Its size, and the time that it takes on an idle machine.
        overrides: The parameters that differ from the defaults, for ``--set``.
    """

    model: str
    summary: str
    overrides: tuple[str, ...] = ()


MODELS = {
    "resnet-11": MeasurableModel("resnet", "ResNet, depth 11, 32x32, about 5 s", ("depth=11",)),
    "resnet-110": MeasurableModel("resnet", "ResNet, depth 110, 32x32, about 40 s"),
    "amoebanet": MeasurableModel("amoebanet", "AmoebaNet, 18 cells, 32x32, minutes"),
}
"""The networks by the name of their profile, the smallest one first."""
STOP_SECONDS = 3.0
"""Time that an interrupted process has to end its ranks, in seconds."""


def get_profile_path(name: str) -> str:
    """Return the path of a network's profile, relative to the folder of the console."""
    return f"{PROFILE_FOLDER}/{name}.json"


async def measure_profile(name: str, folder: Path, home: Path) -> str:
    """Measure a profile of `MODELS`, and return its path relative to the folder.

    Cancelling the call interrupts the process.

    Raises:
        PlannerError: The folder cannot be written, or the process failed.
    """
    profile_path = get_profile_path(name)
    model = MODELS[name]
    settings = [argument for override in model.overrides for argument in ("--set", override)]
    arguments = ("profile", model.model, *settings, "--output", profile_path)
    pipe = asyncio.subprocess.PIPE
    try:
        (folder / PROFILE_FOLDER).mkdir(exist_ok=True)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "spbench", *arguments, "--home", str(home), "--quiet"),
            cwd=folder,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=pipe,
        )
    except OSError as error:
        raise PlannerError(f"cannot measure {name}: {error.strerror or error}") from None
    try:
        _, log = await process.communicate()
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGINT)
            await _wait_and_kill(process)
    if process.returncode:
        last_line = log.decode(errors="replace").strip().rpartition("\n")[2]
        reason = last_line.removeprefix("error: ")
        raise PlannerError(f"spbench profile ended with exit code {process.returncode}: {reason}")
    return profile_path


async def _wait_and_kill(process: asyncio.subprocess.Process) -> None:
    try:
        await wait_for_exit(process, timeout_seconds=STOP_SECONDS)
    finally:
        await kill_and_wait(process)
