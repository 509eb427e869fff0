"""Checks of cases before a launch, in a separate process of the console.

    python -m spbench_workers.checking < CASES

It reads a JSON list of ``{benchmark, params}``, and calls the check module that each benchmark's
entry names. It prints ``spbench-check`` and a JSON list: for each case null, a message why it
cannot run, or ``{"missing_module": MESSAGE}`` if hosts with that module may run it. MPI is not
started.
"""

from __future__ import annotations

import importlib
import json
import sys
from typing import Any

from spbench_core.catalog import BENCHMARKS
from spbench_parallel.errors import CannotRunError, MissingModuleError

MARK = "spbench-check "


def main() -> None:
    """Check the cases on standard input, and print the answers."""
    answers = [_check_case(**case) for case in json.load(sys.stdin)]
    print(MARK + json.dumps(answers), flush=True)


def _check_case(benchmark: str, params: dict[str, Any]) -> str | dict[str, str] | None:
    module = BENCHMARKS[benchmark].check_module
    assert module is not None, "the console sends only benchmarks with a check"
    try:
        importlib.import_module(module).check(params)
    except MissingModuleError as error:
        return {"missing_module": str(error)}
    except CannotRunError as error:
        return str(error)
    return None


if __name__ == "__main__":
    main()
