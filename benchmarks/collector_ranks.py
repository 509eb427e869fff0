"""The ranks of `benchmarks.collector`: a process that sends lines at full speed."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from spbench_core.events import rank_events

TOKEN = "token-of-a-benchmark"
LOOPBACK = "127.0.0.1"
BASE = 1_900_000_000.0


def send_lines(pipe: Connection[Any, Any], case: str, ranks: int, lines: int) -> None:
    """Build all lines, then send them to each port that arrives, until None arrives."""
    blocks = [build_block(rank, case, ranks, lines) for rank in range(ranks)]
    pipe.send(sum(map(len, blocks)))
    while (port := pipe.recv()) is not None:
        threads = [threading.Thread(target=send_rank_lines, args=(port, block)) for block in blocks]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        pipe.send("sent")


def send_rank_lines(port: int, block: bytes) -> None:
    """Send one rank's lines, and wait until the collector closes the connection."""
    with socket.create_connection((LOOPBACK, port)) as connection, suppress(ConnectionError):
        connection.sendall(block)
        while connection.recv(1 << 16):
            pass


def build_block(rank: int, case: str, ranks: int, lines: int) -> bytes:
    """Return one rank's lines: half samples, the others heartbeats and progress."""
    case_json = json.dumps(case)
    lines_out = [rank_events.encode(event) for event in build_first_events(rank, case, ranks)]
    for seq in range(len(lines_out), lines):
        head = f'"rank":{rank},"seq":{seq},"time":{BASE + seq / 100:.6f}'
        if seq % 10 < 2:
            text = f'{{"event":"heartbeat",{head}}}\n'
        elif seq % 10 < 5:
            more = f'"case":{case_json},"repeat":0,"phase":"timing","done":{seq},"total":{lines}'
            text = f'{{"event":"progress",{head},{more}}}\n'
        else:
            values = f"[0.{seq % 997:03d}123,0.{seq % 991:03d}456]"
            more = f'"case":{case_json},"repeat":0,"metric":"time_ms","values":{values}'
            text = f'{{"event":"samples",{head},{more}}}\n'
        lines_out.append(text.encode())
    return b"".join(lines_out)


def build_first_events(rank: int, case: str, ranks: int) -> Sequence[Mapping[str, Any]]:
    hello = {"token": TOKEN, "host": "node01", "pid": 1000 + rank}
    ready = {
        "size": ranks,
        "local_rank": rank,
        "cpus": [rank],
        "device": "cpu",
        "versions": {"python": "3.11"},
        **hello,
    }
    del ready["token"]
    events: list[dict[str, Any]] = [
        {"event": "hello", **hello},
        {"event": "ready", **ready},
        {"event": "case_start", "case": case, "repeat": 0},
    ]
    return [
        {"event": event.pop("event"), "rank": rank, "seq": seq, "time": BASE, **event}
        for seq, event in enumerate(events)
    ]
