"""The cause among several signs of a fault: a table of observations."""

import pytest

from spbench.engine.faults.cause import Evidence, find_cause, is_settled
from spbench.engine.faults.fault import Fault, RankError, RankLoss
from spbench.engine.watchdog import Watchdog
from spbench.launch.launcher import LauncherReport, LostConnection, RankEnd
from spbench_core.catalog.planted_fault import EndingFault

HOSTS = {0: "node01", 1: "node01", 2: "node02", 3: "node02"}
MPI = "Exception: Unknown error class, error stack:"
TRACE = "Traceback ...\nmpi4py.MPI.Exception: Unknown error class, error stack:\n"


def describe_rank(rank, reported_host=None):
    return f"rank {rank} on {HOSTS[rank]}, 1.0 s into a"


def rank_loss(rank):
    return RankLoss(rank, describe_rank(rank))


def own_error(rank, message="ValueError: no"):
    return RankError(
        rank, describe_rank(rank), message, case="a", traceback=f"Traceback ...\n{message}\n"
    )


def mpi_error(rank):
    return RankError(rank, describe_rank(rank), MPI, case="a", traceback=TRACE)


def interrupt_error(rank):
    return own_error(rank, "KeyboardInterrupt")


def signal_end(rank, number=9):
    return RankEnd((rank,), HOSTS[rank], signal=number)


def exit_end(rank, status=1):
    return RankEnd((rank,), HOSTS[rank], status=status)


def abort_end(rank):
    return RankEnd((rank,), None, status=1, aborted=True)


def build_report(*ends, **more):
    return LauncherReport(ends, **more)


def orphan_error(rank):
    message = "its parent process (mpispawn) has ended"
    return RankError(rank, describe_rank(rank), message, orphaned=True)


def disconnect_report(host, *ends, **more):
    message = f"Connection to {host} closed by remote host"
    return LauncherReport(ends, lost=(LostConnection(host, message),), **more)


SSH = "the launcher lost its connection to this host and its 2 ranks: Connection to node02 closed"
ORPHAN = "its parent process (mpispawn) has ended"
TIMEOUT = LauncherReport(
    (signal_end(3), signal_end(0, 2)), "the launcher ended the job after 4 s", decisive=True
)
KILLED = "was killed by signal 9 (SIGKILL)"
SILENT_DEATH = "ended without an error message"

CAUSES = {
    # a kill, reported by each launcher
    "killed": ([rank_loss(2)], build_report(signal_end(2)), 2, KILLED),
    "survivors first": (
        [mpi_error(0), mpi_error(1), rank_loss(2)],
        build_report(signal_end(2)),
        2,
        KILLED,
    ),
    "survivors alone": (
        [mpi_error(0), rank_loss(0), mpi_error(3)],
        build_report(signal_end(2)),
        2,
        KILLED,
    ),
    "the launcher's own signals first": (
        [mpi_error(0), rank_loss(3), rank_loss(2)],
        build_report(signal_end(3, 2), signal_end(1, 15), signal_end(2)),
        2,
        KILLED,
    ),
    "a survivor exits first": (
        [mpi_error(0)],
        build_report(abort_end(0), exit_end(0), signal_end(2)),
        2,
        KILLED,
    ),
    "interrupted survivors": (
        [interrupt_error(0), interrupt_error(1)],
        build_report(signal_end(2)),
        2,
        KILLED,
    ),
    "a survivor's library aborts": (
        [rank_loss(0)],
        build_report(signal_end(0, 6), signal_end(2)),
        2,
        KILLED,
    ),
    "a survivor's unknown error": (
        [own_error(0, "OddError: ?")],
        build_report(signal_end(2), exit_end(0)),
        2,
        KILLED,
    ),
    "Hydra names no rank": (
        [rank_loss(2), rank_loss(0)],
        build_report(RankEnd((), "node02", signal=9)),
        2,
        KILLED,
    ),
    "srun names several": (
        [rank_loss(2), rank_loss(0)],
        build_report(RankEnd((0, 2), "node02", signal=9), kills=True),
        2,
        KILLED,
    ),
    "losses of survivors first": (
        [rank_loss(0), rank_loss(2)],
        build_report(survivors=frozenset({0})),
        2,
        SILENT_DEATH,
    ),
    "only survivors": (
        [rank_loss(1), rank_loss(0)],
        build_report(survivors=frozenset({0, 1})),
        1,
        SILENT_DEATH,
    ),
    "no word": ([rank_loss(2), mpi_error(0), rank_loss(0)], build_report(), 2, SILENT_DEATH),
    "no word, survivors first": (
        [mpi_error(0), rank_loss(2), rank_loss(0)],
        build_report(),
        2,
        SILENT_DEATH,
    ),
    "SIGTERM from outside": (
        [rank_loss(2), rank_loss(0)],
        build_report(signal_end(2, 15), signal_end(0, 15)),
        2,
        "was killed by signal 15 (SIGTERM)",
    ),
    "exit without a message": (
        [rank_loss(2), mpi_error(0)],
        build_report(exit_end(2, 7)),
        2,
        "exited with status 7",
    ),
    # an error of a rank
    "own error": (
        [own_error(1), mpi_error(0), rank_loss(1)],
        build_report(exit_end(1)),
        1,
        "ValueError: no",
    ),
    "own error, others killed": (
        [own_error(1), rank_loss(1), rank_loss(0)],
        build_report(abort_end(1), signal_end(0), kills=True),
        1,
        "ValueError: no",
    ),
    "own error, others killed late": (
        [own_error(1), rank_loss(0)],
        build_report(exit_end(1), signal_end(0)),
        1,
        "Value",
    ),
    "own error, no word of it": (
        [own_error(1), rank_loss(1), rank_loss(0)],
        build_report(signal_end(0)),
        1,
        "ValueError",
    ),
    "own error after survivors": (
        [mpi_error(0), own_error(1), rank_loss(1)],
        build_report(exit_end(1)),
        1,
        "ValueError",
    ),
    "own error after a loss": ([rank_loss(2), own_error(1)], build_report(), 2, SILENT_DEATH),
    "own MPI error": (
        [mpi_error(1), rank_loss(1), rank_loss(0)],
        build_report(abort_end(1)),
        1,
        MPI,
    ),
    "own MPI error, others killed by srun": (
        [mpi_error(1), rank_loss(1), rank_loss(0)],
        build_report(abort_end(1), signal_end(0), kills=True),
        1,
        MPI,
    ),
    "own MPI error under Hydra": (
        [mpi_error(1), rank_loss(1), rank_loss(0)],
        build_report(RankEnd((), "node01", signal=9), kills=True),
        1,
        MPI,
    ),
    "two own errors": (
        [own_error(1), own_error(0, "KeyError: 'x'")],
        build_report(),
        1,
        "ValueError: no",
    ),
    # the launcher
    "a time limit": (
        [interrupt_error(0), rank_loss(2)],
        TIMEOUT,
        None,
        "the launcher ended the job",
    ),
    "an interrupt alone": (
        [interrupt_error(1), mpi_error(0)],
        build_report(),
        1,
        "KeyboardInterrupt",
    ),
    # a host to which the launcher lost its connection
    "an ssh session": (
        [interrupt_error(0), interrupt_error(1)],
        disconnect_report("node02"),
        2,
        SSH,
    ),
    "an ssh session, a rank of it first": (
        [interrupt_error(2), interrupt_error(0), rank_loss(2), rank_loss(0)],
        disconnect_report("node02"),
        2,
        SSH,
    ),
    "an ssh session, losses first": (
        [rank_loss(0), interrupt_error(1)],
        disconnect_report("node02"),
        2,
        SSH,
    ),
    "an ssh session, signals of the launcher": (
        [mpi_error(0), rank_loss(1), rank_loss(2)],
        disconnect_report("node02", signal_end(1, 2), signal_end(0, 9), exit_end(3)),
        2,
        SSH,
    ),
    "an ssh session, another reason": (
        [interrupt_error(0)],
        disconnect_report("node02", reason="program x cannot be run"),
        2,
        SSH,
    ),
    "an ssh session of an unknown host": (
        [interrupt_error(0)],
        disconnect_report("node09"),
        None,
        "the launcher lost its connection to host node09: Connection to node09 closed",
    ),
    "an ssh session of a host without a name": (
        [interrupt_error(0)],
        LauncherReport(lost=(LostConnection(None, "client_loop: send disconnect: Broken pipe"),)),
        None,
        "the launcher lost its connection to a host: client_loop: send disconnect: Broken pipe",
    ),
    "an ssh session of a host that another message names": (
        [],
        LauncherReport(
            reason="host node02 cannot start", lost=(LostConnection(None, "kex: reset"),)
        ),
        None,
        "host node02 cannot start: kex: reset",
    ),
    "the launcher's own decision before an ssh session": (
        [interrupt_error(0)],
        disconnect_report("node02", reason="the launcher ended the job", decisive=True),
        None,
        "the launcher ended the job",
    ),
    # a launcher's helper
    "a helper": ([orphan_error(2), orphan_error(3)], build_report(), 2, ORPHAN),
    "a helper after losses": (
        [rank_loss(0), mpi_error(1), orphan_error(2)],
        build_report(),
        2,
        ORPHAN,
    ),
    "a helper, and the launcher ends the others": (
        [orphan_error(2), interrupt_error(0), rank_loss(1)],
        build_report(signal_end(0, 2), signal_end(1, 15)),
        2,
        ORPHAN,
    ),
    "a helper that follows a kill": (
        [orphan_error(0), rank_loss(2)],
        build_report(signal_end(2)),
        2,
        KILLED,
    ),
    "a helper that follows an exit": (
        [rank_loss(2), orphan_error(0)],
        build_report(exit_end(2, 7)),
        2,
        "exited with status 7",
    ),
    # interrupts explain nothing
    "interrupts with a reason": (
        [interrupt_error(0), interrupt_error(1)],
        LauncherReport(reason="host node02 cannot be reached by ssh"),
        None,
        "host node02 cannot be reached by ssh",
    ),
    "interrupts with what follows": (
        [interrupt_error(0)],
        LauncherReport(reason="a rank ended without MPI_Finalize", follows=True),
        0,
        "KeyboardInterrupt",
    ),
    "interrupts with an exit": (
        [interrupt_error(0), interrupt_error(1)],
        build_report(exit_end(0, 1), signal_end(3, 2), exit_end(2, 3)),
        2,
        "exited with status 3",
    ),
    "interrupts with their own exits": (
        [interrupt_error(0), interrupt_error(1)],
        build_report(exit_end(1, 1), signal_end(3, 2)),
        0,
        "KeyboardInterrupt",
    ),
    # reports only
    "only a status": ([], build_report(exit_end(1, 3)), 1, "exited with status 3"),
}


def build_evidence(observations, report, **more):
    names = {
        "describe_rank": describe_rank,
        "unconnected": frozenset(),
        "planned_hosts": HOSTS,
        "host": "login",
    }
    names["host_names"] = {rank: {host} for rank, host in HOSTS.items()}
    return Evidence(tuple(observations), report, **names | more)


@pytest.mark.parametrize(("observations", "report", "rank", "text"), CAUSES.values(), ids=CAUSES)
def test_message_starts_with_the_cause_rank_and_host(observations, report, rank, text):
    fault = find_cause(build_evidence(observations, report))
    first = fault.message.partition("; as a consequence")[0]
    assert (fault.rank, fault.status) == (rank, "error")
    assert text in first
    assert first.startswith(describe_rank(rank) if rank is not None else text)
    errors = [
        observation
        for observation in observations
        if isinstance(observation, RankError) and observation.rank == rank
    ]
    traces = [error.traceback for error in errors if text in error.message]
    assert fault.traceback == (traces[0] if traces else None)


def test_consequences_follow_the_cause_shortened():
    observations = [mpi_error(0), mpi_error(0), mpi_error(1), mpi_error(3), rank_loss(2)]
    assert find_cause(build_evidence(observations, build_report(signal_end(2)))).message == (
        f"{describe_rank(2)}, {KILLED}; as a consequence {describe_rank(0)}: {MPI}; "
        f"{describe_rank(1)}: {MPI}; 1 more rank"
    )


def test_errors_of_two_ranks_are_not_consequences():
    assert (
        find_cause(build_evidence([own_error(1), own_error(0)], build_report())).message
        == f"{describe_rank(1)}: ValueError: no"
    )


def test_counts_lost_hosts_after_the_first():
    connections = tuple(LostConnection(host, f"no {host}") for host in ("node01", "node02", None))
    fault = find_cause(build_evidence([interrupt_error(2)], LauncherReport(lost=connections)))
    assert fault.message == (
        f"{describe_rank(0)}: the launcher lost its connection to this host and its 2 ranks, "
        "and to 1 more host: no node01; "
        f"as a consequence {describe_rank(2)}: KeyboardInterrupt"
    )


def test_other_ranks_of_a_helper_are_not_consequences():
    assert (
        find_cause(build_evidence([orphan_error(2), orphan_error(3)], build_report())).message
        == f"{describe_rank(2)}: {ORPHAN}"
    )


@pytest.mark.parametrize(
    ("report", "hosts", "rank", "start"),
    [
        (
            build_report(exit_end(2, 7)),
            HOSTS,
            2,
            f"{describe_rank(2)}, exited with status 7 before it connected",
        ),
        (
            build_report(RankEnd((), "node02", status=7)),
            HOSTS,
            2,
            f"{describe_rank(2)}, exited with status 7 before it connected",
        ),
        (
            build_report(RankEnd((), "node09", status=7)),
            HOSTS,
            0,
            f"{describe_rank(0)}, {SILENT_DEATH}",
        ),
    ],
    ids=["named", "by its host", "on another host"],
)
def test_rank_that_never_connected_is_the_cause(report, hosts, rank, start):
    observations = [rank_loss(0), rank_loss(1)]
    evidence = build_evidence(
        observations,
        report,
        unconnected=frozenset({2, 3}),
        planned_hosts=hosts,
        stderr_text="no module x",
    )
    fault = find_cause(evidence)
    assert fault.rank == rank
    assert fault.message == f"{start}: no module x"


def test_wrong_size_is_a_mismatch_unless_a_rank_ended_before():
    mismatch = Fault("error", "node01 says it is rank 0 of 1", 0, missing=True)
    fields = {"protocol_fault": mismatch, "unconnected": frozenset({2})}
    assert find_cause(build_evidence([rank_loss(0)], build_report(), **fields)) == mismatch
    assert (
        find_cause(build_evidence([rank_loss(0)], build_report(exit_end(2, 7)), **fields)).rank == 2
    )


def test_rank_without_a_host_gets_that_of_the_launcher_report(messages):
    evidence = build_evidence(
        [],
        build_report(exit_end(2, 7)),
        unconnected=frozenset({2}),
        describe_rank="rank {} on {}, early".format,
    )
    messages.check(find_cause(evidence).message)


def test_host_of_the_launcher_report_is_added_to_a_renumbered_rank():
    watch = Watchdog(
        np=4, case_repeats=(), start_timeout=60.0, case_timeouts={}, launched=0.0, first_rank=10
    )
    evidence = build_evidence(
        [],
        build_report(exit_end(1, 7)),
        unconnected=frozenset({1}),
        describe_rank=lambda rank, host: watch.describe_rank(rank, 0.3, host),
    )
    assert find_cause(evidence).message.startswith("rank 11 on node01, 0.3 s after the launch, ")


def test_killed_launcher_is_the_cause_unless_it_reported_one():
    evidence = build_evidence(
        [rank_loss(2), rank_loss(0)], build_report(), status=-9, launcher="hydra"
    )
    assert find_cause(evidence).message == f"the launcher, hydra, {KILLED} on login"
    evidence_with_report = build_evidence([rank_loss(2)], build_report(signal_end(2)), status=-9)
    assert find_cause(evidence_with_report).rank == 2


def test_silent_rank_precedes_ranks_that_cannot_reach_it():
    evidence = build_evidence(
        [mpi_error(0), rank_loss(0)], build_report(abort_end(0)), quiet={3: 4.0, 2: 5.2}
    )
    fault = find_cause(evidence)
    assert fault.rank == 2
    assert fault.message.startswith(
        f"{describe_rank(2)}, silent for 5 s; as a consequence {describe_rank(0)}: {MPI}"
    )


@pytest.mark.parametrize(
    ("report", "effect"),
    [
        (build_report(signal_end(2)), EndingFault.KILL),
        (build_report(), EndingFault.KILL),  # the launcher does not report the signal
        (build_report(signal_end(2, 11)), None),
        (build_report(exit_end(2)), None),
    ],
)
def test_lost_rank_has_the_effect_of_a_planted_kill_by_its_signal(report, effect):
    fault = find_cause(build_evidence([rank_loss(2)], report))
    assert (fault.rank, fault.effect) == (2, effect)
    assert fault.shows("kill,rank=2", 4) == (effect is EndingFault.KILL)
    assert not fault.shows("kill,rank=1", 4)
    assert not fault.shows("stop,rank=2", 4)


def test_no_observations_give_no_cause():
    assert find_cause(build_evidence([], build_report())) is None


@pytest.mark.parametrize(
    ("report", "settled"),
    [
        (build_report(), False),
        (build_report(signal_end(2, 2), exit_end(1)), False),
        (build_report(signal_end(2)), True),
        (disconnect_report("node02"), True),
        (TIMEOUT, True),
    ],
)
def test_reported_signal_settles_the_cause(report, settled):
    assert is_settled(build_evidence([mpi_error(0)], report)) is settled


@pytest.mark.parametrize(
    ("message", "trace", "may_be_consequence"),
    [
        ("Exception: MPI_ERR_PROC_FAILED: Process Failure", None, True),
        ("Exception: Unknown error class, error stack:", None, True),
        ("RuntimeError: exchange failed", "mpi4py.MPI.Exception: MPI_ERR_OTHER\n\nThe above", True),
        ("RuntimeError: [../gloo/pair.cc:534] Connection closed by peer [10.0.0.2]", None, True),
        ("ConnectionResetError: [Errno 104] Connection reset by peer", None, True),
        ("DistBackendError: NCCL error: remote process exited", None, True),
        ("KeyboardInterrupt", None, True),
        ("ValueError: no", "Traceback ...\nValueError: no\n", False),
        ("Exception: a plain one", "Exception: a plain one\n", False),
        ("SystemExit: 3", None, False),
    ],
)
def test_recognizes_errors_that_follow_another_rank(message, trace, may_be_consequence):
    assert RankError(0, "rank 0", message, traceback=trace).may_be_consequence is may_be_consequence
