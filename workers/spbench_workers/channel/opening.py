"""Opening of a rank's channel, and the fields of its hello."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spbench_core.events import rank_events
from spbench_workers.channel.base import Channel, ConsoleUnreachableError, encode_event
from spbench_workers.channel.connect import connect_by_relay, connect_to_console
from spbench_workers.channel.file import FileChannel, read_limits
from spbench_workers.channel.tcp import TcpChannel

_RANK_NAMES = ("MV2_COMM_WORLD", "MVP_COMM_WORLD", "OMPI_COMM_WORLD", "PMI")


def open_channel(
    environ: Mapping[str, str], *, connect_seconds: float = rank_events.CONNECT_TIMEOUT
) -> TcpChannel | FileChannel:
    """Connect to the console, or fall back to a file if SPBENCH_EVENTS_DIR is set.

    Raises:
        ConsoleUnreachableError: No collector answered within ``connect_seconds``, and
            SPBENCH_EVENTS_DIR is not set.
    """
    addresses = environ.get(rank_events.ENV_COLLECTOR, "")
    folder = environ.get(rank_events.ENV_EVENTS_DIR)
    channel = _connect(addresses.split(","), environ, connect_seconds) if addresses else None
    if channel is not None:
        channel.start()
        return channel
    if folder:
        file = FileChannel(Path(folder), read_limits(environ))
        send_hello(file, environ)
        file.start()
        return file
    location = f"at {addresses}" if addresses else f"({rank_events.ENV_COLLECTOR} is not set)"
    raise ConsoleUnreachableError(
        f"no console {location}: start ranks through spbench, or name a benchmark to run by hand"
    )


def _connect(
    addresses: list[str], environ: Mapping[str, str], connect_seconds: float
) -> TcpChannel | None:
    rank, fields = make_hello_fields(environ)
    hello = encode_event("hello", rank, 0, fields)
    if environ.get(rank_events.ENV_FAN_IN) == "node":
        admission = connect_by_relay(fields["token"], hello, timeout_seconds=connect_seconds)
    else:
        admission = connect_to_console(addresses, hello, timeout_seconds=connect_seconds)
    if admission is None:
        return None
    return TcpChannel(admission.connection, admission.received, rank, first_seq=1)


def read_launcher_rank(environ: Mapping[str, str]) -> tuple[int | None, int | None]:
    """Return rank and size from the launcher's environment; None if they are not set."""
    variables = [(f"{name}_RANK", f"{name}_SIZE") for name in _RANK_NAMES]
    variables += [("SLURM_PROCID", "SLURM_NTASKS"), ("PMI_ID", "MPIRUN_NPROCS")]
    for rank_variable, size_variable in variables:
        if rank_variable in environ:
            return int(environ[rank_variable]), int(
                environ[size_variable]
            ) if size_variable in environ else None
    return None, None


def make_hello_fields(environ: Mapping[str, str]) -> tuple[int | None, dict[str, Any]]:
    """Return the rank, and the fields of ``hello`` from the launcher's environment."""
    rank, size = read_launcher_rank(environ)
    token = environ.get(rank_events.ENV_TOKEN, "")
    process = {"host": socket.gethostname(), "pid": os.getpid()}
    return rank, {"token": token, "schema": rank_events.SCHEMA, **process, "size": size}


def send_hello(channel: Channel, environ: Mapping[str, str]) -> None:
    """Send ``hello`` with the fields of `make_hello_fields`."""
    channel.rank, fields = make_hello_fields(environ)
    channel.send("hello", **fields)
