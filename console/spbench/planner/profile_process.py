"""Profiles of models, measured in a separate process that can be stopped."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spbench.launch.reaping import kill_and_wait, wait_for_exit
from spbench.planner.errors import PlannerError
from spbench.planner.profile.measurement import BENCHMARK, load_profile_suite, render_profile_suite
from spbench_core.catalog import BENCHMARKS

if TYPE_CHECKING:
    from spbench.engine.plan import Request, RunPlan

PROFILE_FOLDER = "profiles"
"""The folder in which new profiles are written."""


@dataclass(frozen=True, slots=True)
class MeasurableModel:
    """A kind of network that can be measured.

    Attributes:
        summary: A description, and the time of a measurement on an idle machine.
        params: The names of its parameters, the most important first.
        size_param: The parameter that names its profiles; empty without one.
    """

    summary: str
    params: tuple[str, ...]
    size_param: str = ""


OWN_MODEL = "your network"
"""The kind of networks that are named ``MODULE:CALLABLE``."""
MODELS = {
    "resnet": MeasurableModel(
        "ResNet, a residual network; quick with depth 11",
        ("depth", "version", "arch", "image_size", "num_classes"),
        "depth",
    ),
    "amoebanet": MeasurableModel(
        "AmoebaNet, a network of cells; with 18 cells minutes",
        ("num_layers", "num_filters", "pool3", "shift", "image_size", "num_classes"),
        "num_layers",
    ),
    OWN_MODEL: MeasurableModel(
        "a network in your Python code", ("model", "network_args", "image_size")
    ),
}
"""The kinds of networks, the quickest one first."""
MEASUREMENT_PARAMS = ("batch_sizes", "precision", "device", "warmup", "iterations", "seed")
"""The parameters of each measurement."""


@dataclass(frozen=True, slots=True)
class ProfileRequest:
    """A profile to measure.

    Attributes:
        model: ``resnet``, ``amoebanet``, or a ``module:callable``.
        params: The other parameters of ``model.profile`` that differ from their defaults.
        output: The file to write, relative to the folder of the console.
    """

    model: str
    params: Mapping[str, Any]
    output: str

    @property
    def overrides(self) -> tuple[str, ...]:
        """The parameters in the form of ``--set``."""
        params = [
            (BENCHMARKS[BENCHMARK].find_param(name), self.params[name]) for name in self.params
        ]
        return tuple(
            f"{param.name}={param.format_argument(value)}" for param, value in params if param
        )

    @property
    def arguments(self) -> tuple[str, ...]:
        """The arguments of ``spbench`` that measure it."""
        settings = (word for override in self.overrides for word in ("--set", override))
        return ("profile", self.model, *settings, "--output", self.output)


def plan_measurement(request: ProfileRequest, run_request: Request) -> RunPlan:
    """Return the run that measures a profile.

    It reads files, so call it in a thread.

    Args:
        request: The profile.
        run_request: The folder of the runs and the environment.

    Raises:
        SpbenchError: A parameter is invalid.
    """
    # Imported here, since the engine takes 0.1 s.
    from spbench.engine.plan import plan_suite

    run_request = replace(run_request, overrides=request.overrides)
    suite = load_profile_suite(run_request, render_profile_suite(request.model, ranks=1))
    return plan_suite(run_request, suite)


STOP_SECONDS = 3.0
"""Time that an interrupted process has to end its ranks, in seconds."""


async def measure_profile(request: ProfileRequest, folder: Path, home: Path) -> None:
    """Measure a profile and write its file.

    Cancelling the call interrupts the process.

    Raises:
        PlannerError: The file cannot be written, or the process failed.
    """
    pipe = asyncio.subprocess.PIPE
    try:
        (folder / request.output).parent.mkdir(parents=True, exist_ok=True)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "spbench", *request.arguments, "--home", str(home), "--quiet"),
            cwd=folder,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=pipe,
        )
    except OSError as error:
        raise PlannerError(f"cannot measure {request.model}: {error.strerror or error}") from None
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


async def _wait_and_kill(process: asyncio.subprocess.Process) -> None:
    try:
        await wait_for_exit(process, timeout_seconds=STOP_SECONDS)
    finally:
        await kill_and_wait(process)
