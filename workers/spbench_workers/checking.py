"""The check of cases before a launch: a program that the console runs in a process of its own.

    python -m spbench_workers.checking < CASES

It reads a JSON list of ``{benchmark, params}``, asks the module that each benchmark's entry names,
and prints ``spbench-check`` and a JSON list: for each case null, or the sentence that speaks
against it. No MPI is started.
"""

from __future__ import annotations

import importlib
import json
import sys
from typing import Any

from spbench_core.catalog import BENCHMARKS
from spbench_parallel.errors import CannotRunError

MARK = "spbench-check "


def main() -> None:
    """Answer for the cases on standard input."""
    answers = [_answer(**case) for case in json.load(sys.stdin)]
    print(MARK + json.dumps(answers), flush=True)


def _answer(benchmark: str, params: dict[str, Any]) -> str | None:
    module = BENCHMARKS[benchmark].check_module
    assert module is not None, "others are not asked for"
    try:
        importlib.import_module(module).check(params)
    except CannotRunError as error:
        return str(error)
    return None


if __name__ == "__main__":
    main()
