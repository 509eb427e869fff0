"""The check of number formats, operator by operator: what it finds, and how often it errs.

    python -m benchmarks.format_check [--seeds N] [--models M,...] [--formats F,...]

Of each model and format N steps are checked as they are, and N steps of other seeds with five
faults, each at an operator of its own: a gradient of weights and one of an input that are zero, the
same multiplied by 1.01, and a tile that is left out of a sum. A fault counts as found where the
check names its tensor; whatever else it names is a false alarm. 5 ranks, of which 4 have tiles.

Outcomes are kept in --log, so that a command that was cut short goes on; --again begins anew. Ends
with 1 where a fault was not found, or an alarm was false. A step takes 0.4 to 2 s on two cores.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from benchmarks.goals import argument_parser
from benchmarks.mpi_ranks import run_ranks

RANKS = 5
CONTROLS = ("zero weight", "zero input", "1.01 weight", "1.01 input", "lost tile")
Step = dict[str, Any]


def main() -> int:
    """Take the steps, and print the table."""
    parser = argument_parser(__doc__)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--models", default="resnet,amoebanet")
    parser.add_argument("--formats", default="fp16,bf16,fp32,fp64")
    parser.add_argument("--seconds", type=float, default=1200.0, help="begin no step after these")
    parser.add_argument("--log", type=Path, default=Path(".spbench/format_check.jsonl"))
    parser.add_argument("--again", action="store_true", help="forget earlier outcomes")
    words = parser.parse_args()
    words.log.parent.mkdir(parents=True, exist_ok=True)
    if words.again:
        words.log.unlink(missing_ok=True)
    asked = (words.log, words.models, words.formats, words.seeds, words.seconds)
    if code := run_ranks("benchmarks.format_check_ranks", RANKS, *asked):
        return code
    steps = [json.loads(line) for line in words.log.read_text().splitlines()]
    rows = [
        _row(model, precision, [one for one in steps if one["step"][:2] == [model, precision]])
        for precision in words.formats.split(",")
        for model in words.models.split(",")
    ]
    print(table([["format", "model", *CONTROLS, "false alarms"], *rows]))
    return 1 if any(_errs(one) for one in steps) else 0


def table(rows: list[list[str]]) -> str:
    """Return the table in Markdown, its first row the heads."""
    heads, *others = (f"| {' | '.join(row)} |" for row in rows)
    return "\n".join([heads, "|" + " --- |" * len(rows[0]), *others])


def _row(model: str, precision: str, steps: list[Step]) -> list[str]:
    spoilt = [one for one in steps if one["controls"]]
    clean = [one for one in steps if not one["controls"]]
    found = [
        f"{sum(one['controls'][name] for one in spoilt)} of {len(spoilt)}" for name in CONTROLS
    ]
    return [
        precision,
        model,
        *found,
        f"{sum(bool(one['alarms']) for one in clean)} of {len(clean)}",
    ]


def _errs(step: Step) -> bool:
    return bool(step["alarms"]) or not all(step["controls"].values())


if __name__ == "__main__":
    sys.exit(main())
