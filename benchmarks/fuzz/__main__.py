"""Mutated inputs for every reader of the console: a valid result or a short error.

    python -m benchmarks.fuzz [--seed 1] [--mutations 100000] [--only suite] [--first 0]

Rank events, recorded runs, reports, suites, hostfiles, clusters and profiles are mutated at random
and read with the product's code. The outcome must be a consistent result or an error of a few
lines, within `MAX_SECONDS`. Each mutation depends only on seed, target and number: a defect is
printed with the command that repeats it. The exit code is 1 if there are defects.
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
from functools import partial
from pathlib import Path
from types import FrameType

from benchmarks.fuzz.targets import TARGETS, UnsafeError
from benchmarks.goals import make_argument_parser

from spbench.errors import SpbenchError

MAX_SECONDS = 5.0
"""The time for an input; a longer time is a defect."""
MAX_ERROR_CHARACTERS = 100_000
MAX_RESULT_CHARACTERS = 2_000_000
MEMORY = 2 << 30
"""Bytes of address space: an input that needs more is a defect."""
MAX_SHOWN_DEFECTS = 10


class Hang(BaseException):
    """The time of an input is over; the product must not catch this exception."""


def main(argv: Sequence[str] | None = None, *, max_seconds: float = MAX_SECONDS) -> int:
    parser = make_argument_parser(__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--mutations", type=int, default=100_000)
    parser.add_argument("--only", choices=TARGETS, help="one target only")
    parser.add_argument("--first", type=int, default=0, help="the first mutation's number")
    options = parser.parse_args(argv)
    signal.signal(signal.SIGALRM, partial(_raise_hang, max_seconds))
    defects: list[str] = []
    for target, count in _count_mutations(options.mutations, options.only).items():
        numbers = range(options.first, options.first + count)
        defects += asyncio.run(_fuzz_target(target, options.seed, numbers, max_seconds))
    for defect in defects[:MAX_SHOWN_DEFECTS]:
        print(f"\n{defect}")
    print(f"{len(defects)} defects")
    return 1 if defects else 0


def _count_mutations(mutations: int, only: str | None) -> dict[str, int]:
    if only is not None:
        return {only: mutations}
    return {name: max(1, mutations * share // 1000) for name, (_, share) in TARGETS.items()}


async def _fuzz_target(target: str, seed: int, numbers: range, max_seconds: float) -> list[str]:
    """Run a target's mutations; return the defects, each with command and traceback.

    Some targets make connections in an event loop, so all of them run in one.
    """
    run, _ = TARGETS[target]
    outcomes: Counter[str] = Counter()
    defects: list[str] = []
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        for number in numbers:
            generator = random.Random(f"{seed}:{target}:{number}")
            signal.setitimer(signal.ITIMER_REAL, max_seconds)
            try:
                text = run(generator, Path(folder))
                _check_text(text, MAX_RESULT_CHARACTERS)
                outcomes["results"] += 1
            except SpbenchError as error:
                outcomes["refused"] += 1
                try:
                    _check_text(str(error), MAX_ERROR_CHARACTERS)
                except UnsafeError:
                    defects.append(_describe_defect(target, seed, number))
            except (Exception, Hang):
                defects.append(_describe_defect(target, seed, number))
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
    seconds = time.monotonic() - began
    print(
        f"{target:<9} {len(numbers):>7} mutations, {outcomes['results']:>6} results, "
        f"{outcomes['refused']:>6} refused, {len(defects)} defects, {seconds:.1f} s",
        flush=True,
    )
    return defects


def _describe_defect(target: str, seed: int, number: int) -> str:
    options = f"--seed {seed} --only {target} --first {number} --mutations 1"
    return f"python -m benchmarks.fuzz {options}\n{traceback.format_exc()}"


def _check_text(text: str, limit: int) -> None:
    if len(text) > limit:
        raise UnsafeError(f"the text has {len(text)} characters and starts with {text[:200]!r}")
    for defect in ("a defect of spbench", "sys.set_int_max_str_digits"):
        if defect in text:
            position = text.index(defect)
            raise UnsafeError(text[max(0, position - 100) : position + 300])


def _raise_hang(max_seconds: float, number: int, frame: FrameType | None) -> None:
    raise Hang(f"no result after {max_seconds:g} s")


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))
    sys.exit(main())
