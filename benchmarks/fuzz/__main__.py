"""Mutated inputs for every reader of the console: a right result, or one sentence; nothing else.

    python -m benchmarks.fuzz [--seed 1] [--mutations 100000] [--only suite] [--first 0]

Rank events, recorded runs, reports, suites, hostfiles, clusters and profiles are mutated at random
and read as the product reads them. What comes of it must be a result that does not contradict
itself, or an error of few lines, within `PATIENCE` seconds. Each mutation follows from seed, target
and number alone: a defect is shown with the words that repeat it. Exits with 1 where there are any.
"""

from __future__ import annotations

import asyncio
import random
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from benchmarks.fuzz.targets import TARGETS, UnsafeError
from benchmarks.goals import argument_parser

from spbench.errors import SpbenchError

PATIENCE = 5.0
MOST_TOLD = 100_000
"""Letters of the longest error of a file."""
MOST_SHOWN = 2_000_000
MEMORY = 2 << 30
"""Bytes of address space: what asks for more than that is a defect."""
MOST_DEFECTS = 10


class Hang(BaseException):
    """An input that took longer than `PATIENCE`; no handler of the product's may take it."""


def main(words: Sequence[str] | None = None) -> int:
    parser = argument_parser(__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--mutations", type=int, default=100_000)
    parser.add_argument("--only", choices=TARGETS, help="one target alone")
    parser.add_argument("--first", type=int, default=0, help="the first mutation's number")
    asked = parser.parse_args(words)
    signal.signal(signal.SIGALRM, _ring)
    defects: list[str] = []
    for target, count in _counts(asked.mutations, asked.only).items():
        defects += asyncio.run(_fuzz(target, asked.seed, range(asked.first, asked.first + count)))
    for defect in defects[:MOST_DEFECTS]:
        print(f"\n{defect}")
    print(f"{len(defects)} defects")
    return 1 if defects else 0


def _counts(mutations: int, only: str | None) -> dict[str, int]:
    if only is not None:
        return {only: mutations}
    return {name: max(1, mutations * share // 1000) for name, (_, share) in TARGETS.items()}


async def _fuzz(target: str, seed: int, numbers: range) -> list[str]:
    """Give a target its mutations; return those it did not bear, as words and traceback.

    Connections are made in a loop, so it runs in one.
    """
    run, _ = TARGETS[target]
    outcomes: Counter[str] = Counter()
    defects: list[str] = []
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        for number in numbers:
            draw = random.Random(f"{seed}:{target}:{number}")
            signal.setitimer(signal.ITIMER_REAL, PATIENCE)
            try:
                shown = run(draw, Path(folder))
                _look_at(shown, MOST_SHOWN)
                outcomes["results"] += 1
            except SpbenchError as error:
                outcomes["refused"] += 1
                try:
                    _look_at(str(error), MOST_TOLD)
                except UnsafeError:
                    defects.append(_defect(target, seed, number))
            except (Exception, Hang):
                defects.append(_defect(target, seed, number))
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
    seconds = time.monotonic() - began
    print(
        f"{target:<9} {len(numbers):>7} mutations, {outcomes['results']:>6} results, "
        f"{outcomes['refused']:>6} refused, {len(defects)} defects, {seconds:.1f} s",
        flush=True,
    )
    return defects


def _defect(target: str, seed: int, number: int) -> str:
    words = f"--seed {seed} --only {target} --first {number} --mutations 1"
    return f"python -m benchmarks.fuzz {words}\n{traceback.format_exc()}"


def _look_at(text: str, most: int) -> None:
    if len(text) > most:
        raise UnsafeError(f"{len(text)} letters are told, beginning with {text[:200]!r}")
    for defect in ("a defect of spbench", "sys.set_int_max_str_digits"):
        if defect in text:
            at = text.index(defect)
            raise UnsafeError(text[max(0, at - 100) : at + 300])


def _ring(number: int, frame: FrameType | None) -> None:
    raise Hang(f"not through after {PATIENCE:g} s")


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))
    sys.exit(main())
