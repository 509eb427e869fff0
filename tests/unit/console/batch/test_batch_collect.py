"""Tests of collecting runs from the complete or torn files of batch jobs."""

import json
import os
import time

import pytest

from spbench.batch.collect import collect
from spbench.batch.plan_file import BatchPlan, read_plan
from spbench.batch.progress import SILENCE_TIMEOUT
from spbench.errors import MissingError, UsageError
from spbench.record.runs.folder import RunFolder
from spbench.record.state import RunState
from spbench.report.recorded import load_run
from support.sample_events import describe_case, rank_event

START = 1_790_000_000.0


class Batch:
    """The folder that a batch job of two ranks and some cases leaves."""

    def __init__(self, path, *cases, jobs=None):
        self.path = path
        self.home = path.parent / "home"
        descriptions = [describe_case(name, checks=[]) for name in cases]
        plan = BatchPlan(
            schema="spbench.batch/1",
            mark="made-up-0000",
            spbench="0",
            scheduler="slurm",
            suite="made-up",
            description="",
            file="made-up.yaml",
            argv=("script", "made-up.yaml"),
            cwd="/",
            seed=1,
            environment={"host": "login"},
            cases=tuple(descriptions),
            jobs=tuple(self._job(number, ids) for number, ids in enumerate(jobs or [cases], 1)),
        )
        path.mkdir()
        (path / "plan.json").write_text(plan.to_json())
        (path / "suite.yaml").write_text("schema: spbench.suite/1\n")
        self.write("starts", f"{START} 17")

    def _job(self, number, ids):
        return {
            "number": number,
            "np": 2,
            "cases": ids,
            "timeouts": dict.fromkeys(ids, 30.0),
            "start_timeout": 60.0,
            "launcher": "srun",
            "version": "srun 22.05.8",
            "library": "MPICH 5.0.2",
            "argv": ("srun", "-n", "2"),
            "env": {},
            "asked": {},
        }

    def write(self, name, text):
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def launch(self, name, cases, *, start=1.0, status="0", more="", stderr=""):
        """Write a launch of 5 s with these cases that began ``start`` s after the job."""
        entries = [{"id": case, "repeat": 0} for case in cases]
        self.write(f"jobs/{name}/cases.json", json.dumps(entries))
        self.write(f"jobs/{name}/started", f"{START + start}")
        self.write(f"jobs/{name}/stderr.log", stderr)
        if status is not None:
            self.write(f"jobs/{name}/status", f"{status} {START + start + 5} {more}")

    def rank(self, name, rank, *steps, start=1.0, torn="", bye=True, end=None):
        """Write the events of a rank.

        Each step is an event, a time in s, or a case name; an upper-case case does not end.
        """
        events = []
        now = start
        head = [rank_event("hello", rank, host=f"n{rank}"), rank_event("ready", rank)]
        for step in [*head, *steps, *([rank_event("bye", rank)] if bye else [])]:
            if isinstance(step, float):
                now = start + step
                continue
            now += 0.001
            added = [step] if isinstance(step, dict) else list(self._build_case(rank, step, end))
            events += [{**event, "time": START + now} for event in added]
        lines = [json.dumps({**event, "seq": seq}) for seq, event in enumerate(events)]
        return self.write(f"jobs/{name}/events/{rank}.jsonl", "\n".join(lines) + "\n" + torn)

    def _build_case(self, rank, name, end):
        case = name.lower()
        yield rank_event("case_start", rank, case=case)
        yield rank_event("samples", rank, case=case, values=[1.0, 2.0])
        if name.islower():
            yield rank_event("case_end", rank, case=case)
        elif end is not None:
            yield rank_event("case_end", rank, case=case, status="error", error=end)

    def write_both_ranks(self, name, *steps, **more):
        for rank in (0, 1):
            self.rank(name, rank, *steps, **more)

    def end(self, seconds=10.0, more=""):
        self.write("ended", f"{START + seconds} {more}")

    def age(self, seconds=2 * SILENCE_TIMEOUT):
        for path in self.path.rglob("*"):
            os.utime(path, (time.time() - seconds,) * 2)

    def collect(self):
        self.state = RunState()
        outcome = collect(self.path, self.home, self.state, lambda event: None)
        self.folder = outcome.folder
        self.code = int(outcome.exit_code)
        self.report = outcome.report.to_json()
        return {case["id"]: case["status"] for case in self.report["cases"]}

    def reason(self, case):
        return next(row["reason"] for row in self.report["cases"] if row["id"] == case)


@pytest.fixture
def batch(tmp_path):
    return Batch(tmp_path / "job", "a", "b", "c")


def test_complete_job_is_collected_reproducibly(batch):
    batch.launch("1/1", "abc", stderr="noise")
    batch.write_both_ranks("1/1", "a", "b", "c")
    batch.end()
    assert batch.collect() == {"a": "passed", "b": "passed", "c": "passed"}
    assert (batch.code, batch.report["errors"]) == (0, [])
    folder = batch.folder
    files = {path: path.read_bytes() for path in folder.path.rglob("*") if path.is_file()}
    assert {str(path.relative_to(folder.path)) for path in files} == {
        "suite.yaml",
        "run.json",
        "events.jsonl",
        "report.json",
        "jobs/1/argv.json",
        "jobs/1/env.json",
        "jobs/1/stderr.log",
    }
    assert folder.id == "20260921-141320-made-up-0000"
    assert batch.report["run"]["started"] == "2026-09-21T14:13:20.000+00:00"
    assert batch.report["run"]["duration_s"] == 10.0
    assert load_run(folder).cases["a"].metrics["time_ms"].n == 2
    replayed = folder.replay()
    assert (replayed.run, replayed.cases) == (batch.state.run, batch.state.cases)
    batch.collect()
    assert {path: path.read_bytes() for path in files} == files
    assert sorted(path.name for path in batch.home.iterdir()) == ["index.sqlite", "runs"]
    counts = {"passed": 3}
    assert folder.read_json("run.json")["counts"] == counts == batch.state.counts()
    assert len(list((batch.home / "runs").iterdir())) == 1


def test_references_are_those_of_the_system_in_the_plan(batch, messages):
    plan = json.loads((batch.path / "plan.json").read_text())
    reference = {"value": 1.0, "unit": "ms", "lower": None, "upper": 0.1, "system": "vm"}
    plan["system"] = "vm"
    plan["cases"][0]["expect"] = [
        {"metric": "time_ms", "op": "max", "limit": 1.1, "reference": reference}
    ]
    (batch.path / "plan.json").write_text(json.dumps(plan))
    batch.launch("1/1", "abc")
    batch.write_both_ranks("1/1", "a", "b", "c")
    batch.end()
    assert batch.collect() == {"a": "failed", "b": "passed", "c": "passed"}
    messages.check(batch.reason("a"))
    assert batch.folder.read_json("run.json")["system"] == "vm"


def test_collection_does_not_use_a_predictable_folder(batch, tmp_path):
    batch.launch("1/1", "abc")
    batch.write_both_ranks("1/1", "a", "b", "c")
    batch.end()
    outside = tmp_path / "outside"
    outside.mkdir()
    batch.home.mkdir()
    (batch.home / f"collecting-{os.getpid()}").symlink_to(outside)
    (outside / "20260921-141320-made-up-0000").mkdir()
    assert batch.collect() == {"a": "passed", "b": "passed", "c": "passed"}
    assert batch.folder.id == "20260921-141320-made-up-0000"
    assert list((outside / batch.folder.id).iterdir()) == []


def test_events_are_merged_by_time(batch):
    batch.launch("1/1", "abc")
    batch.rank("1/1", 0, "a", 2.0, "b", 3.0, "c")
    batch.rank("1/1", 1, 1.0, "a", 2.5, "b", 3.5, "c")
    batch.end()
    batch.collect()
    lines = [json.loads(line) for line in batch.folder.events.read_text().splitlines()]
    times = [event["time"] for event in lines]
    assert times == sorted(times)
    starts = [(e["rank"], e["case"]) for e in lines if e["event"] == "case_start"]
    assert starts == [(0, "a"), (1, "a"), (0, "b"), (1, "b"), (0, "c"), (1, "c")]


def test_missing_bye_is_an_error_with_rank_and_host(batch, messages):
    batch.launch("1/1", "abc", status="1")
    batch.rank("1/1", 0, "a", "b", "c")
    batch.rank("1/1", 1, "a", "b", "c", bye=False)
    batch.end()
    assert batch.collect() == {"a": "passed", "b": "passed", "c": "error"}
    messages.check(batch.reason("c"))
    assert batch.code == 4


@pytest.mark.parametrize("torn", ['{"event":"case_sta', "\x00\x00\x00"])
def test_torn_last_line_is_ignored(batch, torn, messages):
    batch.launch("1/1", "abc", status="1")
    batch.write_both_ranks("1/1", "a", "B", bye=False, torn=torn)
    batch.end()
    assert batch.collect() == {"a": "passed", "b": "error", "c": "skipped"}
    messages.check(batch.reason("c"))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"event":"bye","rank":1,"seq":9,"time":1}', "wrote event 9 where 5 was due"),
        ('{"event":"nonsense"}', "wrote a line 6 that is no event: unknown event 'nonsense'"),
        ("x" * (1 << 21), "wrote a line 6 that is no event: not JSON"),
        ('{"event":"heartbeat","rank":0,"seq":5,"time":1}', "spoke as rank 0"),
    ],
)
def test_invalid_line_is_an_error_of_its_rank(batch, line, message):
    batch.launch("1/1", "abc")
    batch.rank("1/1", 0, "a", "b", "c")
    batch.rank("1/1", 1, "a", bye=False, torn=line + "\n")
    batch.end()
    assert batch.collect()["b"] == "error"
    assert message in batch.reason("b")
    assert batch.reason("b").startswith("rank 1 on n1 ")


def test_silent_rank_has_the_reason_of_the_launcher(batch, messages):
    stderr = "srun: error: n2: task 1: Exited with exit code 127\n"
    batch.launch("1/1", "abc", status="127", stderr=stderr)
    batch.rank("1/1", 0, bye=False)
    batch.end()
    assert set(batch.collect().values()) == {"error"}
    messages.check(batch.reason("a"))


def test_reason_of_the_launcher_is_first_without_events(batch, messages):
    stderr = "slurmstepd-n1: error: execve(): /nowhere/python: No such file or directory\n"
    batch.launch("1/1", "abc", status="2", stderr=stderr)
    batch.end()
    assert set(batch.collect().values()) == {"error"}
    messages.check(batch.reason("a"))


def test_rank_named_by_the_launcher_is_the_cause(batch, messages):
    stderr = "srun: error: n1: task 1: Killed\nsrun: error: n0: task 0: Terminated\n"
    batch.launch("1/1", "abc", status="137", stderr=stderr)
    batch.rank("1/1", 0, "A", bye=False)
    batch.rank("1/1", 1, "A", 2.0, rank_event("heartbeat", 1), bye=False)
    batch.end()
    batch.collect()
    messages.check(batch.reason("a"))


def test_cases_after_a_fault_are_in_the_next_launch(batch):
    batch.launch("1/1", "abc", status="1")
    error = {"message": "ValueError: no", "traceback": "Traceback ..."}
    batch.write_both_ranks("1/1", "a", "B", bye=False, end=error)
    batch.launch("1/2", "c", start=7.0)
    batch.write_both_ranks("1/2", "c", start=7.0)
    batch.end(20.0)
    assert batch.collect() == {"a": "passed", "b": "error", "c": "passed"}
    assert batch.reason("b").endswith("into b: ValueError: no")
    assert [case["launch"]["job"] for case in batch.report["cases"]] == [1, 1, 2]


def test_interrupted_and_repeated_case_counts_once(batch):
    batch.launch("1/1", "abc", status=None)
    batch.write_both_ranks("1/1", "a", "B", bye=False)
    batch.launch("1/2", "bc", start=100.0)
    batch.write_both_ranks("1/2", "b", "c", start=100.0)
    batch.end(200.0)
    assert set(batch.collect().values()) == {"passed"}
    assert [case["metrics"]["time_ms"]["n"] for case in batch.report["cases"]] == [2, 2, 2]
    assert batch.code == 0


def test_results_before_a_signal_are_kept(batch, messages):
    batch.launch("1/1", "abc", status="143", more=f"TERM {START + 4}")
    batch.rank("1/1", 0, "a", "B", bye=False)
    batch.rank("1/1", 1, "a", "B", 4.5, rank_event("log", 1, level="error", message="MPI"))
    batch.end(6.0, f"TERM {START + 4}")
    assert batch.collect() == {"a": "passed", "b": "cancelled", "c": "cancelled"}
    messages.check(batch.reason("b"))
    assert batch.code == 143
    assert batch.report["run"]["verdict"] == "cancelled"


def test_fault_before_a_signal_keeps_its_cause(batch):
    batch.launch("1/1", "abc", status="143", more=f"TERM {START + 4}")
    error = {"message": "ValueError: no", "traceback": "Traceback ..."}
    batch.write_both_ranks("1/1", "a", "B", bye=False, end=error)
    batch.end(6.0, f"TERM {START + 4}")
    assert batch.collect() == {"a": "passed", "b": "error", "c": "cancelled"}
    assert "ValueError: no" in batch.reason("b")


def test_running_job_is_collected_partially(batch, messages):
    batch.launch("1/1", "abc", status=None)
    batch.write_both_ranks("1/1", "a", "B", bye=False)
    assert batch.collect() == {"a": "passed", "b": "cancelled", "c": "cancelled"}
    assert batch.code == 4
    (error,) = batch.report["errors"]
    messages.check(error)
    batch.write_both_ranks("1/1", "a", "b", "c")
    batch.launch("1/1", "abc")
    batch.end()
    assert set(batch.collect().values()) == {"passed"}
    assert len(list((batch.home / "runs").iterdir())) == 1


def test_killed_job_is_reported(batch, messages):
    batch.launch("1/1", "abc", status=None)
    batch.write_both_ranks("1/1", "a", "B", bye=False)
    batch.age()
    assert batch.collect() == {"a": "passed", "b": "error", "c": "skipped"}
    assert batch.reason("b").endswith(
        "ended without an error message; the batch job was killed, or its node failed: "
        "it left no status"
    )
    messages.check(batch.reason("c"))
    assert batch.code == 4


def test_timeout_reports_the_positions_of_ranks(batch):
    batch.launch("1/1", "abc", status="75")
    for rank, position in enumerate(["in wait (exchange.py:88)", "in solve (a.py:1), asleep"]):
        event = rank_event("log", rank, level="where", message=position)
        beats = [step for s in range(1, 31) for step in (float(s), rank_event("heartbeat", rank))]
        batch.rank("1/1", rank, "A", *beats, event, bye=False)
    batch.end(40.0)
    assert batch.collect() == {"a": "timeout", "b": "skipped", "c": "skipped"}
    assert batch.reason("a") == (
        "rank 1 on n1 is in solve (a.py:1), asleep, rank 0 on n0 is in wait (exchange.py:88): "
        "ranks 0, 1 on n0, n1 are not through with a after 32.0 s (its timeout is 30 s)"
    )


def test_silent_rank_is_reported(batch, messages):
    batch.launch("1/1", "abc", status="75")
    beats = [step for s in range(1, 20) for step in (float(s), rank_event("heartbeat", 0))]
    batch.rank("1/1", 0, "A", *beats, bye=False)
    batch.rank("1/1", 1, "A", bye=False)
    batch.end(40.0)
    batch.collect()
    messages.check(batch.reason("a"))


def test_mismatch_of_launcher_and_library_is_reported(batch, messages):
    batch.launch("1/1", "abc", status="1")
    for rank in (0, 1):
        events = [rank_event("hello", rank, host=f"n{rank}"), rank_event("ready", 0, size=1)]
        lines = [json.dumps({**event, "seq": seq}) for seq, event in enumerate(events)]
        batch.write(f"jobs/1/1/events/{rank}.jsonl", "\n".join(lines) + "\n")
    batch.end()
    assert set(batch.collect().values()) == {"error"}
    messages.check(batch.reason("a"))
    assert batch.code == 3


def test_jobs_that_never_began_are_skipped_and_fail(tmp_path):
    batch = Batch(tmp_path / "job", "a", "b", jobs=[("a",), ("b",)])
    batch.launch("1/1", "a")
    batch.write_both_ranks("1/1", "a")
    batch.end()
    assert batch.collect() == {"a": "passed", "b": "skipped"}
    assert batch.code == 4


def test_wrong_clock_does_not_move_the_run(batch):
    batch.launch("1/1", "abc")
    batch.write_both_ranks("1/1", "a", "b", "c")
    path = batch.path / "jobs/1/1/events/1.jsonl"
    path.write_text(path.read_text().replace(f"{int(START)}", f"{int(START) + 10**9}"))
    batch.end()
    assert set(batch.collect().values()) == {"passed"}
    assert batch.report["run"]["duration_s"] == 10.0


def test_rejects_a_job_that_has_not_begun(batch, messages):
    (batch.path / "starts").unlink()
    with messages.raises(MissingError):
        batch.collect()
    assert not batch.home.exists() or not list(batch.home.iterdir())


def test_other_run_is_not_replaced(batch, messages):
    batch.end()
    batch.collect()
    other = RunFolder(batch.folder.path)
    content = other.read_json("run.json")
    del content["collected"]
    other.write_json("run.json", content)
    with messages.raises(UsageError):
        batch.collect()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda plan: plan.pop("jobs"), "jobs: Field required"),
        (lambda plan: plan["cases"][0].pop("np"), "a case: field 'np' is missing"),
        (lambda plan: plan["jobs"][0].update(np=3), "job 1 has a case 'a' that does not fit it"),
        (lambda plan: plan.update(mark="../../x"), "mark: String should match pattern"),
    ],
)
def test_damaged_plan_is_rejected_with_its_position(batch, change, message):
    path = batch.path / "plan.json"
    plan = json.loads(path.read_text())
    change(plan)
    path.write_text(json.dumps(plan))
    with pytest.raises(UsageError, match="is damaged") as raised:
        read_plan(batch.path)
    assert message in str(raised.value)


def test_rejects_other_folders(tmp_path, messages):
    with messages.raises(UsageError):
        collect(tmp_path, tmp_path, RunState(), lambda event: None)


def test_unwritable_home_is_reported(batch):
    batch.end()
    batch.home.write_text("")
    with pytest.raises(MissingError, match="cannot write"):
        batch.collect()


def test_late_start_of_a_rank_keeps_the_timeout(batch):
    batch.launch("1/1", "abc", status="75")
    event = rank_event("log", 0, level="where", message="in wait (exchange.py:88)")
    beats = [step for s in range(1, 31) for step in (float(s), rank_event("heartbeat", 0))]
    batch.rank("1/1", 0, "A", *beats, event, bye=False)
    late = [step for s in range(7, 31) for step in (float(s), rank_event("heartbeat", 1))]
    batch.rank("1/1", 1, 6.0, "A", *late, bye=False)
    batch.end(40.0)
    assert batch.collect()["a"] == "timeout"
    assert "rank 0 on n0 is in wait (exchange.py:88)" in batch.reason("a")


def test_job_that_failed_in_its_set_up_shows_its_log(batch):
    (batch.path / "starts").unlink()
    batch.write("job.log", "Lmod has detected an error:\nunknown module \x1b[31mmpi/5\n")
    with pytest.raises(MissingError, match=r"in its set-up .* or ended there; .*unknown module \?"):
        batch.collect()


def test_start_timeout_applies_before_the_first_event(batch, messages):
    batch.launch("1/1", "abc", status=None)
    batch.age(45.0)
    batch.collect()
    messages.check(batch.report["errors"][0])
    batch.age(75.0)
    batch.collect()
    assert "still runs" not in str(batch.report["errors"])
