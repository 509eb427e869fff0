"""Which of several signs of a fault is its cause: a table of what comes in which order."""

import pytest

from spbench.engine.faults.cause import Evidence, find_cause, is_settled
from spbench.engine.faults.fault import Fault, RankError, RankLoss
from spbench.launch.launcher import LauncherReport, LostConnection, RankEnd

HOSTS = {0: "node01", 1: "node01", 2: "node02", 3: "node02"}
MPI = "Exception: Unknown error class, error stack:"
TRACE = "Traceback ...\nmpi4py.MPI.Exception: Unknown error class, error stack:\n"


def who(rank):
    return f"rank {rank} on {HOSTS[rank]}, 1.0 s into a"


def lost(rank):
    return RankLoss(rank, who(rank))


def own(rank, message="ValueError: no"):
    return RankError(rank, who(rank), message, case="a", traceback=f"Traceback ...\n{message}\n")


def broken(rank):
    return RankError(rank, who(rank), MPI, case="a", traceback=TRACE)


def interrupted(rank):
    return own(rank, "KeyboardInterrupt")


def killed(rank, number=9):
    return RankEnd((rank,), HOSTS[rank], signal=number)


def exited(rank, status=1):
    return RankEnd((rank,), HOSTS[rank], status=status)


def aborted(rank):
    return RankEnd((rank,), None, status=1, aborted=True)


def said(*ends, **more):
    return LauncherReport(ends, **more)


def orphaned(rank):
    message = "its parent process (mpispawn) has ended"
    return RankError(rank, who(rank), message, orphaned=True)


def disconnected(host, *ends, **more):
    message = f"Connection to {host} closed by remote host"
    return LauncherReport(ends, lost=(LostConnection(host, message),), **more)


SSH = "the launcher lost its connection to this host and its 2 ranks: Connection to node02 closed"
ORPHAN = "its parent process (mpispawn) has ended"
TIMEOUT = LauncherReport(
    (killed(3), killed(0, 2)), "the launcher ended the job after 4 s", decisive=True
)
KILLED = "was killed by signal 9 (SIGKILL)"
SILENT_DEATH = "ended without an error message"

TABLE = {
    # a kill, as each launcher tells of it
    "killed": ([lost(2)], said(killed(2)), 2, KILLED),
    "survivors first": ([broken(0), broken(1), lost(2)], said(killed(2)), 2, KILLED),
    "survivors alone": ([broken(0), lost(0), broken(3)], said(killed(2)), 2, KILLED),
    "the launcher's own signals first": (
        [broken(0), lost(3), lost(2)],
        said(killed(3, 2), killed(1, 15), killed(2)),
        2,
        KILLED,
    ),
    "a survivor exits first": ([broken(0)], said(aborted(0), exited(0), killed(2)), 2, KILLED),
    "interrupted survivors": ([interrupted(0), interrupted(1)], said(killed(2)), 2, KILLED),
    "a survivor's library aborts": ([lost(0)], said(killed(0, 6), killed(2)), 2, KILLED),
    "a survivor's unknown error": (
        [own(0, "OddError: ?")],
        said(killed(2), exited(0)),
        2,
        KILLED,
    ),
    "Hydra names no rank": ([lost(2), lost(0)], said(RankEnd((), "node02", signal=9)), 2, KILLED),
    "srun names several": (
        [lost(2), lost(0)],
        said(RankEnd((0, 2), "node02", signal=9), kills=True),
        2,
        KILLED,
    ),
    "no word": ([lost(2), broken(0), lost(0)], said(), 2, SILENT_DEATH),
    "no word, survivors first": ([broken(0), lost(2), lost(0)], said(), 2, SILENT_DEATH),
    "SIGTERM from outside": (
        [lost(2), lost(0)],
        said(killed(2, 15), killed(0, 15)),
        2,
        "was killed by signal 15 (SIGTERM)",
    ),
    "exit without a word": ([lost(2), broken(0)], said(exited(2, 7)), 2, "exited with status 7"),
    # a rank's own error
    "own error": ([own(1), broken(0), lost(1)], said(exited(1)), 1, "ValueError: no"),
    "own error, others killed": (
        [own(1), lost(1), lost(0)],
        said(aborted(1), killed(0), kills=True),
        1,
        "ValueError: no",
    ),
    "own error, others killed late": ([own(1), lost(0)], said(exited(1), killed(0)), 1, "Value"),
    "own error, no word of it": ([own(1), lost(1), lost(0)], said(killed(0)), 1, "ValueError"),
    "own error after survivors": ([broken(0), own(1), lost(1)], said(exited(1)), 1, "ValueError"),
    "own error after a loss": ([lost(2), own(1)], said(), 2, SILENT_DEATH),
    "own MPI error": ([broken(1), lost(1), lost(0)], said(aborted(1)), 1, MPI),
    "own MPI error, others killed by srun": (
        [broken(1), lost(1), lost(0)],
        said(aborted(1), killed(0), kills=True),
        1,
        MPI,
    ),
    "own MPI error under Hydra": (
        [broken(1), lost(1), lost(0)],
        said(RankEnd((), "node01", signal=9), kills=True),
        1,
        MPI,
    ),
    "two own errors": ([own(1), own(0, "KeyError: 'x'")], said(), 1, "ValueError: no"),
    # the launcher
    "a time limit": ([interrupted(0), lost(2)], TIMEOUT, None, "the launcher ended the job"),
    "an interrupt alone": ([interrupted(1), broken(0)], said(), 1, "KeyboardInterrupt"),
    # a host to which the launcher lost its connection
    "an ssh session": ([interrupted(0), interrupted(1)], disconnected("node02"), 2, SSH),
    "an ssh session, a rank of it first": (
        [interrupted(2), interrupted(0), lost(2), lost(0)],
        disconnected("node02"),
        2,
        SSH,
    ),
    "an ssh session, losses first": ([lost(0), interrupted(1)], disconnected("node02"), 2, SSH),
    "an ssh session, signals of the launcher": (
        [broken(0), lost(1), lost(2)],
        disconnected("node02", killed(1, 2), killed(0, 9), exited(3)),
        2,
        SSH,
    ),
    "an ssh session, another reason": (
        [interrupted(0)],
        disconnected("node02", reason="program x cannot be run"),
        2,
        SSH,
    ),
    "an ssh session of an unknown host": (
        [interrupted(0)],
        disconnected("node09"),
        None,
        "the launcher lost its connection to host node09: Connection to node09 closed",
    ),
    "an ssh session of a host without a name": (
        [interrupted(0)],
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
        [interrupted(0)],
        disconnected("node02", reason="the launcher ended the job", decisive=True),
        None,
        "the launcher ended the job",
    ),
    # a launcher's helper
    "a helper": ([orphaned(2), orphaned(3)], said(), 2, ORPHAN),
    "a helper after losses": ([lost(0), broken(1), orphaned(2)], said(), 2, ORPHAN),
    "a helper, and the launcher ends the others": (
        [orphaned(2), interrupted(0), lost(1)],
        said(killed(0, 2), killed(1, 15)),
        2,
        ORPHAN,
    ),
    "a helper that follows a kill": ([orphaned(0), lost(2)], said(killed(2)), 2, KILLED),
    "a helper that follows an exit": (
        [lost(2), orphaned(0)],
        said(exited(2, 7)),
        2,
        "exited with status 7",
    ),
    # interrupts explain nothing
    "interrupts with a reason": (
        [interrupted(0), interrupted(1)],
        LauncherReport(reason="host node02 cannot be reached by ssh"),
        None,
        "host node02 cannot be reached by ssh",
    ),
    "interrupts with what follows": (
        [interrupted(0)],
        LauncherReport(reason="a rank ended without MPI_Finalize", follows=True),
        0,
        "KeyboardInterrupt",
    ),
    "interrupts with an exit": (
        [interrupted(0), interrupted(1)],
        said(exited(0, 1), killed(3, 2), exited(2, 3)),
        2,
        "exited with status 3",
    ),
    "interrupts with their own exits": (
        [interrupted(0), interrupted(1)],
        said(exited(1, 1), killed(3, 2)),
        0,
        "KeyboardInterrupt",
    ),
    # words alone
    "only a status": ([], said(exited(1, 3)), 1, "exited with status 3"),
}


def evidence(seen, told, **more):
    names = {
        "describe_rank": who,
        "waited_for": frozenset(),
        "planned_hosts": HOSTS,
        "host": "login",
    }
    names["spellings"] = {rank: {host} for rank, host in HOSTS.items()}
    return Evidence(tuple(seen), told, **names | more)


@pytest.mark.parametrize(("seen", "words", "rank", "text"), TABLE.values(), ids=TABLE)
def test_the_cause_is_told_first_with_rank_and_host(seen, words, rank, text):
    fault = find_cause(evidence(seen, words))
    first = fault.message.partition("; as a consequence")[0]
    assert (fault.rank, fault.status) == (rank, "error")
    assert text in first
    assert first.startswith(who(rank) if rank is not None else text)
    errors = [piece for piece in seen if isinstance(piece, RankError) and piece.rank == rank]
    traces = [error.traceback for error in errors if text in error.message]
    assert fault.traceback == (traces[0] if traces else None)


def test_consequences_follow_the_cause_in_short():
    seen = [broken(0), broken(0), broken(1), broken(3), lost(2)]
    assert find_cause(evidence(seen, said(killed(2)))).message == (
        f"{who(2)}, {KILLED}; as a consequence {who(0)}: {MPI}; {who(1)}: {MPI}; 1 more rank"
    )


def test_two_own_errors_are_no_consequences_of_each_other():
    assert find_cause(evidence([own(1), own(0)], said())).message == f"{who(1)}: ValueError: no"


def test_more_lost_hosts_are_counted_behind_the_first():
    lines = tuple(LostConnection(host, f"no {host}") for host in ("node01", "node02", None))
    fault = find_cause(evidence([interrupted(2)], LauncherReport(lost=lines)))
    assert fault.message == (
        f"{who(0)}: the launcher lost its connection to this host and its 2 ranks, and to 1 more "
        f"host: no node01; as a consequence {who(2)}: KeyboardInterrupt"
    )


def test_other_ranks_of_a_helper_are_no_consequences():
    assert find_cause(evidence([orphaned(2), orphaned(3)], said())).message == f"{who(2)}: {ORPHAN}"


@pytest.mark.parametrize(
    ("words", "places", "rank", "start"),
    [
        (said(exited(2, 7)), HOSTS, 2, f"{who(2)}, exited with status 7 before it connected"),
        (
            said(RankEnd((), "node02", status=7)),
            HOSTS,
            2,
            f"{who(2)}, exited with status 7 before it connected",
        ),
        (said(RankEnd((), "node09", status=7)), HOSTS, 0, f"{who(0)}, {SILENT_DEATH}"),
    ],
    ids=["named", "by its host", "on another host"],
)
def test_a_rank_that_never_connected_is_the_cause_and_not_its_victims(words, places, rank, start):
    seen = [lost(0), lost(1)]
    given = evidence(
        seen, words, waited_for=frozenset({2, 3}), planned_hosts=places, stderr_text="no module x"
    )
    fault = find_cause(given)
    assert fault.rank == rank
    assert fault.message == f"{start}: no module x"


def test_a_world_of_another_size_is_a_mismatch_unless_a_rank_had_ended_before():
    mismatch = Fault("error", "node01 says it is rank 0 of 1", 0, missing=True)
    given = {"misfit": mismatch, "waited_for": frozenset({2})}
    assert find_cause(evidence([lost(0)], said(), **given)) == mismatch
    assert find_cause(evidence([lost(0)], said(exited(2, 7)), **given)).rank == 2


def test_a_rank_of_no_known_host_gets_the_launchers():
    given = evidence(
        [], said(exited(2, 7)), waited_for=frozenset({2}), describe_rank="rank {}, early".format
    )
    assert find_cause(given).message.startswith("rank 2 on node02, early, exited with status 7")


def test_a_launcher_that_was_killed_is_the_cause_unless_it_had_told_of_one():
    given = evidence([lost(2), lost(0)], said(), status=-9, launcher="hydra")
    assert find_cause(given).message == f"the launcher, hydra, {KILLED} on login"
    told = evidence([lost(2)], said(killed(2)), status=-9)
    assert find_cause(told).rank == 2


def test_a_quiet_rank_comes_before_those_that_cannot_reach_it():
    given = evidence([broken(0), lost(0)], said(aborted(0)), quiet={3: 4.0, 2: 5.2})
    fault = find_cause(given)
    assert fault.rank == 2
    assert fault.message.startswith(f"{who(2)}, silent for 5 s; as a consequence {who(0)}: {MPI}")


def test_nothing_known_is_no_cause():
    assert find_cause(evidence([], said())) is None


@pytest.mark.parametrize(
    ("words", "known"),
    [
        (said(), False),
        (said(killed(2, 2), exited(1)), False),
        (said(killed(2)), True),
        (disconnected("node02"), True),
        (TIMEOUT, True),
    ],
)
def test_a_signal_by_the_launchers_word_needs_no_more_waiting(words, known):
    assert is_settled(evidence([broken(0)], words)) is known


@pytest.mark.parametrize(
    ("message", "trace", "follows"),
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
def test_errors_that_another_ranks_end_brings_about_are_known(message, trace, follows):
    assert RankError(0, "rank 0", message, traceback=trace).follows is follows
