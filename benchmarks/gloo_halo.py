"""The halo exchange as the reference scripts do it, over torch.distributed's gloo.

    python -m benchmarks.gloo_halo --image-size 1024 --in-channels 3 --halo-len 3 --grid 1x2

For each neighbour a rank clones the strip to send, allocates zeros to receive into, and calls isend
and irecv; then it waits, and copies what came into the margin of its tile. One process a rank,
without MPI, bound to no core: gloo's own thread needs one too. Prints the median ms of an iteration
as long as its slowest rank's, as JSON.
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

from spbench_core.layout.partition import Partition, Transfers, halo_transfers
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
    words = parser.parse_args()
    size = Grid(*parse_pair(words.grid)).size
    with tempfile.TemporaryDirectory() as folder:
        processes = get_context("spawn")
        ranks = [
            processes.Process(target=run_rank, args=(rank, size, folder, vars(words)))
            for rank in range(size)
        ]
        for rank in ranks:
            rank.start()
        for rank in ranks:
            rank.join(WAIT_SECONDS)
        if any(rank.exitcode != 0 for rank in ranks):
            for rank in ranks:
                rank.kill()
            sys.exit("gloo_halo: a rank failed or did not end")
        times = [json.loads((Path(folder) / f"{rank}.json").read_text()) for rank in range(size)]
    slowest = [max(iteration) for iteration in zip(*times, strict=True)]
    print(json.dumps({"time_ms": median(slowest)}))


def run_rank(rank: int, size: int, folder: str, words: dict[str, Any]) -> None:
    """Exchange, and leave this rank's times in the folder."""
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=size
    )
    owned = Partition.from_grid(Grid(*parse_pair(words["grid"])), *parse_pair(words["image_size"]))
    table = halo_transfers(owned, words["halo_len"])
    tile = owned.tile(rank)
    held = table.needed[rank]
    padded = torch.zeros(1, words["in_channels"], held.height, held.width)
    own = view_box(padded, held, tile)
    times = []
    for round_ in range(words["warmup"] + words["iterations"]):
        own.fill_(float(rank + round_))
        dist.barrier()
        begun = perf_counter()
        exchange(rank, table, padded)
        times.append((perf_counter() - begun) * 1000.0)
        check(rank, round_, table, padded)
    (Path(folder) / f"{rank}.json").write_text(json.dumps(times[words["warmup"] :]))
    dist.destroy_process_group()


def exchange(rank: int, table: Transfers, padded: torch.Tensor) -> None:
    """Exchange once."""
    held = table.needed[rank]
    strips = [
        (piece.peer, view_box(padded, held, piece.box).clone()) for piece in table.list_sent(rank)
    ]
    requests = [dist.isend(strip, peer) for peer, strip in strips]
    received = [
        (piece, torch.zeros(view_box(padded, held, piece.box).shape))
        for piece in table.list_received(rank)
    ]
    requests += [dist.irecv(strip, piece.peer) for piece, strip in received]
    for request in requests:
        assert request is not None
        request.wait()
    for piece, strip in received:
        view_box(padded, held, piece.box).copy_(strip)


def check(rank: int, round_: int, table: Transfers, padded: torch.Tensor) -> None:
    """Exit with an error where a piece is not what its owner had."""
    held = table.needed[rank]
    for piece in table.list_received(rank):
        if not bool((view_box(padded, held, piece.box) == float(piece.peer + round_)).all()):
            sys.exit(f"gloo_halo: rank {rank} has a wrong halo from rank {piece.peer}")


if __name__ == "__main__":
    main()
