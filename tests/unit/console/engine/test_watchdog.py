import pytest

from spbench.engine.faults.fault import Fault
from spbench.engine.watchdog import EXIT_TIMEOUT, Watchdog
from spbench_core.events.rank_events import ASLEEP, SILENCE_LIMIT
from spbench_core.events.statuses import CaseStatus
from unit.events import rank_event

HOSTS = ("node01", "node01", "node02")
PROGRAMS = "openmpi (5.0) and MPICH 4.2"


class Job:
    """A watched job of three ranks and a clock that goes only when told; the launch is at 100 s."""

    def __init__(
        self, np=3, items=(("a", 0), ("b", 0)), start_timeout=60.0, timeouts=None, **options
    ):
        self.now = 100.0
        self.watch = Watchdog(
            np=np,
            items=items,
            start_timeout=start_timeout,
            case_timeouts=timeouts or {"a": 30.0, "b": 5.0},
            launched=self.now,
            **{"names": PROGRAMS} | options,
        )
        self.np = np

    def ready(self, *ranks, size=None):
        for rank in ranks or range(self.np):
            event = rank_event("ready", rank, size=size or self.np)
            self.watch.on_ready(event, HOSTS[rank % len(HOSTS)], 1000 + rank, self.now)
        return self

    def start(self, case, *ranks, repeat=0):
        for rank in ranks or range(self.np):
            self.watch.on_case_start(
                rank_event("case_start", rank, case=case, repeat=repeat), self.now
            )
        return self

    def progress(self, case, phase, done, *ranks):
        for rank in ranks or range(self.np):
            event = rank_event("progress", rank, case=case, phase=phase, done=done, total=9)
            self.watch.on_progress(event, self.now)
        return self

    def end(self, case, *ranks, repeat=0, **fields):
        for rank in ranks or range(self.np):
            event = rank_event("case_end", rank, case=case, repeat=repeat, **fields)
            self.watch.on_case_end(event, self.now)
        return self

    def bye(self, *ranks):
        for rank in ranks or range(self.np):
            self.watch.on_bye(rank, self.now)
        return self

    def beat(self, *ranks):
        for rank in ranks or range(self.np):
            self.watch.on_sign_of_life(rank, self.now)
        return self

    def later(self, seconds, *beating):
        """Let time go by, with a sign of life each second of all ranks, or of those given."""
        end = self.now + seconds
        while self.now < end:
            self.now = min(end, self.now + 1.0)
            self.beat(*beating)
        return self

    @property
    def fault(self):
        return self.watch.find_overdue(self.now)


def told(fault):
    return (fault.status, fault.message)


# The start


def test_ranks_have_until_start_timeout_to_be_ready():
    job = Job().ready(0, 2).later(60.0, 0, 2)
    assert job.fault is None
    assert told(job.later(0.1, 0, 2).fault) == (
        "error",
        "2 of 3 ranks were ready 60 s after the launch (start_timeout is 60 s); "
        "rank 1 did not connect",
    )


def test_ranks_that_did_not_connect_are_named_with_the_hosts_that_were_given_them():
    job = Job(hosts={0: "node01", 1: "node02", 2: "node03"})
    job.watch.on_hello(0, "node01")
    assert job.later(61.0).fault.message.endswith("; ranks 1, 2 on node02, node03 did not connect")


def test_a_rank_that_connected_and_is_not_ready_is_named():
    job = Job().ready(0, 2)
    for rank, host in enumerate(("node01", "node02", "node01")):
        job.watch.on_hello(rank, host)
    assert job.later(61.0, 0, 2).fault.message.endswith(
        "; rank 1 on node02 connected and is not ready"
    )


def test_ranks_without_numbers_that_did_not_connect_are_not_guessed():
    job = Job().ready(0, 2)
    job.watch.on_hello(None, "node02")
    assert job.later(61.0, 0, 2).fault.message.endswith("(start_timeout is 60 s)")


def test_no_rank_at_all_is_told_the_same():
    job = Job(start_timeout=2.5).later(3.0)
    assert told(job.fault) == (
        "error",
        "0 of 3 ranks were ready 3 s after the launch (start_timeout is 2.5 s); "
        "ranks 0, 1, 2 did not connect",
    )


def test_ready_ranks_have_as_long_again_to_start_the_first_case():
    job = Job().later(50.0).ready().later(60.0)
    assert job.fault is None
    assert told(job.later(0.1).fault) == ("error", "no rank started a in 60 s")


def test_ready_ranks_have_as_long_to_start_the_next_case():
    job = Job().ready().start("a").end("a").later(60.0)
    assert job.fault is None
    assert told(job.later(1.0).fault) == ("error", "no rank started b in 61 s")


@pytest.mark.parametrize("size", [1, 2, 4])
def test_a_world_of_another_size_is_a_mismatch(size):
    job = Job()
    job.ready(1, size=size)
    assert job.fault.missing
    assert job.fault.rank == 1
    assert job.fault.message == (
        f"node01 says it is rank 1 of {size} in a job of 3 ranks: "
        "openmpi (5.0) and MPICH 4.2 do not match"
    )


def test_a_host_with_another_library_is_named_with_both():
    job = Job()
    job.watch.on_launch(PROGRAMS, "MVAPICH2 2.3.7", job.now)
    event = rank_event("ready", 0, size=1, versions={"mpi": "Open MPI v5.0.11"})
    job.watch.on_ready(event, "node02", 1, job.now, launched_as=2)
    assert job.fault.rank == 2
    assert job.fault.message == (
        "rank 2 on node02 says it is rank 0 of 1 in a job of 3 ranks: it loads Open MPI v5.0.11, "
        "and the others are to load MVAPICH2 2.3.7: let node02 find the same, by launch.setup, "
        "launch.env or launch.python"
    )


def test_two_ranks_of_one_number_are_a_mismatch():
    job = Job().ready(0, 1)
    before = job.fault
    assert before is None
    job.ready(1)
    assert job.fault.missing
    assert "rank 1 of 3 in a job of 3 ranks" in job.fault.message
    assert "openmpi (5.0) and MPICH 4.2 do not match" in job.fault.message


# Silence


def test_a_silent_rank_is_named_after_ten_seconds():
    assert SILENCE_LIMIT == 10.0
    job = Job().ready().start("a").later(10.0, 0, 1)
    before = job.fault
    assert before is None
    assert told(job.later(0.1, 0, 1).fault) == ("error", "rank 2 on node02 silent for 10 s")
    assert job.fault.rank == 2


def test_a_suite_may_let_ranks_be_silent_for_longer():
    job = Job(silence_timeout=30.0).ready().start("a")
    fault = job.later(25.0, 0, 1).fault
    assert fault is None
    assert told(job.later(5.1, 0, 1).fault) == ("error", "rank 2 on node02 silent for 30 s")


def test_silence_on_a_busy_host_names_its_load_and_the_setting():
    load = "load 13.8 on 2 cores"
    job = Job(busy=lambda host: f"{load} of {host}").ready().start("a")
    assert told(job.later(10.1, 0, 1).fault) == (
        "error",
        "rank 2 on node02 silent for 10 s: load 13.8 on 2 cores of node02 there; end what else "
        "runs there, or raise launch.silence_timeout (10 s)",
    )


def test_a_silent_rank_is_found_before_all_are_ready():
    job = Job().ready(0, 1).later(10.1, 0)
    assert told(job.fault) == ("error", "rank 1 on node01 silent for 10 s")


def test_a_rank_that_is_silent_before_it_has_its_cases_is_named():
    job = Job().ready().later(10.1, 0, 1)
    assert told(job.fault) == ("error", "rank 2 on node02 silent for 10 s")


def test_a_rank_that_loads_may_be_silent_until_ten_seconds_after_the_first_start():
    job = Job().ready()
    for rank in range(3):
        job.watch.on_loading(rank)
    assert job.later(30.0, 0, 1).fault is None
    assert job.start("a", 0).later(10.0, 0, 1).fault is None
    assert told(job.later(0.1, 0, 1).fault) == ("error", "rank 2 on node02 silent for 40 s")


def test_silence_comes_before_a_late_case():
    job = Job(timeouts={"a": 10.0, "b": 5.0}).ready().start("a").later(12.0, 0, 1)
    assert "silent" in job.fault.message


def test_a_rank_that_said_bye_may_be_silent():
    job = Job(items=[("a", 0)]).ready().start("a").end("a").bye(2).later(EXIT_TIMEOUT, 0, 1)
    assert job.fault is None


def test_a_sign_of_life_of_an_unknown_rank_is_nothing():
    job = Job().beat(7)
    assert 7 not in job.watch.find_quiet(job.now + 5.0)


# A case


def test_a_case_has_its_timeout_from_its_last_ranks_start():
    job = Job().ready().start("a", 0, 1).later(20.0).start("a", 2).later(30.0)
    assert job.fault is None
    assert told(job.later(0.1).fault) == (
        "timeout",
        "ranks 0, 1, 2 on node01, node02 are not through with a after 30.1 s (its timeout is 30 s)",
    )


def test_only_ranks_that_are_not_through_are_late():
    job = Job().ready().start("a").later(3.0).end("a", 0, 2).later(27.1)
    assert (job.fault.rank, job.fault.case) == (1, "a")
    assert job.fault.message.startswith("rank 1 on node01 is not through with a after 30.1 s")


def test_the_end_of_a_case_on_some_ranks_does_not_extend_its_deadline():
    job = Job().ready().start("a").later(29.0).end("a", 0, 1).later(1.0, 0, 1, 2)
    assert job.fault is None
    assert job.later(0.1).fault.status == "timeout"


def test_a_start_of_the_next_case_does_not_extend_the_deadline_of_this_one():
    job = Job().ready().start("a").later(29.0).end("a", 0).start("b", 0).later(1.1)
    assert told(job.fault)[0] == "timeout"
    assert "a after 30.1 s" in job.fault.message
    assert job.fault.case == "a"


def test_checks_that_progress_are_not_ended():
    job = Job().ready().start("a").later(29.0)
    for done in range(3):
        job.progress("a", "check", done, 0).later(29.0)
    assert job.fault is None
    # The same again is no progress.
    late = job.progress("a", "check", 2, 0).later(1.1)
    assert "a after 30.1 s of check (its timeout is 30 s)" in late.fault.message


def test_the_timed_part_has_its_timeout_from_its_beginning_on():
    job = Job().ready().start("a").progress("a", "check", 0).later(29.0)
    job.progress("a", "warmup", 0).later(15.0).progress("a", "timing", 0).later(14.0)
    assert job.fault is None
    late = job.progress("a", "timing", 5).later(1.1)
    assert "of warmup (its timeout is 30 s)" in late.fault.message


def test_a_baseline_after_the_timed_part_has_time_of_its_own():
    job = Job().ready().start("a").progress("a", "timing", 0).later(29.0)
    assert job.progress("a", "baseline", 0, 0).later(29.0).fault is None


def test_progress_does_not_shorten_what_a_late_rank_has():
    job = Job().ready().start("a", 0, 1).progress("a", "check", 0, 0).later(20.0).start("a", 2)
    assert job.later(29.0).fault is None


def test_each_case_has_its_own_timeout():
    job = Job().ready().start("a").end("a").start("b").later(5.0)
    assert job.fault is None
    assert "b after 5.1 s (its timeout is 5 s)" in job.later(0.1).fault.message


def test_each_repeat_has_the_timeout_of_its_case():
    job = Job(items=[("a", 0), ("a", 1)]).ready().start("a").later(29.0).end("a")
    job.start("a", repeat=1).later(29.0)
    assert job.watch.current == ("a", 1)
    assert job.fault is None
    assert job.later(1.1).fault.status == "timeout"


def test_what_is_first_wrong_stays():
    job = Job().ready().start("a").later(31.0)
    first = job.fault
    job.watch.fail("something else", 1)
    assert job.later(100.0, 0).fault is first


def test_a_case_that_ends_in_an_error_says_which_rank_and_when():
    job = Job().ready().start("a").later(1.5)
    error = {"message": "ValueError: no", "traceback": "Traceback ..."}
    job.end("a", 2, status="error", error=error)
    assert job.fault == Fault(
        "error", "rank 2 on node02, 1.5 s into a: ValueError: no", 2, "a", False, "Traceback ..."
    )


@pytest.mark.parametrize("missing", [False, True])
def test_an_error_says_whether_the_machine_lacks_something(missing):
    error = {"message": "no GPU", "missing": missing}
    job = Job().ready().start("a").end("a", 1, status="error", error=error)
    assert job.fault.missing is missing


def test_an_error_without_a_word_is_an_error_as_well():
    job = Job().ready().start("a").end("a", 0, status="error")
    assert told(job.fault) == ("error", "rank 0 on node01, 0.0 s into a: unknown error")


@pytest.mark.parametrize(
    ("prepare", "rank", "name"),
    [
        (lambda job: job, 1, "rank 1, 2.0 s after the launch"),
        (lambda job: job.ready(), 2, "rank 2 on node02, 2.0 s after the launch"),
        (lambda job: job.ready().start("a"), 0, "rank 0 on node01, 2.0 s into a"),
    ],
)
def test_a_rank_is_named_with_host_and_time(prepare, rank, name):
    job = prepare(Job()).later(2.0)
    assert job.watch.describe_rank(rank, job.now) == name


# The end


def test_a_job_is_done_when_all_have_ended_all_and_said_bye():
    job = Job().ready()
    for case in ("a", "b"):
        job.start(case).end(case)
    assert job.watch.current is None
    assert not job.bye(0, 1).watch.done
    assert job.bye(2).watch.done
    assert job.fault is None


def test_a_bye_before_the_end_is_an_error():
    job = Job().ready().start("a").end("a").start("b").later(1.0).bye(1)
    assert told(job.fault) == (
        "error",
        "rank 1 on node01, 1.0 s into b, said bye before it had ended b",
    )


def test_a_bye_is_right_though_other_ranks_ends_are_not_yet_read():
    job = Job(items=[("a", 0)]).ready().start("a").end("a", 1).bye(1)
    assert job.fault is None
    assert job.end("a", 0, 2).bye(0, 2).watch.done


def test_ranks_have_a_while_to_say_bye():
    job = Job(items=[("a", 0)]).ready().start("a").end("a").bye(0).later(EXIT_TIMEOUT, 1, 2)
    assert job.fault is None
    assert told(job.later(1.0, 1, 2).fault) == (
        "error",
        "ranks 1, 2 on node01, node02 did not say bye in 21 s",
    )


# Where ranks stand

FAULT = Fault("timeout", "late", 0)


def located(where, np=3, fault=FAULT):
    return Job(np=np).ready().watch.add_locations(fault, where)


@pytest.mark.parametrize(
    ("where", "rank", "sentence"),
    [
        (
            {0: "in wait", 1: "in wait", 2: "in pack"},
            2,
            "rank 2 on node02 is in pack, ranks 0, 1 on node01 are in wait: late",
        ),
        (
            {0: "in wait", 1: f"in _hang, {ASLEEP}", 2: "in pack"},
            1,
            f"rank 1 on node01 is in _hang, {ASLEEP}, rank 0 on node01 is in wait, "
            "rank 2 on node02 is in pack: late",
        ),
        (
            {0: f"in _hang, {ASLEEP}", 2: "in wait"},
            1,
            f"rank 1 on node01 is not answering, rank 0 on node01 is in _hang, {ASLEEP}, "
            "rank 2 on node02 is in wait: late",
        ),
        (
            {0: f"in wait, {ASLEEP}", 1: f"in wait, {ASLEEP}", 2: f"in _hang, {ASLEEP}"},
            2,
            f"rank 2 on node02 is in _hang, {ASLEEP}, "
            f"ranks 0, 1 on node01 are in wait, {ASLEEP}: late",
        ),
        (
            dict.fromkeys(range(3), "in wait"),
            0,
            "ranks 0, 1, 2 on node01, node02 are in wait: late",
        ),
        ({}, 0, "ranks 0, 1, 2 on node01, node02 are not answering: late"),
    ],
    ids=["stands alone", "sleeps", "does not answer", "all sleep", "all alike", "none answers"],
)
def test_the_likely_culprit_comes_first(where, rank, sentence):
    fault = located(where)
    assert (fault.rank, fault.message, fault.status) == (rank, sentence, "timeout")


def test_only_three_places_are_told():
    fault = located({rank: f"in step{rank}" for rank in range(5)}, np=5)
    assert fault.message.count(" is in step") == 3
    assert fault.message.endswith(" and 2 more places: late")


def test_many_ranks_are_named_shortly():
    fault = located(dict.fromkeys(range(12), "in wait"), np=12)
    assert "ranks 0, 1, 2, 3, 4, 5, 6, 7, ... on node01, node02 are in wait" in fault.message


# What others may do with it


def test_nobody_else_changes_what_it_knows():
    watch = Job().watch
    for name in ("fault", "tentative", "misfit", "observations", "connected_hosts", "launched"):
        with pytest.raises(AttributeError):
            setattr(watch, name, None)


def test_a_cancelled_job_keeps_the_fault_that_came_first():
    job = Job().ready().start("a")
    job.watch.fail("rank 1 died", 1)
    job.watch.cancel("cancelled by Ctrl-C")
    assert job.fault.message == "rank 1 died"
    other = Job()
    other.watch.cancel("cancelled by Ctrl-C")
    assert told(other.fault) == ("cancelled", "cancelled by Ctrl-C")


def test_the_cause_takes_the_place_of_the_fault():
    job = Job()
    job.watch.fail("the launcher ended")
    job.watch.explain(Fault(CaseStatus.ERROR, "rank 1 was killed", 1))
    assert told(job.fault) == ("error", "rank 1 was killed")
