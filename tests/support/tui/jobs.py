"""Ten user jobs in the console, as keys and the text that then appears.

Each starts on the Suites page. Textual's pilot sends the keys at two sizes, and Chromium once.
docs/console.md states the number of keys.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from spbench.record.findings import collect_findings
from spbench.record.runs.playback import find_demo_run
from support import sample_events as make
from support.tui.suites_page import SUITE

TWO_CASES = """\
schema: spbench.suite/1
name: two
cases:
  - name: wrong
    benchmark: halo.exchange
    params: {image_size: 32, num_spatial_parts: 2, slice_method: vertical, iterations: 5}
    expect: {time_ms.p50: {max: 1.0e-9}}
  - name: long
    benchmark: link.pingpong
    np: 2
    params: {sizes: [8], iterations: 10000000}
"""
CLUSTER = """\
schema: spbench.cluster/1
devices: {core: {memory: 16GB}}
links: {slow: {bandwidth: 100MB/s}}
machines: [{name: here, devices: {core: 2}, link: slow}]
"""
LAYERS = ("stem", "stack1", "stack2", "stack3", "head")
NOISY = "node03"


@dataclass(frozen=True)
class UserTask:
    """A task of a user.

    Attributes:
        name: The name in docs/console.md.
        steps: Keys, and the text that is shown after them.
        prepare: Makes the console's folder, and returns the suite to open or None.
        is_done: Whether the contents of the folder show that the task is done.
        starts_ranks: Whether it starts real ranks.
    """

    name: str
    steps: tuple[tuple[tuple[str, ...], str], ...]
    prepare: Callable[[Path], Path | None]
    is_done: Callable[[Path], bool] = lambda folder: True
    starts_ranks: bool = False

    @property
    def key_count(self) -> int:
        """The number of keys that the user presses."""
        return sum(len(keys) for keys, _ in self.steps)


def make_empty_folder(folder: Path) -> None:
    """Leave the folder empty."""


def add_suite(folder: Path, text: str = SUITE, name: str = "made-up") -> Path:
    path = folder / "suites" / f"{name}.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


def add_demo_runs(folder: Path) -> Path:
    """Record two runs of one suite with a case that failed on rank 1."""
    for day in ("20260101", "20260102"):
        run = folder / "home" / "runs" / f"{day}-000000-demo-0001"
        run.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(find_demo_run().path, run)
        record = json.loads((run / "run.json").read_text()) | {"id": run.name}
        (run / "run.json").write_text(json.dumps(record))
    return add_suite(folder)


def add_noisy_run(folder: Path) -> Path:
    """Record a run on three hosts, with other work on one of them."""
    hosts = ("node01", "node02", NOISY)
    loads = {"node01": 0.31, "node02": 0.32, NOISY: 0.99}
    events = [
        *make.make_started_run(hosts=hosts),
        *(
            make.rank_event("heartbeat", rank, load={"cpu": loads[host], "memory": 0.25})
            for rank, host in enumerate(hosts)
        ),
        *(make.rank_event("samples", rank, values=[1.0, 2.0]) for rank in range(3)),
        *(
            make.rank_event("case_end", rank, disturbed={"waited": 0.5} if rank == 2 else {})
            for rank in range(3)
        ),
        make.case_judged(),
    ]
    make.record_run(
        folder / "home",
        [*events, make.run_end(findings=collect_findings(make.build_state(events)))],
        verdict="passed",
        finished=1010.0,
        console={"pid": 1, "host": socket.gethostname(), "started": 5.0},
    )
    return add_suite(folder)


def add_profile(folder: Path) -> Path:
    """Write a profile of a small network, and a cluster of two devices."""
    sizes = {"activation_bytes": 1000, "kept_bytes": 5e8, "working_bytes": 1e6}
    times = {"forward_ms": 10.0, "backward_ms": 20.0, "parameter_bytes": 1e8}
    origin = {"model": "resnet", "params": {"image_size": 32, "version": 2, "depth": 11}}
    profile = {"schema": "spbench.profile/1", "name": "five", "batch_size": 1, "origin": origin}
    profile["layers"] = [{"name": name, **times, **sizes} for name in LAYERS]
    profile["edges"] = [list(pair) for pair in pairwise(LAYERS)]
    (folder / "five.json").write_text(json.dumps(profile))
    (folder / "two.yaml").write_text(CLUSTER)
    return add_suite(folder)


def add_unsaved_text(folder: Path) -> Path:
    """Keep an unsaved text like a console that was killed."""
    path = add_suite(folder)
    ended_process = subprocess.Popen([sys.executable, "-c", ""])
    ended_process.wait()
    unsaved_folder = folder / "home" / "unsaved"
    unsaved_folder.mkdir(parents=True)
    document = {"path": str(path), "text": f"# Unsaved.\n{SUITE}", "stored": SUITE, "edited": 1e9}
    record = document | {"pid": ended_process.pid, "host": socket.gethostname()}
    (unsaved_folder / f"made-up-{ended_process.pid}.json").write_text(json.dumps(record))
    return path


def read_runs(folder: Path) -> list[dict[str, object]]:
    """Return the records of the folder's runs, the oldest first."""
    paths = sorted(
        (folder / "home" / "runs").glob("*/run.json"), key=lambda path: path.stat().st_ctime
    )
    return [json.loads(path.read_text()) for path in paths]


def has_passed_run(folder: Path) -> bool:
    return [run.get("verdict") for run in read_runs(folder)] == ["passed"]


def has_sweep(folder: Path) -> bool:
    text = (folder / "suites" / "made-up.yaml").read_text()
    return "slice_method: [vertical, horizontal]" in text and "halo_len: [1, 2, 3]" in text


def has_repeated_failed_cases(folder: Path) -> bool:
    records = read_runs(folder)
    return (
        len(records) == 2
        and "--failed" in records[1]["argv"]
        and records[1].get("verdict") == "failed"
    )


def has_exported_page(folder: Path) -> bool:
    pages = list(folder.glob("*.html"))
    return len(pages) == 1 and "<html" in pages[0].read_text()


def has_any_passed_run(folder: Path) -> bool:
    return any(run.get("verdict") == "passed" for run in read_runs(folder))


USER_TASKS = (
    UserTask(
        "first run",
        ((("enter",), "smoke.yaml"), (("f5",), "20/20")),
        make_empty_folder,
        has_passed_run,
        starts_ranks=True,
    ),
    UserTask(
        "compose a 3x2 sweep",
        (
            (("f4",), "halo.exchange"),
            ((*"o.exch", "enter"), "image_size"),
            ((*"swept", *("down",) * 4, *"64"), "64"),
            ((*("down",) * 3, "4", "down", *"vertical, horizontal"), "horizontal"),
            ((*("down",) * 2, *"1, 2, 3"), "6 cases"),
            (("ctrl+s",), "swept"),
            (("ctrl+s",), "9 cases"),
        ),
        add_suite,
        has_sweep,
    ),
    UserTask(
        "find the failed rank",
        ((("3",), "demo"), (("o",), "7/9 passed"), (("n",), "rank 1, failed")),
        add_demo_runs,
    ),
    UserTask("compare with yesterday", ((("3",), "demo"), (("c",), "b/a")), add_demo_runs),
    UserTask(
        "switch the launcher, copy its line",
        (
            (("L",), "another library"),
            ((*"rsh", "enter"), "is not installed here"),
            (("enter",), "(assumed, not run)"),
            (("y",), "launch line copied"),
        ),
        add_suite,
    ),
    UserTask(
        "cancel, and run what failed",
        (
            (("f5",), "✗ failed wrong"),
            (("x",), "Cancel the run"),
            (("y",), "- cancelled 0/2"),
            (("F",), "Only failed"),
            (("o",), "✗ failed 0/1"),
        ),
        lambda folder: add_suite(folder, TWO_CASES, "two"),
        has_repeated_failed_cases,
        starts_ranks=True,
    ),
    UserTask(
        "plan to verified run",
        (
            (("5",), "two.yaml"),
            (("enter",), "2 stages"),
            (("f5",), "File of its suite"),
            (("enter",), "✓ passed 1/1"),
            (("5",), "predicted"),
        ),
        add_profile,
        has_any_passed_run,
        starts_ranks=True,
    ),
    UserTask(
        "export a page",
        ((("3",), "demo"), (("e",), "HTML"), (("enter",), "exported")),
        add_demo_runs,
        has_exported_page,
    ),
    UserTask(
        "find the noisy host",
        ((("3",), "made-up"), (("o",), f"on {NOISY} waited 50 %")),
        add_noisy_run,
    ),
    UserTask("recover unsaved text", ((("enter",), "# Unsaved."),), add_unsaved_text),
)
