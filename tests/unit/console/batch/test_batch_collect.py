"""Runs made of what the ranks of batch jobs wrote, whole or cut."""

import json
import os
import time

import pytest

from spbench.batch.collect import QUIET, collect
from spbench.batch.plan_file import BatchPlan, read_plan
from spbench.errors import MissingError, UsageError
from spbench.record.runs.folder import RunFolder
from spbench.record.state import RunState
from spbench.report.recorded import load_run
from unit.events import described, rank_event

BEGUN = 1_790_000_000.0


class Batch:
    """The folder of a batch job whose two ranks run some cases, as its script leaves it."""

    def __init__(self, path, *cases, jobs=None):
        self.path = path
        self.home = path.parent / "home"
        named = [described(name, checks=[]) for name in cases]
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
            cases=tuple(named),
            jobs=tuple(self._job(number, ids) for number, ids in enumerate(jobs or [cases], 1)),
        )
        path.mkdir()
        (path / "plan.json").write_text(plan.to_json())
        (path / "suite.yaml").write_text("schema: spbench.suite/1\n")
        self.write("starts", f"{BEGUN} 17")

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

    def launch(self, name, cases, *, at=1.0, status="0", more="", stderr=""):
        """A launch of these cases, which began some seconds after the job and took five."""
        entries = [{"id": case, "repeat": 0} for case in cases]
        self.write(f"jobs/{name}/cases.json", json.dumps(entries))
        self.write(f"jobs/{name}/started", f"{BEGUN + at}")
        self.write(f"jobs/{name}/stderr.log", stderr)
        if status is not None:
            self.write(f"jobs/{name}/status", f"{status} {BEGUN + at + 5} {more}")

    def rank(self, name, rank, *said, at=1.0, torn="", bye=True, end=None):
        """A rank's events: each word a case, a capital one that is not ended, or a number of s."""
        events = []
        now = at
        head = [rank_event("hello", rank, host=f"n{rank}"), rank_event("ready", rank)]
        for event in [*head, *said, *([rank_event("bye", rank)] if bye else [])]:
            if isinstance(event, float):
                now = at + event
                continue
            now += 0.001
            added = [event] if isinstance(event, dict) else list(self._case(rank, event, end))
            events += [{**each, "time": BEGUN + now} for each in added]
        lines = [json.dumps({**event, "seq": seq}) for seq, event in enumerate(events)]
        return self.write(f"jobs/{name}/events/{rank}.jsonl", "\n".join(lines) + "\n" + torn)

    def _case(self, rank, word, end):
        case = word.lower()
        yield rank_event("case_start", rank, case=case)
        yield rank_event("samples", rank, case=case, values=[1.0, 2.0])
        if word.islower():
            yield rank_event("case_end", rank, case=case)
        elif end is not None:
            yield rank_event("case_end", rank, case=case, status="error", error=end)

    def both(self, name, *said, **more):
        for rank in (0, 1):
            self.rank(name, rank, *said, **more)

    def ended(self, at=10.0, more=""):
        self.write("ended", f"{BEGUN + at} {more}")

    def quiet(self, seconds=2 * QUIET):
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
        return next(each["reason"] for each in self.report["cases"] if each["id"] == case)


@pytest.fixture
def batch(tmp_path):
    return Batch(tmp_path / "job", "a", "b", "c")


def test_the_run_of_a_whole_job_is_like_a_live_one_and_twice_the_same(batch):
    batch.launch("1/1", "abc", stderr="noise")
    batch.both("1/1", "a", "b", "c")
    batch.ended()
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


def test_references_are_those_of_the_system_that_the_job_was_written_for(batch):
    plan = json.loads((batch.path / "plan.json").read_text())
    reference = {"value": 1.0, "unit": "ms", "lower": None, "upper": 0.1, "system": "vm"}
    plan["system"] = "vm"
    plan["cases"][0]["expect"] = [
        {"metric": "time_ms", "op": "max", "limit": 1.1, "reference": reference}
    ]
    (batch.path / "plan.json").write_text(json.dumps(plan))
    batch.launch("1/1", "abc")
    batch.both("1/1", "a", "b", "c")
    batch.ended()
    assert batch.collect() == {"a": "failed", "b": "passed", "c": "passed"}
    assert batch.reason("a") == (
        "time_ms is 1.50 ms, 50 % above its reference 1.00 ms (allowed: up to +10 %)"
    )
    assert batch.folder.read_json("run.json")["system"] == "vm"


def test_a_run_is_not_collected_in_a_folder_of_a_known_name(batch, tmp_path):
    batch.launch("1/1", "abc")
    batch.both("1/1", "a", "b", "c")
    batch.ended()
    outside = tmp_path / "outside"
    outside.mkdir()
    batch.home.mkdir()
    (batch.home / f"collecting-{os.getpid()}").symlink_to(outside)
    (outside / "20260921-141320-made-up-0000").mkdir()
    assert batch.collect() == {"a": "passed", "b": "passed", "c": "passed"}
    assert batch.folder.id == "20260921-141320-made-up-0000"
    assert list((outside / batch.folder.id).iterdir()) == []


def test_events_are_merged_in_the_order_of_their_times(batch):
    batch.launch("1/1", "abc")
    batch.rank("1/1", 0, "a", 2.0, "b", 3.0, "c")
    batch.rank("1/1", 1, 1.0, "a", 2.5, "b", 3.5, "c")
    batch.ended()
    batch.collect()
    lines = [json.loads(line) for line in batch.folder.events.read_text().splitlines()]
    times = [event["time"] for event in lines]
    assert times == sorted(times)
    starts = [(e["rank"], e["case"]) for e in lines if e["event"] == "case_start"]
    assert starts == [(0, "a"), (1, "a"), (0, "b"), (1, "b"), (0, "c"), (1, "c")]


def test_a_missing_bye_is_an_error_that_names_rank_and_host(batch):
    batch.launch("1/1", "abc", status="1")
    batch.rank("1/1", 0, "a", "b", "c")
    batch.rank("1/1", 1, "a", "b", "c", bye=False)
    batch.ended()
    assert batch.collect() == {"a": "passed", "b": "passed", "c": "error"}
    assert batch.reason("c") == "rank 1 on n1, 0.0 s into c, ended without an error message"
    assert batch.code == 4


@pytest.mark.parametrize("torn", ['{"event":"case_sta', "\x00\x00\x00"])
def test_a_torn_last_line_is_left_out(batch, torn):
    batch.launch("1/1", "abc", status="1")
    batch.both("1/1", "a", "B", bye=False, torn=torn)
    batch.ended()
    assert batch.collect() == {"a": "passed", "b": "error", "c": "skipped"}
    assert batch.reason("c") == "the batch job ended before this case"


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('{"event":"bye","rank":1,"seq":9,"time":1}', "wrote event 9 where 5 was due"),
        ('{"event":"nonsense"}', "wrote a line 6 that is no event: unknown event 'nonsense'"),
        ("x" * (1 << 21), "wrote a line 6 that is no event: not JSON"),
        ('{"event":"heartbeat","rank":0,"seq":5,"time":1}', "spoke as rank 0"),
    ],
)
def test_a_line_in_the_midst_that_is_wrong_is_an_error_of_its_rank(batch, line, told):
    batch.launch("1/1", "abc")
    batch.rank("1/1", 0, "a", "b", "c")
    batch.rank("1/1", 1, "a", bye=False, torn=line + "\n")
    batch.ended()
    assert batch.collect()["b"] == "error"
    assert told in batch.reason("b")
    assert batch.reason("b").startswith("rank 1 on n1 ")


def test_a_rank_that_wrote_nothing_is_named_as_its_launcher_tells(batch):
    said = "srun: error: n2: task 1: Exited with exit code 127\n"
    batch.launch("1/1", "abc", status="127", stderr=said)
    batch.rank("1/1", 0, bye=False)
    batch.ended()
    assert set(batch.collect().values()) == {"error"}
    assert batch.reason("a") == (
        "rank 1 on n2, 5.0 s after the launch, exited with status 127 before it connected"
    )


def test_where_no_rank_wrote_anything_the_reason_comes_first(batch):
    said = "slurmstepd-n1: error: execve(): /nowhere/python: No such file or directory\n"
    batch.launch("1/1", "abc", status="2", stderr=said)
    batch.ended()
    assert set(batch.collect().values()) == {"error"}
    assert batch.reason("a") == (
        "program /nowhere/python cannot be run on n1: No such file or directory; "
        "no rank wrote events; the launcher ended with status 2 after 5.0 s"
    )


def test_the_rank_that_the_launcher_names_comes_first(batch):
    said = "srun: error: n1: task 1: Killed\nsrun: error: n0: task 0: Terminated\n"
    batch.launch("1/1", "abc", status="137", stderr=said)
    batch.rank("1/1", 0, "A", bye=False)
    batch.rank("1/1", 1, "A", 2.0, rank_event("heartbeat", 1), bye=False)
    batch.ended()
    batch.collect()
    assert batch.reason("a") == "rank 1 on n1, 2.0 s into a, was killed by signal 9 (SIGKILL)"


def test_what_a_fault_left_over_was_launched_again(batch):
    batch.launch("1/1", "abc", status="1")
    error = {"message": "ValueError: no", "traceback": "Traceback ..."}
    batch.both("1/1", "a", "B", bye=False, end=error)
    batch.launch("1/2", "c", at=7.0)
    batch.both("1/2", "c", at=7.0)
    batch.ended(20.0)
    assert batch.collect() == {"a": "passed", "b": "error", "c": "passed"}
    assert batch.reason("b").endswith("into b: ValueError: no")
    assert [case["launch"]["job"] for case in batch.report["cases"]] == [1, 1, 2]


def test_an_interrupted_case_that_ran_again_counts_once(batch):
    batch.launch("1/1", "abc", status=None)
    batch.both("1/1", "a", "B", bye=False)
    batch.launch("1/2", "bc", at=100.0)
    batch.both("1/2", "b", "c", at=100.0)
    batch.ended(200.0)
    assert set(batch.collect().values()) == {"passed"}
    assert [case["metrics"]["time_ms"]["n"] for case in batch.report["cases"]] == [2, 2, 2]
    assert batch.code == 0


def test_what_is_measured_before_a_signal_is_kept(batch):
    batch.launch("1/1", "abc", status="143", more=f"TERM {BEGUN + 4}")
    batch.rank("1/1", 0, "a", "B", bye=False)
    batch.rank("1/1", 1, "a", "B", 4.5, rank_event("log", 1, level="error", message="MPI"))
    batch.ended(6.0, f"TERM {BEGUN + 4}")
    assert batch.collect() == {"a": "passed", "b": "cancelled", "c": "cancelled"}
    assert batch.reason("b") == "the batch job got SIGTERM 3.0 s into this launch"
    assert batch.code == 143
    assert batch.report["run"]["verdict"] == "cancelled"


def test_a_fault_before_the_signal_keeps_its_cause(batch):
    batch.launch("1/1", "abc", status="143", more=f"TERM {BEGUN + 4}")
    error = {"message": "ValueError: no", "traceback": "Traceback ..."}
    batch.both("1/1", "a", "B", bye=False, end=error)
    batch.ended(6.0, f"TERM {BEGUN + 4}")
    assert batch.collect() == {"a": "passed", "b": "error", "c": "cancelled"}
    assert "ValueError: no" in batch.reason("b")


def test_a_job_that_still_runs_is_collected_as_far_as_it_is(batch):
    batch.launch("1/1", "abc", status=None)
    batch.both("1/1", "a", "B", bye=False)
    assert batch.collect() == {"a": "passed", "b": "cancelled", "c": "cancelled"}
    assert batch.code == 4
    (told,) = batch.report["errors"]
    assert told == (
        "the batch job still runs: 1 of 3 cases have ended; collect again when it has ended"
    )
    batch.both("1/1", "a", "b", "c")
    batch.launch("1/1", "abc")
    batch.ended()
    assert set(batch.collect().values()) == {"passed"}
    assert len(list((batch.home / "runs").iterdir())) == 1


def test_a_job_that_was_killed_or_whose_node_failed_is_told_as_such(batch):
    batch.launch("1/1", "abc", status=None)
    batch.both("1/1", "a", "B", bye=False)
    batch.quiet()
    assert batch.collect() == {"a": "passed", "b": "error", "c": "skipped"}
    assert batch.reason("b").endswith(
        "ended without an error message; the batch job was killed, or its node failed: "
        "it left no status"
    )
    assert batch.reason("c") == "the batch job was killed, or its node failed, before this case"
    assert batch.code == 4


def test_a_case_that_exceeded_its_timeout_says_where_its_ranks_stood(batch):
    batch.launch("1/1", "abc", status="75")
    for rank, where in enumerate(["in wait (exchange.py:88)", "in solve (a.py:1), asleep"]):
        said = rank_event("log", rank, level="where", message=where)
        beats = [word for s in range(1, 31) for word in (float(s), rank_event("heartbeat", rank))]
        batch.rank("1/1", rank, "A", *beats, said, bye=False)
    batch.ended(40.0)
    assert batch.collect() == {"a": "timeout", "b": "skipped", "c": "skipped"}
    assert batch.reason("a") == (
        "rank 1 on n1 is in solve (a.py:1), asleep, rank 0 on n0 is in wait (exchange.py:88): "
        "ranks 0, 1 on n0, n1 are not through with a after 32.0 s (its timeout is 30 s)"
    )


def test_a_rank_that_fell_silent_is_named(batch):
    batch.launch("1/1", "abc", status="75")
    beats = [word for s in range(1, 20) for word in (float(s), rank_event("heartbeat", 0))]
    batch.rank("1/1", 0, "A", *beats, bye=False)
    batch.rank("1/1", 1, "A", bye=False)
    batch.ended(40.0)
    batch.collect()
    assert batch.reason("a").startswith("rank 1 on n1 silent for 19 s")


def test_a_launch_without_mpi_in_common_is_told_with_both_names(batch):
    batch.launch("1/1", "abc", status="1")
    for rank in (0, 1):
        alone = [rank_event("hello", rank, host=f"n{rank}"), rank_event("ready", 0, size=1)]
        lines = [json.dumps({**event, "seq": seq}) for seq, event in enumerate(alone)]
        batch.write(f"jobs/1/1/events/{rank}.jsonl", "\n".join(lines) + "\n")
    batch.ended()
    assert set(batch.collect().values()) == {"error"}
    assert "srun (srun 22.05.8) and MPICH 5.0.2 do not match" in batch.reason("a")
    assert batch.code == 3


def test_jobs_that_never_began_are_skipped_which_is_no_pass(tmp_path):
    batch = Batch(tmp_path / "job", "a", "b", jobs=[("a",), ("b",)])
    batch.launch("1/1", "a")
    batch.both("1/1", "a")
    batch.ended()
    assert batch.collect() == {"a": "passed", "b": "skipped"}
    assert batch.code == 4


def test_a_clock_that_is_far_ahead_does_not_move_the_run(batch):
    batch.launch("1/1", "abc")
    batch.both("1/1", "a", "b", "c")
    path = batch.path / "jobs/1/1/events/1.jsonl"
    path.write_text(path.read_text().replace(f"{int(BEGUN)}", f"{int(BEGUN) + 10**9}"))
    batch.ended()
    assert set(batch.collect().values()) == {"passed"}
    assert batch.report["run"]["duration_s"] == 10.0


def test_a_job_that_has_not_begun_is_refused(batch):
    (batch.path / "starts").unlink()
    with pytest.raises(MissingError, match=r"has not begun: submit .*job\.sh"):
        batch.collect()
    assert not batch.home.exists() or not list(batch.home.iterdir())


def test_a_run_that_was_not_collected_is_not_replaced(batch):
    batch.ended()
    batch.collect()
    other = RunFolder(batch.folder.path)
    content = other.read_json("run.json")
    del content["collected"]
    other.write_json("run.json", content)
    with pytest.raises(UsageError, match="was not collected"):
        batch.collect()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda plan: plan.pop("jobs"), "jobs: Field required"),
        (lambda plan: plan["cases"][0].pop("np"), "a case: field 'np' is missing"),
        (lambda plan: plan["jobs"][0].update(np=3), "job 1 has a case 'a' that does not fit it"),
        (lambda plan: plan.update(mark="../../x"), "mark: String should match pattern"),
    ],
)
def test_a_damaged_plan_is_refused_with_its_place(batch, change, told):
    path = batch.path / "plan.json"
    plan = json.loads(path.read_text())
    change(plan)
    path.write_text(json.dumps(plan))
    with pytest.raises(UsageError, match="is damaged") as refused:
        read_plan(batch.path)
    assert told in str(refused.value)


def test_a_folder_of_something_else_is_refused(tmp_path):
    with pytest.raises(UsageError, match="name a folder that spbench script has written"):
        collect(tmp_path, tmp_path, RunState(), lambda event: None)


def test_a_home_that_cannot_be_written_is_told(batch):
    batch.ended()
    batch.home.write_text("")
    with pytest.raises(MissingError, match="cannot write"):
        batch.collect()


def test_a_late_start_of_one_rank_leaves_a_timeout_a_timeout(batch):
    batch.launch("1/1", "abc", status="75")
    said = rank_event("log", 0, level="where", message="in wait (exchange.py:88)")
    beats = [word for s in range(1, 31) for word in (float(s), rank_event("heartbeat", 0))]
    batch.rank("1/1", 0, "A", *beats, said, bye=False)
    late = [word for s in range(7, 31) for word in (float(s), rank_event("heartbeat", 1))]
    batch.rank("1/1", 1, 6.0, "A", *late, bye=False)
    batch.ended(40.0)
    assert batch.collect()["a"] == "timeout"
    assert "rank 0 on n0 is in wait (exchange.py:88)" in batch.reason("a")


def test_a_job_that_ends_in_its_set_up_is_told_with_the_last_line_of_its_log(batch):
    (batch.path / "starts").unlink()
    batch.write("job.log", "Lmod has detected an error:\nunknown module \x1b[31mmpi/5\n")
    with pytest.raises(MissingError, match=r"in its set-up .* or ended there; .*unknown module \?"):
        batch.collect()


def test_a_launch_that_has_yet_to_write_is_given_its_start_timeout(batch):
    batch.launch("1/1", "abc", status=None)
    batch.quiet(45.0)
    batch.collect()
    assert "the batch job still runs" in batch.report["errors"][0]
    batch.quiet(75.0)
    batch.collect()
    assert "still runs" not in str(batch.report["errors"])
