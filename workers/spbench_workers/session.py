"""A session of a job's ranks under the console: several cases in turn, with one start of MPI."""

from __future__ import annotations

import gc
import importlib
import os
import platform
import sys
import traceback
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from spbench_core.catalog import BENCHMARKS
from spbench_core.events import rank_events
from spbench_core.events.rank_facts import RankFacts
from spbench_core.events.statuses import LogLevel, RankStatus
from spbench_core.plugins import describe_error, list_warnings
from spbench_parallel.device.failures import translate_gpu_error
from spbench_parallel.errors import CannotRunError
from spbench_workers.allocator import find_allocator
from spbench_workers.binding.numa import core_nodes, count_physical_cores
from spbench_workers.channel import (
    Channel,
    ConsoleUnreachableError,
    FileChannel,
    TcpChannel,
    open_channel,
)
from spbench_workers.comm import World, finalize_mpi, find_fabric, numa_node, open_world
from spbench_workers.context import Context
from spbench_workers.host_load import HostLoad

Runner = Callable[[Context], None]


def serve() -> None:
    """Run the cases of the console. An exception of a benchmark ends the process."""
    channel = connect_or_exit()
    try:
        world = open_world(channel.guarded_by_kernel())
        if os.environ.get(rank_events.ENV_DEVICE) == "cuda":
            # Before ready no rank counts as silent: launch.start_timeout bounds the start of CUDA.
            start_gpu(world)
        start_reporting(channel, world, mpi_versions())
        if world.local_rank_conflict and world.rank == 0:
            channel.send("log", level=LogLevel.WARNING, message=world.local_rank_conflict)
        cases = world.comm.bcast(channel.receive_cases() if world.rank == 0 else None)
        channel.send("log", level=LogLevel.LOADING, message="loads the benchmarks")
        runners = load_runners(case["benchmark"] for case in cases)
        if any(map(_may_use_gpu, cases)):
            start_gpu(world)
            # A rank counts as silent again soon after the first one starts a case.
            world.comm.Barrier()
    except BaseException as error:
        report_failure(channel, error)
        raise
    names = [None, *(case["benchmark"] for case in cases), None]
    for case, before, name, after in zip(cases, names, names[1:], names[2:], strict=False):
        ends = {"first": before != name, "last": after != name}
        run_case(world, channel, case, runners[name], **ends)
    world.comm.Barrier()
    channel.close()
    finalize_mpi()


def start_gpu(world: World) -> None:
    """Start CUDA on this rank's GPU, if torch is installed and sees one."""
    with suppress(ImportError, OSError):  # the case reports it
        from spbench_parallel.device import warm_up

        warm_up.start_gpu(world.local_rank)


def _may_use_gpu(case: Mapping[str, Any]) -> bool:
    """Return whether a case takes the GPU of each rank's local rank if torch sees one."""
    params = case["params"]
    elsewhere = params.get("device_ids") or BENCHMARKS[case["benchmark"]].takes_devices
    return params.get("device") == "auto" and not elsewhere


def connect_or_exit() -> TcpChannel | FileChannel:
    """Return the channel to the console, or end this process with a sentence."""
    try:
        return open_channel(os.environ)
    except ConsoleUnreachableError as error:
        sys.exit(f"spbench: {error}")


def start_reporting(
    channel: TcpChannel | FileChannel, world: World, mpi: Mapping[str, str | None]
) -> None:
    """Say that this rank is ready; the first one of a host tells its load from now on."""
    channel.rank = world.rank
    report_ready(channel, world, mpi)
    if world.local_rank == 0 and os.environ.get(rank_events.ENV_HOST_LOAD) != "off":
        channel.host_load = HostLoad()


def report_failure(channel: Channel, error: BaseException) -> None:
    """Report an exception that is no case's, with its traceback."""
    channel.send("log", level=LogLevel.ERROR, message=_sentence(error), traceback=_trace())


def mpi_versions() -> dict[str, str | None]:
    """Return the versions of the MPI library that this rank has started, and of mpi4py."""
    from mpi4py import MPI

    from spbench_core.mpi_builds import parse_library_name

    return {"mpi": parse_library_name(MPI.Get_library_version()), "mpi4py": version("mpi4py")}


def report_ready(channel: Channel, world: World, mpi: Mapping[str, str | None]) -> None:
    """Report the machine of this rank: host, cores, device, network and versions."""
    from spbench_core import host_facts

    facts = RankFacts(
        host=world.host,
        pid=os.getpid(),
        local_rank=world.local_rank,
        device=host_facts.describe_device(),
        cpus=tuple(world.cpus),
        nodes=tuple(sorted(core_nodes(world.cpus))),
        cores=count_physical_cores(world.cpus),
        numa=numa_node(world.cpus),
        host_cpus=os.cpu_count(),
        processor=host_facts.read_processor(),
        threads=world.threads,
        fabric=find_fabric(),
        versions={
            "python": platform.python_version(),
            **mpi,
            "torch": _version("torch"),
            "allocator": find_allocator(),
        },
    )
    channel.send("ready", size=world.size, **facts.to_fields())


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def load_runners(benchmarks: Any) -> dict[str, Runner]:
    """Import the modules of these benchmarks and return their ``run``, before the first case.

    Raises:
        CannotRunError: The plug-in of one is not installed here, or its module is wrong.
    """
    # numpy is optional here; torch would warn on every rank where it is missing.
    warnings.filterwarnings("ignore", message="Failed to initialize NumPy")
    names = sorted(set(benchmarks))
    # Torch makes 160,000 permanent objects: to collect garbage among them during the import and
    # at exit takes a fifth of the time in which a rank starts and ends.
    gc.disable()
    try:
        runners = {name: _runner(name) for name in names}
    finally:
        gc.freeze()
        gc.enable()
    if "torch" in sys.modules:
        torch = sys.modules["torch"]
        torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
        torch.set_num_interop_threads(1)
    return runners


def _runner(name: str) -> Runner:
    if name not in BENCHMARKS:
        why = "".join(f"; {warning}" for warning in list_warnings())
        raise CannotRunError(
            f"{sys.executable} on {platform.node()} has no benchmark {name}: install its plug-in "
            f"for the ranks, too{why}"
        )
    entry = BENCHMARKS[name]
    if not entry.plugin:
        runner: Runner = importlib.import_module(entry.module).run
        return runner
    try:
        runner = importlib.import_module(entry.module).run
    except (ImportError, AttributeError) as error:
        raise CannotRunError(
            f"plug-in {entry.plugin}: {entry.module}, which runs {name}, cannot be used: "
            f"{describe_error(error)}"
        ) from error
    return runner


def run_case(
    world: World,
    channel: Channel,
    case: dict[str, Any],
    runner: Runner,
    *,
    first: bool = True,
    last: bool = True,
) -> None:
    """Run one case.

    An exception is reported to the console, with its traceback, and raised again.

    ``first`` and ``last`` are passed on to the case's `Context`.
    """
    context = Context(
        world,
        channel,
        case=case["id"],
        benchmark=case["benchmark"],
        params=case["params"],
        repeat=case["repeat"],
        inject=case.get("inject"),
        first=first,
        last=last,
    )
    context.start()
    try:
        run(runner, context)
    except BaseException as error:
        context.end(
            RankStatus.ERROR,
            error={
                "type": type(error).__name__,
                "message": _sentence(error),
                "missing": getattr(error, "missing", False),
                "traceback": _trace(),
            },
        )
        raise
    context.end(RankStatus.OK)


def run(runner: Runner, context: Context) -> None:
    """Run a benchmark, and free what it has left on a GPU.

    Raises:
        CannotRunError: The case cannot run here, or a GPU has failed.
    """
    try:
        runner(context)
        # A pending error of the GPU is raised here, since it belongs to this case.
        _give_back()
    except Exception as error:
        reported = translate_gpu_error(error, context.params)
        with suppress(Exception):  # a lost GPU cannot free its memory
            _give_back(error)
        if reported is error:
            raise
        raise reported from error


def _give_back(error: Exception | None = None) -> None:
    if "torch" in sys.modules:
        from spbench_parallel.device.memory import release_memory

        release_memory(error)


def _sentence(error: BaseException) -> str:
    """Return the first line of an error, with its class unless it is a CannotRunError."""
    text = str(error).strip().splitlines()
    if text and isinstance(error, CannotRunError):
        return text[0]
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__


def _trace() -> str:
    return traceback.format_exc()[-20_000:]
