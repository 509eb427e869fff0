"""The watchdog of a job: timeouts, silence, mismatches and locations of ranks."""

import pytest

from spbench.engine.faults.fault import Fault
from spbench.engine.watchdog import EXIT_TIMEOUT, Watchdog
from spbench_core.catalog.planted_fault import EndingFault
from spbench_core.events.rank_events import ASLEEP, SILENCE_LIMIT
from spbench_core.events.statuses import CaseStatus
from support.sample_events import rank_event

HOSTS = ("node01", "node01", "node02")
PROGRAMS = "openmpi (5.0) and MPICH 4.2"


class WatchedJob:
    """A watched job of three ranks with a manual clock; the launch is at 100 s."""

    def __init__(
        self, np=3, case_repeats=(("a", 0), ("b", 0)), start_timeout=60.0, timeouts=None, **options
    ):
        self.now = 100.0
        self.watch = Watchdog(
            np=np,
            case_repeats=case_repeats,
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

    def advance(self, seconds, *beating):
        """Advance the clock, with a heartbeat per second of all or the given ranks."""
        end = self.now + seconds
        while self.now < end:
            self.now = min(end, self.now + 1.0)
            self.beat(*beating)
        return self

    @property
    def fault(self):
        return self.watch.check_deadlines(self.now)


# The start


def test_ranks_must_be_ready_within_start_timeout(messages):
    job = WatchedJob().ready(0, 2).advance(60.0, 0, 2)
    assert job.fault is None
    fault = job.advance(0.1, 0, 2).fault
    assert fault.status is CaseStatus.ERROR
    messages.check(fault.message)


def test_names_unconnected_ranks_with_their_planned_hosts():
    job = WatchedJob(hosts={0: "node01", 1: "node02", 2: "node03"})
    job.watch.on_hello(0, "node01")
    assert job.advance(61.0).fault.message.endswith(
        "; ranks 1, 2 on node02, node03 did not connect"
    )


def test_names_a_rank_that_connected_but_is_not_ready():
    job = WatchedJob().ready(0, 2)
    for rank, host in enumerate(("node01", "node02", "node01")):
        job.watch.on_hello(rank, host)
    assert job.advance(61.0, 0, 2).fault.message.endswith(
        "; rank 1 on node02 connected and is not ready"
    )


def test_does_not_guess_unconnected_ranks_without_numbers():
    job = WatchedJob().ready(0, 2)
    job.watch.on_hello(None, "node02")
    assert job.advance(61.0, 0, 2).fault.message.endswith("(start_timeout is 60 s)")


def test_reports_a_job_without_any_ready_rank(messages):
    job = WatchedJob(start_timeout=2.5).advance(3.0)
    assert job.fault.status is CaseStatus.ERROR
    messages.check(job.fault.message)


def test_ready_ranks_have_start_timeout_for_the_first_case(messages):
    job = WatchedJob().advance(50.0).ready().advance(60.0)
    assert job.fault is None
    fault = job.advance(0.1).fault
    assert fault.status is CaseStatus.ERROR
    messages.check(fault.message)


def test_ready_ranks_have_start_timeout_for_the_next_case(messages):
    job = WatchedJob().ready().start("a").end("a").advance(60.0)
    assert job.fault is None
    fault = job.advance(1.0).fault
    assert fault.status is CaseStatus.ERROR
    messages.check(fault.message)


@pytest.mark.parametrize("size", [1, 2, 4])
def test_different_number_of_ranks_is_a_mismatch(size):
    job = WatchedJob()
    job.ready(1, size=size)
    assert job.fault.missing
    assert job.fault.rank == 1
    assert job.fault.message == (
        f"node01 says it is rank 1 of {size} in a job of 3 ranks: "
        "openmpi (5.0) and MPICH 4.2 do not match"
    )


def test_reports_a_host_with_another_library_with_both(messages):
    job = WatchedJob()
    job.watch.on_launch(PROGRAMS, "MVAPICH2 2.3.7", job.now)
    event = rank_event("ready", 0, size=1, versions={"mpi": "Open MPI v5.0.11"})
    job.watch.on_ready(event, "node02", 1, job.now, launched_as=2)
    assert job.fault.rank == 2
    messages.check(job.fault.message)


def test_duplicate_rank_number_is_a_mismatch(messages):
    job = WatchedJob().ready(0, 1)
    before = job.fault
    assert before is None
    job.ready(1)
    assert job.fault.missing
    messages.check(job.fault.message)


# Silence


def test_reports_a_silent_rank_after_10_s(messages):
    assert SILENCE_LIMIT == 10.0
    job = WatchedJob().ready().start("a").advance(10.0, 0, 1)
    before = job.fault
    assert before is None
    fault = job.advance(0.1, 0, 1).fault
    assert fault.status is CaseStatus.ERROR
    messages.check(fault.message)
    assert job.fault.rank == 2


def test_messages_number_ranks_like_their_cases():
    job = WatchedJob(first_rank=7).ready().start("a").advance(10.1, 0, 1)
    assert job.fault.message == "rank 9 on node02 silent for 10 s"
    assert job.fault.effect is EndingFault.STOP
    mismatched = WatchedJob(first_rank=7)
    event = rank_event("ready", 0, size=1)
    mismatched.watch.on_ready(event, "node02", 1, mismatched.now, launched_as=2)
    assert mismatched.fault.message.startswith("rank 9 on node02 says it is rank 0 of 1 ")


def test_silence_timeout_extends_the_limit(messages):
    job = WatchedJob(silence_timeout=30.0).ready().start("a")
    fault = job.advance(25.0, 0, 1).fault
    assert fault is None
    fault = job.advance(5.1, 0, 1).fault
    assert fault.status is CaseStatus.ERROR
    messages.check(fault.message)


def test_silence_on_a_busy_host_names_load_and_setting(messages):
    load = "load 13.8 on 2 cores"
    job = WatchedJob(describe_load=lambda host: f"{load} of {host}").ready().start("a")
    fault = job.advance(10.1, 0, 1).fault
    assert fault.status is CaseStatus.ERROR
    messages.check(fault.message)


def test_reports_a_silent_rank_before_all_are_ready(messages):
    job = WatchedJob().ready(0, 1).advance(10.1, 0)
    assert job.fault.status is CaseStatus.ERROR
    messages.check(job.fault.message)


def test_reports_a_rank_silent_before_it_has_its_cases(messages):
    job = WatchedJob().ready().advance(10.1, 0, 1)
    assert job.fault.status is CaseStatus.ERROR
    messages.check(job.fault.message)


def test_loading_rank_may_be_silent_until_after_the_first_start(messages):
    job = WatchedJob().ready()
    for rank in range(3):
        job.watch.on_loading(rank)
    assert job.advance(30.0, 0, 1).fault is None
    assert job.start("a", 0).advance(10.0, 0, 1).fault is None
    fault = job.advance(0.1, 0, 1).fault
    assert fault.status is CaseStatus.ERROR
    messages.check(fault.message)


def test_silence_takes_precedence_over_a_late_case():
    job = WatchedJob(timeouts={"a": 10.0, "b": 5.0}).ready().start("a").advance(12.0, 0, 1)
    assert "silent" in job.fault.message


def test_rank_may_be_silent_after_bye():
    job = (
        WatchedJob(case_repeats=[("a", 0)])
        .ready()
        .start("a")
        .end("a")
        .bye(2)
        .advance(EXIT_TIMEOUT, 0, 1)
    )
    assert job.fault is None


def test_ignores_a_heartbeat_of_an_unknown_rank():
    job = WatchedJob().beat(7)
    assert 7 not in job.watch.find_quiet(job.now + 5.0)


# A case


def test_timeout_of_a_case_counts_from_its_last_start(messages):
    job = WatchedJob().ready().start("a", 0, 1).advance(20.0).start("a", 2).advance(30.0)
    assert job.fault is None
    fault = job.advance(0.1).fault
    assert fault.status is CaseStatus.TIMEOUT
    messages.check(fault.message)


def test_reports_only_ranks_that_have_not_finished(messages):
    job = WatchedJob().ready().start("a").advance(3.0).end("a", 0, 2).advance(27.1)
    assert (job.fault.rank, job.fault.case) == (1, "a")
    messages.check(job.fault.message)


def test_end_on_some_ranks_does_not_extend_the_deadline():
    job = WatchedJob().ready().start("a").advance(29.0).end("a", 0, 1).advance(1.0, 0, 1, 2)
    assert job.fault is None
    assert job.advance(0.1).fault.status is CaseStatus.TIMEOUT


def test_start_of_the_next_case_does_not_extend_the_deadline(messages):
    job = WatchedJob().ready().start("a").advance(29.0).end("a", 0).start("b", 0).advance(1.1)
    assert job.fault.status is CaseStatus.TIMEOUT
    messages.check(job.fault.message)
    assert job.fault.case == "a"


def test_progress_of_a_check_extends_the_deadline(messages):
    job = WatchedJob().ready().start("a").advance(29.0)
    for done in range(3):
        job.progress("a", "check", done, 0).advance(29.0)
    assert job.fault is None
    # Repeated progress does not count.
    late = job.progress("a", "check", 2, 0).advance(1.1)
    messages.check(late.fault.message)


def test_timeout_of_the_timed_part_counts_from_the_warmup(messages):
    job = WatchedJob().ready().start("a").progress("a", "check", 0).advance(29.0)
    job.progress("a", "warmup", 0).advance(15.0).progress("a", "timing", 0).advance(14.0)
    assert job.fault is None
    late = job.progress("a", "timing", 5).advance(1.1)
    messages.check(late.fault.message)


def test_baseline_phase_has_its_own_timeout():
    job = WatchedJob().ready().start("a").progress("a", "timing", 0).advance(29.0)
    assert job.progress("a", "baseline", 0, 0).advance(29.0).fault is None


def test_progress_does_not_shorten_the_time_of_a_late_rank():
    job = (
        WatchedJob()
        .ready()
        .start("a", 0, 1)
        .progress("a", "check", 0, 0)
        .advance(20.0)
        .start("a", 2)
    )
    assert job.advance(29.0).fault is None


def test_each_case_has_its_own_timeout(messages):
    job = WatchedJob().ready().start("a").end("a").start("b").advance(5.0)
    assert job.fault is None
    messages.check(job.advance(0.1).fault.message)


def test_each_repeat_has_the_timeout_of_its_case():
    job = WatchedJob(case_repeats=[("a", 0), ("a", 1)]).ready().start("a").advance(29.0).end("a")
    job.start("a", repeat=1).advance(29.0)
    assert job.watch.current == ("a", 1)
    assert job.fault is None
    assert job.advance(1.1).fault.status is CaseStatus.TIMEOUT


def test_keeps_the_first_fault():
    job = WatchedJob().ready().start("a").advance(31.0)
    first = job.fault
    job.watch.fail("something else", 1)
    assert job.advance(100.0, 0).fault is first


def test_error_of_a_case_has_rank_and_time():
    job = WatchedJob().ready().start("a").advance(1.5)
    error = {"message": "ValueError: no", "traceback": "Traceback ..."}
    job.end("a", 2, status="error", error=error)
    assert job.fault == Fault(
        CaseStatus.ERROR,
        "rank 2 on node02, 1.5 s into a: ValueError: no",
        2,
        "a",
        False,
        "Traceback ...",
    )


@pytest.mark.parametrize("missing", [False, True])
def test_error_keeps_its_missing_flag(missing):
    error = {"message": "no GPU", "missing": missing}
    job = WatchedJob().ready().start("a").end("a", 1, status="error", error=error)
    assert job.fault.missing is missing


def test_error_without_a_message_is_unknown(messages):
    job = WatchedJob().ready().start("a").end("a", 0, status="error")
    assert job.fault.status is CaseStatus.ERROR
    messages.check(job.fault.message)


@pytest.mark.parametrize(
    ("prepare", "rank", "name"),
    [
        (lambda job: job, 1, "rank 1, 2.0 s after the launch"),
        (lambda job: job.ready(), 2, "rank 2 on node02, 2.0 s after the launch"),
        (lambda job: job.ready().start("a"), 0, "rank 0 on node01, 2.0 s into a"),
    ],
)
def test_describes_a_rank_with_host_and_time(prepare, rank, name):
    job = prepare(WatchedJob()).advance(2.0)
    assert job.watch.describe_rank(rank, job.now) == name


# The end


def test_job_is_done_after_all_cases_and_byes():
    job = WatchedJob().ready()
    for case in ("a", "b"):
        job.start(case).end(case)
    assert job.watch.current is None
    assert not job.bye(0, 1).watch.done
    assert job.bye(2).watch.done
    assert job.fault is None


def test_bye_before_the_end_is_an_error(messages):
    job = WatchedJob().ready().start("a").end("a").start("b").advance(1.0).bye(1)
    assert job.fault.status is CaseStatus.ERROR
    messages.check(job.fault.message)


def test_accepts_bye_before_the_ends_of_other_ranks():
    job = WatchedJob(case_repeats=[("a", 0)]).ready().start("a").end("a", 1).bye(1)
    assert job.fault is None
    assert job.end("a", 0, 2).bye(0, 2).watch.done


def test_ranks_must_send_bye_within_the_exit_timeout(messages):
    job = (
        WatchedJob(case_repeats=[("a", 0)])
        .ready()
        .start("a")
        .end("a")
        .bye(0)
        .advance(EXIT_TIMEOUT, 1, 2)
    )
    assert job.fault is None
    fault = job.advance(1.0, 1, 2).fault
    assert fault.status is CaseStatus.ERROR
    messages.check(fault.message)


# Locations of ranks

FAULT = Fault(CaseStatus.TIMEOUT, "late", 0)


def add_locations(locations, np=3, fault=FAULT):
    return WatchedJob(np=np).ready().watch.add_locations(fault, locations)


@pytest.mark.parametrize(
    ("locations", "rank", "message"),
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
    ids=[
        "single rank behind",
        "sleeps",
        "does not answer",
        "all sleep",
        "all behind equally",
        "none answers",
    ],
)
def test_lists_the_likely_cause_first(locations, rank, message):
    fault = add_locations(locations)
    assert (fault.rank, fault.message, fault.status) == (rank, message, CaseStatus.TIMEOUT)


@pytest.mark.parametrize(
    ("position", "effect"),
    [
        (f"in _hang (faults.py:70), {ASLEEP}", EndingFault.HANG),
        (None, EndingFault.STOP),
        (f"in read (files.py:70), {ASLEEP}", None),
    ],
)
def test_position_of_a_single_rank_shows_a_planted_fault(position, effect):
    positions = {0: "in wait", 1: "in wait"} | ({2: position} if position else {})
    assert add_locations(positions).effect is effect
    everywhere = dict.fromkeys(range(3), position) if position else {}
    assert add_locations(everywhere).effect is None


def test_lists_at_most_three_locations():
    fault = add_locations({rank: f"in step{rank}" for rank in range(5)}, np=5)
    assert fault.message.count(" is in step") == 3
    assert fault.message.endswith(" and 2 more places: late")


def test_shortens_a_list_of_many_ranks(messages):
    fault = add_locations(dict.fromkeys(range(12), "in wait"), np=12)
    messages.check(fault.message)


# Access by other classes


def test_attributes_are_read_only():
    watch = WatchedJob().watch
    for name in (
        "fault",
        "tentative",
        "protocol_fault",
        "observations",
        "connected_hosts",
        "launched",
    ):
        with pytest.raises(AttributeError):
            setattr(watch, name, None)


def test_cancelled_job_keeps_the_first_fault(messages):
    job = WatchedJob().ready().start("a")
    job.watch.fail("rank 1 died", 1)
    job.watch.cancel("cancelled by Ctrl-C")
    messages.check(job.fault.message)
    other = WatchedJob()
    other.watch.cancel("cancelled by Ctrl-C")
    assert other.fault.status is CaseStatus.CANCELLED
    messages.check(other.fault.message)


def test_cause_replaces_the_fault(messages):
    job = WatchedJob()
    job.watch.fail("the launcher ended")
    job.watch.explain(Fault(CaseStatus.ERROR, "rank 1 was killed", 1))
    assert job.fault.status is CaseStatus.ERROR
    messages.check(job.fault.message)
