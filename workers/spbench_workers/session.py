"""A session of ranks under the console: several cases with one start of MPI."""

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
from spbench_core.events.rank_events import RankFacts
from spbench_core.events.statuses import LogLevel, RankStatus
from spbench_core.plugins import describe_error, list_warnings
from spbench_parallel.device.failures import translate_gpu_error
from spbench_parallel.errors import CannotRunError
from spbench_workers.binding.numa import count_physical_cores, find_core_nodes
from spbench_workers.channel.base import Channel, ConsoleUnreachableError
from spbench_workers.channel.file import FileChannel
from spbench_workers.channel.opening import open_channel
from spbench_workers.channel.tcp import TcpChannel
from spbench_workers.comm import (
    World,
    finalize_mpi,
    find_allocator,
    find_fabric,
    find_numa_node,
    open_world,
)
from spbench_workers.context import Context
from spbench_workers.gpu_load import GpuLoad, find_missing_package
from spbench_workers.host_load import HostLoad

Runner = Callable[[Context], None]


def serve() -> None:
    """Run the cases of the console. An exception of a benchmark ends the process."""
    channel = connect_or_exit()
    try:
        world = open_world(channel.guarded_by_kernel())
        if os.environ.get(rank_events.ENV_DEVICE) == "cuda":
            # Before the rank reports ready, since it does not count as silent until then. Only
            # launch.start_timeout limits the start of CUDA.
            start_gpu(world)
        start_reporting(channel, world, mpi_versions())
        if world.local_rank_conflict and world.rank == 0:
            channel.send("log", level=LogLevel.WARNING, message=world.local_rank_conflict)
        cases = world.comm.bcast(channel.receive_cases() if world.rank == 0 else None)
        channel.send("log", level=LogLevel.LOADING, message="loads the benchmarks")
        runners = load_runners(case["benchmark"] for case in cases)
        if any(map(_may_use_gpu, cases)):
            start_gpu(world)
            # No rank starts a case before all have started CUDA: from the first case on, a rank
            # without heartbeats counts as silent.
            world.comm.Barrier()
    except BaseException as error:
        report_failure(channel, error)
        raise

    names = [None, *(case["benchmark"] for case in cases), None]
    for case, before, name, after in zip(cases, names, names[1:], names[2:], strict=False):
        ends = {"first": before != name, "last": after != name}
        run_case(world, channel, case, runners[name], **ends)

    # In this order: all ranks have finished, then each closes its connection after every event has
    # arrived, and only then finalizes MPI, where it may wait or be killed.
    world.comm.Barrier()
    channel.close()
    finalize_mpi()


def start_gpu(world: World) -> None:
    """Start CUDA on this rank's GPU, if torch is installed and sees one."""
    with suppress(ImportError, OSError):  # the case reports it
        from spbench_parallel.device import gpus

        gpus.start_gpu(world.local_rank)


def _may_use_gpu(case: Mapping[str, Any]) -> bool:
    """Return whether a case uses the GPU of each rank's local rank, if torch sees one."""
    params = case["params"]
    chooses_others = params.get("device_ids") or BENCHMARKS[case["benchmark"]].takes_devices
    return params.get("device") == "auto" and not chooses_others


def connect_or_exit() -> TcpChannel | FileChannel:
    """Return the channel to the console, or exit with a message."""
    try:
        return open_channel(os.environ)
    except ConsoleUnreachableError as error:
        sys.exit(f"spbench: {error}")


def start_reporting(
    channel: TcpChannel | FileChannel, world: World, mpi: Mapping[str, str | None]
) -> None:
    """Report that this rank is ready.

    The first one of a host adds the load to its heartbeats.
    """
    channel.rank = world.rank
    report_ready(channel, world, mpi)
    if world.local_rank == 0 and os.environ.get(rank_events.ENV_HOST_LOAD) != "off":
        channel.host_load = HostLoad()

        def report(message: str) -> None:
            channel.send("log", level=LogLevel.INFO, message=message)

        channel.gpu_load = GpuLoad(report)
        if world.rank == 0 and (problem := find_missing_package()):
            report(problem)


def report_failure(channel: Channel, error: BaseException) -> None:
    """Report an exception outside of cases, with its traceback."""
    channel.send(
        "log", level=LogLevel.ERROR, message=_format_error(error), traceback=_format_traceback()
    )


def mpi_versions() -> dict[str, str | None]:
    """Return the versions of the MPI library of this rank, and of mpi4py."""
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
        nodes=tuple(sorted(find_core_nodes(world.cpus))),
        cores=count_physical_cores(world.cpus),
        numa=find_numa_node(world.cpus),
        host_cpus=os.cpu_count(),
        processor=host_facts.read_processor(),
        threads=world.threads,
        fabric=find_fabric(),
        versions={
            "python": platform.python_version(),
            **mpi,
            "torch": _find_version("torch"),
            "allocator": find_allocator(),
        },
    )
    channel.send("ready", size=world.size, **facts.to_fields())


def _find_version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def load_runners(benchmarks: Any) -> dict[str, Runner]:
    """Import the modules of benchmarks, and return their ``run`` functions.

    It is called before the first case, outside of any timed region.

    Raises:
        CannotRunError: The plug-in of a benchmark is not installed here, or its module is invalid.
    """
    # numpy is optional here; without it torch would warn on every rank.
    warnings.filterwarnings("ignore", message="Failed to initialize NumPy")
    names = sorted(set(benchmarks))
    # Torch creates 160,000 permanent objects. Garbage collection among them, during the import and
    # at exit, takes a fifth of the time in which a rank starts and ends.
    gc.disable()
    try:
        runners = {name: _import_runner(name) for name in names}
    finally:
        gc.freeze()
        gc.enable()
    if "torch" in sys.modules:
        torch = sys.modules["torch"]
        torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
        torch.set_num_interop_threads(1)
    return runners


def _import_runner(name: str) -> Runner:
    if name not in BENCHMARKS:
        warnings = "".join(f"; {warning}" for warning in list_warnings())
        raise CannotRunError(
            f"{sys.executable} on {platform.node()} has no benchmark {name}: install its plug-in "
            f"for the ranks, too{warnings}"
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

    An exception is reported to the console with its traceback, and raised again.

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
                "message": _format_error(error),
                "missing": getattr(error, "missing", False),
                "traceback": _format_traceback(),
            },
        )
        raise
    context.end(RankStatus.OK)


def run(runner: Runner, context: Context) -> None:
    """Run a benchmark, and free the memory that it has left on a GPU.

    Raises:
        CannotRunError: The case cannot run here, or a GPU has failed.
    """
    try:
        runner(context)
        # A pending error of the GPU is raised here, since it belongs to this case.
        _free_gpu_memory()
    except Exception as error:
        reported = translate_gpu_error(error, context.params)
        with suppress(Exception):  # a lost GPU cannot free its memory
            _free_gpu_memory(error)
        if reported is error:
            raise
        raise reported from error


def _free_gpu_memory(error: Exception | None = None) -> None:
    if "torch" in sys.modules:
        from spbench_parallel.device.memory import release_memory

        release_memory(error)


def _format_error(error: BaseException) -> str:
    """Return the first line of an error, with its class unless it is a CannotRunError."""
    text = str(error).strip().splitlines()
    if text and isinstance(error, CannotRunError):
        return text[0]
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__


def _format_traceback() -> str:
    return traceback.format_exc()[-20_000:]
