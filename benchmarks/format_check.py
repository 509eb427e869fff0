"""The check of number formats by operator: its detections and its false alarms.

    python -m benchmarks.format_check [--seeds N] [--models M,...] [--formats F,...]

For each model and format, N steps are checked unchanged. N steps of other seeds have five faults,
each at a different operator. These are a gradient of weights and one of an input that are zero, one
of each that is multiplied by 1.01, and a tile that is missing from a sum. A fault is detected if
the check names its tensor; any other name is a false alarm. 5 ranks, of which 4 have tiles.

Outcomes are kept in --log, so that an interrupted command continues. --again starts from the
beginning. The exit code is 1 if a fault was missed or an alarm was false. A step takes 0.4 to 2 s
on two cores.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from benchmarks.goals import make_argument_parser
from benchmarks.mpi_ranks import run_ranks

RANKS = 5
PLANTED_FAULTS = ("zero weight", "zero input", "1.01 weight", "1.01 input", "lost tile")
Step = dict[str, Any]


def main() -> int:
    """Check the steps, and print the table."""
    parser = make_argument_parser(__doc__)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--models", default="resnet,amoebanet")
    parser.add_argument("--formats", default="fp16,bf16,fp32,fp64")
    parser.add_argument("--seconds", type=float, default=1200.0, help="begin no step after these")
    parser.add_argument("--log", type=Path, default=Path(".spbench/format_check.jsonl"))
    parser.add_argument("--again", action="store_true", help="forget earlier outcomes")
    options = parser.parse_args()
    options.log.parent.mkdir(parents=True, exist_ok=True)
    if options.again:
        options.log.unlink(missing_ok=True)
    arguments = (options.log, options.models, options.formats, options.seeds, options.seconds)
    if code := run_ranks("benchmarks.format_check_ranks", RANKS, *arguments):
        return code
    steps = [json.loads(line) for line in options.log.read_text().splitlines()]
    rows = [
        _format_row(
            model, precision, [step for step in steps if step["step"][:2] == [model, precision]]
        )
        for precision in options.formats.split(",")
        for model in options.models.split(",")
    ]
    print(format_table([["format", "model", *PLANTED_FAULTS, "false alarms"], *rows]))
    return 1 if any(_is_wrong(step) for step in steps) else 0


def format_table(rows: list[list[str]]) -> str:
    """Return a table in Markdown; its first row has the headings."""
    headings, *lines = (f"| {' | '.join(row)} |" for row in rows)
    return "\n".join([headings, "|" + " --- |" * len(rows[0]), *lines])


def _format_row(model: str, precision: str, steps: list[Step]) -> list[str]:
    faulty = [step for step in steps if step["detected"]]
    clean = [step for step in steps if not step["detected"]]
    detected = [
        f"{sum(step['detected'][name] for step in faulty)} of {len(faulty)}"
        for name in PLANTED_FAULTS
    ]
    return [
        precision,
        model,
        *detected,
        f"{sum(bool(step['alarms']) for step in clean)} of {len(clean)}",
    ]


def _is_wrong(step: Step) -> bool:
    return bool(step["alarms"]) or not all(step["detected"].values())


if __name__ == "__main__":
    sys.exit(main())
