"""The halo exchange of the reference scripts, over torch.distributed's gloo.

    python -m benchmarks.gloo_halo --image-size 1024 --in-channels 3 --halo-len 3 --grid 1x2

For each neighbour a rank clones the strip to send, allocates zeros to receive into, and calls isend
and irecv. Then it waits, and copies each received strip into the margin of its tile. There is one
process per rank, without MPI. Ranks are not bound to cores, because gloo's thread needs a core too.
Prints as JSON the median over iterations of the slowest rank's time in ms.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import torch
import torch.distributed as dist

from spbench_core.layout.partition import Partition, Transfers, make_halo_transfers
from spbench_core.layout.tiles import Grid, parse_pair
from spbench_parallel.spatial.exchange import view_box

WAIT_SECONDS = 300


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--image-size", default="1024")
    parser.add_argument("--in-channels", type=int, default=3)
    parser.add_argument("--halo-len", type=int, default=3)
    parser.add_argument("--grid", default="1x2")
    parser.add_argument("--warmup", type=int, default=20)
    parser.add_argument("--iterations", type=int, default=200)
    options = parser.parse_args()
    rank_count = Grid(*parse_pair(options.grid)).size
    with tempfile.TemporaryDirectory() as folder:
        processes = get_context("spawn")
        ranks = [
            processes.Process(target=run_rank, args=(rank, rank_count, folder, vars(options)))
            for rank in range(rank_count)
        ]
        for rank in ranks:
            rank.start()
        for rank in ranks:
            rank.join(WAIT_SECONDS)
        if any(rank.exitcode != 0 for rank in ranks):
            for rank in ranks:
                rank.kill()
            sys.exit("gloo_halo: a rank failed or did not end")
        times_ms_by_rank = [
            json.loads((Path(folder) / f"{rank}.json").read_text()) for rank in range(rank_count)
        ]
    slowest_ms = [max(iteration) for iteration in zip(*times_ms_by_rank, strict=True)]
    print(json.dumps({"time_ms": median(slowest_ms)}))


def run_rank(rank: int, size: int, folder: str, options: dict[str, Any]) -> None:
    """Exchange halos, and write this rank's times into the folder."""
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=size
    )
    owned = Partition.from_grid(
        Grid(*parse_pair(options["grid"])), *parse_pair(options["image_size"])
    )
    table = make_halo_transfers(owned, options["halo_len"])
    tile = owned.tile(rank)
    needed = table.needed[rank]
    padded = torch.zeros(1, options["in_channels"], needed.height, needed.width)
    interior = view_box(padded, needed, tile)
    times_ms = []
    for iteration in range(options["warmup"] + options["iterations"]):
        interior.fill_(float(rank + iteration))
        dist.barrier()
        started = perf_counter()
        exchange(rank, table, padded)
        times_ms.append((perf_counter() - started) * 1000.0)
        check_halo(rank, iteration, table, padded)
    (Path(folder) / f"{rank}.json").write_text(json.dumps(times_ms[options["warmup"] :]))
    dist.destroy_process_group()


def exchange(rank: int, table: Transfers, padded: torch.Tensor) -> None:
    """Exchange the halos of a rank once."""
    needed = table.needed[rank]
    strips = [
        (piece.peer, view_box(padded, needed, piece.box).clone()) for piece in table.list_sent(rank)
    ]
    requests = [dist.isend(strip, peer) for peer, strip in strips]
    received = [
        (piece, torch.zeros(view_box(padded, needed, piece.box).shape))
        for piece in table.list_received(rank)
    ]
    requests += [dist.irecv(strip, piece.peer) for piece, strip in received]
    for request in requests:
        assert request is not None
        request.wait()
    for piece, strip in received:
        view_box(padded, needed, piece.box).copy_(strip)


def check_halo(rank: int, iteration: int, table: Transfers, padded: torch.Tensor) -> None:
    """Exit with an error if a received piece differs from its owner's pixels."""
    needed = table.needed[rank]
    for piece in table.list_received(rank):
        if not bool((view_box(padded, needed, piece.box) == float(piece.peer + iteration)).all()):
            sys.exit(f"gloo_halo: rank {rank} has a wrong halo from rank {piece.peer}")


if __name__ == "__main__":
    main()
