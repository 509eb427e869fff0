"""The work of a case: what its times are times of, whatever the case is called.

Two suites may have cases of one name, and a suite may change its parameters: their times must not
be taken for noise.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

DATA_ALONE = ("seed", "warmup")
"""Parameters that change which numbers are computed with, or what is dropped, and no time."""
_INJECT = "--inject"
_LETTERS = 16


def hash_work(
    benchmark: Any,
    version: Any,
    np: Any,
    params: Mapping[str, Any],
    argv: Sequence[Any] = (),
    case_id: str = "",
) -> str:
    """Return a short hash of benchmark, version, ranks and parameters, and of a planted fault.

    Args:
        benchmark: The benchmark's name.
        version: Its version.
        np: The number of ranks.
        params: The parameters of the case.
        argv: The command line of the run, which has the planted faults.
        case_id: The id of the case; faults of other cases do not count.
    """
    same = {name: value for name, value in params.items() if name not in DATA_ALONE}
    faults = [
        fault for fault in parse_planted_faults(list(map(str, argv))) if _concerns(fault, case_id)
    ]
    identity = [benchmark, version, np, same, faults]
    text = json.dumps(identity, sort_keys=True, default=str)
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:_LETTERS]


def _concerns(fault: str, case_id: str) -> bool:
    """Whether ``FAULT[@CASE]`` may be planted in a case: CASE is its id, or its name before it."""
    _, at, target = fault.partition("@")
    return not at or target in (case_id, case_id.partition("[")[0])


def parse_planted_faults(words: Sequence[str]) -> list[str]:
    """Return the values of ``--inject`` in a run's command line, ``FAULT`` or ``FAULT@CASE``."""
    split = [value for word, value in pairwise(words) if word == _INJECT]
    joined = [word for word in words if word.startswith(f"{_INJECT}=")]
    return [*split, *(word.removeprefix(f"{_INJECT}=") for word in joined)]
