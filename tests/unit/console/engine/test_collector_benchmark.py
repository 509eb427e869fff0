"""Recording of a rank's lines: a sample of `benchmarks.collector`."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks.collector import STAGES, StageBenchmark, load_case
from benchmarks.collector_ranks import send_lines

RANKS = 2
LINES = 200


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[StageBenchmark]:
    case = load_case(RANKS)
    context = multiprocessing.get_context("spawn")
    pipe, sender_pipe = context.Pipe()
    sender = context.Process(target=send_lines, args=(sender_pipe, case.id, RANKS, LINES))
    sender.start()
    try:
        pipe.recv()
        yield StageBenchmark(pipe, case, RANKS, LINES, tmp_path)
    finally:
        pipe.send(None)
        sender.join()


@pytest.mark.slow
def test_each_stage_takes_all_lines(bench: StageBenchmark) -> None:
    for stage in STAGES:
        assert bench.measure_stage(stage).lines == RANKS * LINES
