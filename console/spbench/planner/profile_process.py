"""Profiles of models, measured in a separate process that can be stopped."""

from __future__ import annotations

import asyncio
import signal
import sys
from contextlib import suppress
from pathlib import Path

from spbench.launch.reaping import kill_and_wait, wait_for_exit
from spbench.planner.errors import PlannerError

PROFILE_FOLDER = "profiles"
"""The folder in which new profiles are written."""
MODELS = {
    "resnet": "the ResNet of spbench, about 20 s on an idle machine",
    "amoebanet": "the AmoebaNet of spbench, longer",
}
"""The models that can be measured without a file of the user, each with a summary."""
STOP_SECONDS = 3.0
"""Time that an interrupted process has to end its ranks, in seconds."""


def get_profile_path(model: str) -> str:
    """Return the path of a model's profile, relative to the folder of the console."""
    return f"{PROFILE_FOLDER}/{model}.json"


async def measure_profile(model: str, folder: Path, home: Path) -> str:
    """Measure a profile, and return its path relative to the folder.

    Cancelling the call interrupts the process.

    Raises:
        PlannerError: The folder cannot be written, or the process failed.
    """
    profile_path = get_profile_path(model)
    arguments = ("profile", model, "--output", profile_path)
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
        raise PlannerError(f"cannot measure {model}: {error.strerror or error}") from None
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
