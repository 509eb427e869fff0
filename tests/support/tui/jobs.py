"""Ten jobs that people do with the console, as keys and what is then seen.

Each begins on the Suites page. The same keys go to the console by Textual's pilot, at two sizes,
and to Chromium; docs/console.md says how many there are.
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
class Job:
    """A job.

    Attributes:
        name: As docs/console.md names it.
        steps: Keys, and what is seen when they are done.
        furnish: Makes the folder in which the console opens; returns the suite to open, or None.
        done: Whether the job is done, by what is in the folder.
        ranks: Whether it starts real ranks.
    """

    name: str
    steps: tuple[tuple[tuple[str, ...], str], ...]
    furnish: Callable[[Path], Path | None]
    done: Callable[[Path], bool] = lambda folder: True
    ranks: bool = False

    @property
    def keys(self) -> int:
        """The number of keys that it takes."""
        return sum(len(keys) for keys, _ in self.steps)


def empty(folder: Path) -> None:
    """An empty folder."""


def with_suite(folder: Path, text: str = SUITE, name: str = "made-up") -> Path:
    path = folder / "suites" / f"{name}.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


def with_demo(folder: Path) -> Path:
    """Two recorded runs of one suite, of which a case failed on rank 7."""
    for day in ("20260101", "20260102"):
        run = folder / "home" / "runs" / f"{day}-000000-demo-0001"
        run.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(find_demo_run().path, run)
        about = json.loads((run / "run.json").read_text()) | {"id": run.name}
        (run / "run.json").write_text(json.dumps(about))
    return with_suite(folder)


def with_noise(folder: Path) -> Path:
    """A recorded run on three hosts, of which one has other work on it."""
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
    return with_suite(folder)


def with_profile(folder: Path) -> Path:
    """A profile of a small network, and a cluster of two devices."""
    sizes = {"activation_bytes": 1000, "kept_bytes": 5e8, "working_bytes": 1e6}
    times = {"forward_ms": 10.0, "backward_ms": 20.0, "parameter_bytes": 1e8}
    origin = {"model": "resnet", "params": {"image_size": 32, "version": 2, "depth": 11}}
    profile = {"schema": "spbench.profile/1", "name": "five", "batch_size": 1, "origin": origin}
    profile["layers"] = [{"name": name, **times, **sizes} for name in LAYERS]
    profile["edges"] = [list(pair) for pair in pairwise(LAYERS)]
    (folder / "five.json").write_text(json.dumps(profile))
    (folder / "two.yaml").write_text(CLUSTER)
    return with_suite(folder)


def with_unsaved(folder: Path) -> Path:
    """An unsaved text, as a console kept it that was killed."""
    path = with_suite(folder)
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    place = folder / "home" / "unsaved"
    place.mkdir(parents=True)
    about = {"path": str(path), "text": f"# Unsaved.\n{SUITE}", "stored": SUITE, "edited": 1e9}
    told = about | {"pid": dead.pid, "host": socket.gethostname()}
    (place / f"made-up-{dead.pid}.json").write_text(json.dumps(told))
    return path


def runs(folder: Path) -> list[dict[str, object]]:
    """What the runs of the folder say of themselves, the oldest first."""
    places = sorted(
        (folder / "home" / "runs").glob("*/run.json"), key=lambda path: path.stat().st_ctime
    )
    return [json.loads(path.read_text()) for path in places]


def passed(folder: Path) -> bool:
    return [run.get("verdict") for run in runs(folder)] == ["passed"]


def swept(folder: Path) -> bool:
    text = (folder / "suites" / "made-up.yaml").read_text()
    return "slice_method: [vertical, horizontal]" in text and "halo_len: [1, 2, 3]" in text


def failed_again(folder: Path) -> bool:
    told = runs(folder)
    return len(told) == 2 and "--failed" in told[1]["argv"] and told[1].get("verdict") == "failed"


def page_written(folder: Path) -> bool:
    pages = list(folder.glob("*.html"))
    return len(pages) == 1 and "<html" in pages[0].read_text()


def verified(folder: Path) -> bool:
    return any(run.get("verdict") == "passed" for run in runs(folder))


JOBS = (
    Job("first run", ((("enter",), "smoke.yaml"), (("f5",), "20/20")), empty, passed, ranks=True),
    Job(
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
        with_suite,
        swept,
    ),
    Job(
        "find the failed rank",
        ((("3",), "demo"), (("o",), "7/9 passed"), (("n",), "rank 1, ")),
        with_demo,
    ),
    Job("compare with yesterday", ((("3",), "demo"), (("c",), "b/a")), with_demo),
    Job(
        "switch the launcher, copy its line",
        (
            (("L",), "another library"),
            ((*"another", "enter"), "mvapich2"),
            ((*"mvapich2-2.3.7", "enter"), "mpirun_rsh"),
            (("y",), "launch line copied"),
        ),
        with_suite,
    ),
    Job(
        "cancel, and run what failed",
        (
            (("f5",), "✗ failed wrong"),
            (("x",), "Cancel the run"),
            (("y",), "- cancelled 0/2"),
            (("F",), "Run again what failed"),
            (("y",), "✗ failed 0/1"),
        ),
        lambda folder: with_suite(folder, TWO_CASES, "two"),
        failed_again,
        ranks=True,
    ),
    Job(
        "plan to verified run",
        (
            (("5",), "two.yaml"),
            (("enter",), "2 stages"),
            (("f5",), "File of the suite"),
            (("enter",), "✓ passed 1/1"),
            (("5",), "predicted"),
        ),
        with_profile,
        verified,
        ranks=True,
    ),
    Job(
        "export a page",
        ((("3",), "demo"), (("e",), "HTML"), (("enter",), "exported")),
        with_demo,
        page_written,
    ),
    Job(
        "find the noisy host",
        ((("3",), "made-up"), (("o",), f"on {NOISY} waited 50 %")),
        with_noise,
    ),
    Job("recover unsaved text", ((("enter",), "# Unsaved."),), with_unsaved),
)
