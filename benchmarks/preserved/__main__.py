"""Write output that must not change when code moves; compare two commits.

    python -m benchmarks.preserved FOLDER [--only SECTION,...] [--against FOLDER] [--home FOLDER]
                                   [--full]

Run it in a checkout of each commit, and compare the folders. Sections:

- commands: the output, diagnostics and exit code of `validate -v`, `--dry-run` and `command` of
  each shipped suite for four launchers, and of wrong commands
- catalog: all schemas, and the description of each benchmark
- plans: plans of each profile of ../shared/data
- runs: `results show`, `report`, `compare`, `replay` and exports of each run in tests/data/runs,
  and of the runs of --home
- events: the events of suites/smoke.yaml, without times and measured values
- faults: each fault of each benchmark and format with the checks that find it, and their errors;
  for models a sample of formats and layouts, or all with --full (30 minutes)

Without --full the command takes 10 minutes on 2 cores. With --against it prints the differences,
and exits with 1 if there are any. A difference in the faults may also be a stricter check: review
it.
"""

from __future__ import annotations

import difflib
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.goals import make_argument_parser
from benchmarks.preserved import commands, events, faults
from benchmarks.preserved.transcripts import Transcripts

SECTIONS = ("commands", "catalog", "plans", "runs", "events", "faults")
SHOWN_LINES = 40
"""Lines of a difference that are printed."""


def main() -> int:
    """Write the sections; return 1 if they differ from those of --against."""
    parser = make_argument_parser(__doc__)
    parser.add_argument("folder", type=Path, help="a folder for the texts")
    parser.add_argument("--only", default=",".join(SECTIONS), help="sections to write")
    parser.add_argument("--against", type=Path, help="the folder of another commit")
    parser.add_argument("--home", type=Path, help="a home with more recorded runs")
    parser.add_argument("--full", action="store_true", help="all formats and layouts of models")
    options = parser.parse_args()
    selected = options.only.split(",")
    if unknown := [name for name in selected if name not in SECTIONS]:
        parser.error(f"unknown section {unknown[0]}; choose from {', '.join(SECTIONS)}")
    for name in selected:
        started = time.monotonic()
        with Transcripts(options.folder / name) as transcripts:
            match name:
                case "commands":
                    commands.record_suites(transcripts)
                case "catalog":
                    commands.record_catalog(transcripts)
                case "plans":
                    commands.record_plans(transcripts)
                case "runs":
                    commands.record_runs(transcripts, options.home)
                case "events":
                    events.record_smoke(transcripts)
                case "faults":
                    faults.record_faults(transcripts, full=options.full)
        count = len(transcripts.names)
        print(f"{name}: {count} texts in {time.monotonic() - started:.0f} s", flush=True)
    if options.against is None:
        return 0
    differences = list(compare_folders(options.against, options.folder, selected))
    print("\n".join(differences) or f"equal to {options.against}")
    return int(bool(differences))


def compare_folders(before: Path, after: Path, sections: list[str]) -> Iterator[str]:
    """Yield the differences of two folders, file by file."""
    for section in sections:
        names = {
            path.name
            for folder in (before, after)
            if (folder / section).is_dir()
            for path in (folder / section).iterdir()
        }
        for name in sorted(names):
            old, new = (_read_lines(folder / section / name) for folder in (before, after))
            title = f"{section}/{name}"
            difference = list(difflib.unified_diff(old, new, title, title, lineterm="", n=0))
            yield from difference[:SHOWN_LINES]
            if len(difference) > SHOWN_LINES:
                yield f"... and {len(difference) - SHOWN_LINES} more lines"


def _read_lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


if __name__ == "__main__":
    sys.exit(main())
