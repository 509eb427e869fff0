"""Tests of parsing recorded messages of launchers."""

from __future__ import annotations

import pytest

from spbench.launch.detect import load_launcher
from spbench.launch.launcher import LauncherReport, RankEnd

MPIRUN_RSH = [
    (
        "[vm:mpispawn_0][child_handler] MPI process (rank: 2, pid: 77) terminated with signal 9 "
        "-> abort job\n[vm:mpispawn_0][child_handler] MPI process (rank: 1, pid: 76) exited with "
        "status 1\n",
        "rank 2 on vm was killed by signal 9 (SIGKILL)",
    ),
    (
        "[vm:mpispawn_1][child_handler] MPI process (rank: 2, pid: 77) exited with status 3\n",
        "rank 2 on vm exited with status 3",
    ),
    (
        "application called MPI_Abort(MPI_COMM_WORLD, 7) - process 2\n"
        "[vm:mpispawn_1][child_handler] MPI process (rank: 2, pid: 77) exited with status 7\n",
        "rank 2 called MPI_Abort with code 7",
    ),
    (
        "[vm:mpispawn_0][spawn_processes] Failed to execvp() '/no/such/prog': No such file or "
        "directory (2)\n[vm:mpispawn_0][child_handler] MPI process (rank: 0, pid: 7) exited with "
        "status 1\n",
        "program /no/such/prog cannot be run on vm: No such file or directory",
    ),
    (
        "[vm:mpirun_rsh][child_handler] Error in init phase, aborting! "
        "(0/2 mpispawn connections)\n",
        "0 of 2 hosts started: check ssh to each host, that MVAPICH2 is installed there, "
        "and that the working folder exists there",
    ),
    (
        "Unexpected End-Of-File on file descriptor 7. MPI process died?\n",
        "a rank ended without MPI_Finalize",
    ),
    (
        "Timeout during client startup.\n",
        "some host did not start within launch.start_timeout: check ssh to each host",
    ),
    (
        "Timeout [TIMEOUT = 4 seconds].\n",
        "mpirun_rsh ended the job after 4 s, its MPIEXEC_TIMEOUT",
    ),
]

HYDRA = [
    (
        "\n===================\n=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n"
        "=   PID 4624 RUNNING AT vm\n=   EXIT CODE: 9\n=   CLEANING UP REMAINING PROCESSES\n"
        "===================\nYOUR APPLICATION TERMINATED WITH THE EXIT STRING: Killed "
        "(signal 9)\n",
        "a rank on vm was killed by signal 9 (SIGKILL)",
    ),
    (
        "=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n"
        "=   PID 4624 RUNNING AT vm\n=   EXIT CODE: 3\n",
        "a rank on vm exited with status 3",
    ),
    (
        "Abort(7) on node 1 (rank 1 in comm 0): application called MPI_Abort(MPI_COMM_WORLD, 7) "
        "- process 1\n",
        "rank 1 called MPI_Abort with code 7",
    ),
    (
        "[proxy:0@vm] HYDU_create_process (/mpich-5.0.2/src/pm/hydra/lib/utils/launch.c:73): "
        "execvp error on file /no/such/prog (No such file or directory)\n",
        "program /no/such/prog cannot be run on vm: No such file or directory",
    ),
    (
        "ssh: Could not resolve hostname nosuchhost: Name or service not known\n"
        "[mpiexec@vm] ui_cmd_cb (pmiserv_pmci.c:51): Launch proxy failed.\n",
        "host nosuchhost cannot be reached: its name does not resolve",
    ),
    (
        "[mpiexec@vm] ui_cmd_cb (pmiserv_pmci.c:51): Launch proxy failed.\n",
        "a host of the job cannot be started: check ssh to each host, and MPI there",
    ),
    (
        "[proxy:1@node02] HYDU_sock_connect (/mpich/src/pm/hydra/lib/utils/sock.c:130): unable to "
        "connect to server login at port 38121 (Connection refused)\n"
        "[mpiexec@login] ui_cmd_cb (pmiserv_pmci.c:51): Launch proxy failed.\n",
        "a host cannot reach mpiexec at login: name an address of this machine that it reaches, "
        "launch.args: [-localhost, ADDRESS], or with Intel MPI [-iface, INTERFACE]",
    ),
    (
        "[mpiexec@vm] match_arg (args.c:166): unrecognized argument nosuchopt\n",
        "mpiexec does not know the option -nosuchopt of launch.args",
    ),
]

OPENMPI = [
    (
        "prterun noticed that process rank 1 with PID 4548 on node vm exited on\nsignal 9 "
        "(Killed).\n",
        "rank 1 on vm was killed by signal 9 (SIGKILL)",
    ),
    (
        "   Process name: [prterun-vm-4536@1,1]\n   Exit code:    3\n",
        "rank 1 exited with status 3",
    ),
    (
        "MPI_ABORT was invoked on rank 1 in communicator MPI_COMM_WORLD\n"
        "  Proc: [[16492,1],1]\n  Errorcode: 7\n",
        "rank 1 called MPI_Abort with code 7",
    ),
    (
        "prterun was unable to launch the specified application as it could not\n"
        "access an executable:\n\n   Executable: /no/such/prog\n   Node: vm\n\n",
        "program /no/such/prog cannot be run on vm",
    ),
    (
        "ssh: connect to host 10.9.9.9 port 22: Connection refused\r\n---\n"
        "A daemon failed to report back after being spawned.\n  Remote host:   10.9.9.9\n",
        "host 10.9.9.9 cannot be reached by ssh: Connection refused",
    ),
    (
        "A daemon failed to report back after being spawned. This could\n  Local host:    vm\n"
        "  Remote host:   node02\n  Daemon exit status: 255\n",
        "host node02 cannot be reached by ssh, or Open MPI cannot start there",
    ),
    (
        "There are not enough slots available in the system to satisfy the 5\nslots\n",
        "Open MPI has fewer than 5 slots: state slots in a hostfile, or lower the ranks",
    ),
    (
        "processes to more cpus than are available in your allocation:\n",
        "more ranks than cores are bound to cores: set launch.bind to none",
    ),
    (
        "[vm:07868] PMIX ERROR: PMIX_ERR_FILE_OPEN_FAILURE in file ptl_base_listener.c\n---\n"
        "The PMIx server's listener thread failed to start. We cannot\ncontinue.\n",
        "mpirun could not open its files: if prte_tmpdir_base is set, remove the folder ompi.PID "
        "of a killed mpirun there; otherwise see that TMPDIR can be written",
    ),
    ("\n  Option: --nosuchopt\n", "mpirun does not know the option --nosuchopt of launch.args"),
    (
        "root@node02: Permission denied (publickey,password).\n",
        "host node02 refuses ssh without a password: give it this account's key",
    ),
    (
        "Host key verification failed.\n",
        "ssh does not know the key of a host: connect to each host once by hand",
    ),
]

SRUN = [
    (
        "srun: error: n1: task 1: Exited with exit code 3\n"
        "srun: error: n1: tasks 0,2: Terminated\n",
        "rank 1 on n1 exited with status 3",
    ),
    (
        "srun: error: n1: task 1: Killed\nsrun: error: n1: tasks 0,2: Terminated\n",
        "rank 1 on n1 was killed by signal 9 (SIGKILL)",
    ),
    (
        "srun: error: n1: tasks 0-1: Segmentation fault (core dumped)\n",
        "ranks 0, 1 on n1 were killed by signal 11 (SIGSEGV)",
    ),
    (
        "slurmstepd-n1: error: execve(): /no/such: No such file or directory\n"
        "srun: error: n1: tasks 0-1: Exited with exit code 2\n",
        "program /no/such cannot be run on n1: No such file or directory",
    ),
    (
        "srun: error: Unable to allocate resources: Invalid node name specified\n",
        "Slurm gives no resources: Invalid node name specified",
    ),
    (
        "srun: unrecognized option '--nosuch'\n",
        "srun does not know the option --nosuch of launch.args",
    ),
    (
        "srun: error: Invalid MPI type 'pmix', --mpi=list for acceptable types\n",
        "this Slurm cannot use --mpi=pmix",
    ),
    (
        "srun: error: s_p_parse_file: cannot stat file /nonexist: No such file or directory, "
        "retrying in 1sec up to 60sec\n",
        "Slurm's controller cannot be reached: check SLURM_CONF and slurmctld",
    ),
    (
        "srun: job 9 queued and waiting for resources\n",
        "the job waits in Slurm's queue for free nodes",
    ),
]


@pytest.mark.parametrize(
    ("launcher", "stderr", "message"),
    [
        (name, *row)
        for name, rows in (
            ("mpirun_rsh", MPIRUN_RSH),
            ("hydra", HYDRA),
            ("openmpi", OPENMPI),
            ("srun", SRUN),
        )
        for row in rows
    ],
)
def test_recorded_output_is_summarized(launcher, stderr, message):
    assert load_launcher(launcher).parse_output(f"noise of a rank\n{stderr}").message == message


@pytest.mark.parametrize("launcher", ["mpirun_rsh", "hydra", "openmpi", "srun"])
def test_noise_is_not_explained(launcher):
    text = "Traceback (most recent call last):\nValueError: rank 3 is wrong\n"
    assert load_launcher(launcher).parse_output(text).message is None


CANCELLED = "slurmstepd-n1: error: *** STEP 5.0 ON n1 CANCELLED AT 2026-11-23T00:32:25 ***\n"
SPAWN = "[n2:mpispawn_1][child_handler] MPI process (rank: 2, pid: 7)"


@pytest.mark.parametrize(
    ("launcher", "output", "ends", "killed"),
    [
        (
            "mpirun_rsh",
            f"{SPAWN} terminated with signal 2 -> abort job\n"
            f"torn {SPAWN.replace('rank: 2', 'rank: 3')} terminated with signal 11 -> abort job\n",
            [RankEnd((2,), "n2", signal=2), RankEnd((3,), "n2", signal=11)],
            [3],
        ),
        (
            "mpirun_rsh",
            "MPI process (rank: 1, pid: 7) terminated with signal 15 -> abort job\n",
            [RankEnd((1,), None, signal=15)],
            [],
        ),
        (
            "srun",
            "application called MPI_Abort(MPI_COMM_WORLD, 1) - process 1\n"
            "srun: error: n1: tasks 0-1: Killed\n",
            [
                RankEnd((1,), None, status=1, aborted=True),
                RankEnd((0, 1), "n1", signal=9),
            ],
            [],
        ),
        (
            "srun",
            "srun: error: n2: task 2: Out Of Memory\nsrun: error: n1: tasks 0-1: Killed\n",
            [RankEnd((2,), "n2", signal=9), RankEnd((0, 1), "n1", signal=9)],
            [2, 0, 1],
        ),
        (
            "hydra",
            "Abort(1) on node 1 (rank 1 in comm 0): application called MPI_Abort(comm, 1) - "
            "process 1\n=   PID 4624 RUNNING AT vm\n=   EXIT CODE: 9\n====\nYOUR APPLICATION "
            "TERMINATED WITH THE EXIT STRING: Killed (signal 9)\n",
            [
                RankEnd((1,), None, status=1, aborted=True),
                RankEnd((1,), None, status=1, aborted=True),
                RankEnd((), "vm", signal=9, status=9),
            ],
            [],
        ),
    ],
    ids=["SIGINT of its own", "SIGTERM of its own", "aborted", "no memory", "Hydra's abort"],
)
def test_rank_ends_differ_from_kills_by_the_launcher(launcher, output, ends, killed):
    report = load_launcher(launcher).parse_output(output)
    assert list(report.ends) == ends
    assert [rank for end in report.killed for rank in end.ranks] == killed


@pytest.mark.parametrize(
    ("launcher", "output", "reason"),
    [
        (
            "mpirun_rsh",
            f"Timeout [TIMEOUT = 4 seconds].\n{SPAWN} terminated with signal 9 -> abort job\n",
            "mpirun_rsh ended the job after 4 s, its MPIEXEC_TIMEOUT",
        ),
        (
            "mpirun_rsh",
            "[login:mpirun_rsh][signal_processor] Caught signal 15, killing job\n",
            "mpirun_rsh got signal 15 (SIGTERM) and ended the job",
        ),
        (
            "srun",
            "slurmstepd-n1: error: *** STEP 5.0 ON n1 CANCELLED AT 2026-11-22T10:00:00 DUE TO TIME "
            "LIMIT ***\nsrun: error: n1: tasks 0-1: Killed\n",
            "Slurm cancelled the job on n1: time limit",
        ),
        (
            "srun",
            f"srun: Job step aborted: Waiting up to 4 seconds for job step to finish.\n{CANCELLED}"
            "srun: error: n2: task 1: Terminated\n",
            "Slurm cancelled the job on n1: somebody ended it there, as scancel does",
        ),
    ],
)
def test_reason_of_the_launcher_is_decisive(launcher, output, reason):
    report = load_launcher(launcher).parse_output(output)
    assert (report.reason, report.decisive) == (reason, True)


@pytest.mark.parametrize(
    ("first", "rank"),
    [
        ("srun: error: n1: task 0: Killed\n", 0),
        ("application called MPI_Abort(MPI_COMM_WORLD, 7) - process 1\n", 1),
    ],
    ids=["killed", "aborted"],
)
def test_cancelled_step_is_caused_by_the_ended_rank(first, rank):
    report = load_launcher("srun").parse_output(f"{first}{CANCELLED}")
    assert (report.reason, report.decisive) == (None, False)
    assert report.ends[0].ranks == (rank,)


def test_open_mpi_reports_survivors_of_another_rank():
    # recorded with Open MPI 5.0.11 after rank 2, on a third host, was killed
    output = (
        "[n2:00000] *** An error occurred in Socket closed\n"
        "[n2:00000] *** reported by process [1141112833,1]\n"
        "[n2:00000] *** on a NULL communicator\n"
        "[n2:00000] *** Unknown error\n"
        "[n2:00000] *** MPI_ERRORS_ARE_FATAL (processes in this communicator will now abort,\n"
        "[n2:00000] ***    and MPI will try to terminate your MPI job as well)\n"
    )
    report = load_launcher("openmpi").parse_output(output)
    assert report == LauncherReport(survivors=frozenset({1}))


PRTE_LOSS = """\
--------------------------------------------------------------------------
PRTE has lost communication with a remote daemon.

  HNP daemon   : [prterun-login-31144@0,0] on node login
  Remote daemon: [prterun-login-31144@0,1] on node node02

This is usually due to either a failure of the TCP network
connection to the node, or possibly an internal failure of
the daemon itself. We cannot recover from this failure, and
therefore will terminate the job.
--------------------------------------------------------------------------
"""


@pytest.mark.parametrize("launcher", ["mpirun_rsh", "openmpi"])
@pytest.mark.parametrize(
    ("line", "host"),
    [
        # recorded with OpenSSH 9.2 after the sshd of its session was killed
        ("Connection to node02 closed by remote host.\r", "node02"),
        ("rank's own text Connection to 10.0.0.2 closed by remote host.", "10.0.0.2"),
        ("Read from remote host node02: Connection reset by peer\r", "node02"),
        ("Timeout, server node02 not responding.\r", "node02"),
        ("client_loop: send disconnect: Broken pipe\r", None),
        ("Write failed: Broken pipe", None),
        ("packet_write_wait: Connection to 10.0.0.2 port 22: Broken pipe\r", "10.0.0.2"),
        ("ssh_dispatch_run_fatal: Connection to 10.0.0.2 port 22: Broken pipe", "10.0.0.2"),
        ("Connection reset by 10.0.0.2 port 22", "10.0.0.2"),
        ("Connection closed by 10.0.0.2 port 22", "10.0.0.2"),
        ("Connection closed by UNKNOWN port 65535", None),
        ("Received disconnect from 10.0.0.2 port 22:11: shutting down", "10.0.0.2"),
        ("kex_exchange_identification: read: Connection reset by peer", None),
        ("ssh_exchange_identification: Connection closed by remote host", None),
    ],
)
def test_ssh_reports_a_lost_connection(launcher, line, host):
    report = load_launcher(launcher).parse_output(f"noise of a rank\n{line}\nmore noise\n")
    (connection,) = report.lost
    assert connection.host == host
    assert line.strip().rstrip(".").endswith(connection.message)


def test_lost_ssh_session_is_not_a_lost_host_under_hydra(messages):
    report = load_launcher("hydra").parse_output("Connection to node02 closed by remote host.\r\n")
    assert report.lost == ()
    assert not report.decisive
    messages.check(report.reason)


@pytest.mark.parametrize(
    ("launcher", "output", "host"),
    [
        ("openmpi", PRTE_LOSS, "node02"),
        ("openmpi", PRTE_LOSS.replace("\n", "\r\n"), "node02"),
        ("openmpi", PRTE_LOSS.replace("PRTE", "ORTE"), "node02"),
        ("srun", "srun: error: Node failure on node02\n", "node02"),
        (
            "srun",
            "srun: error: step_launch_notify_io_failure: aborting, io error with slurmstepd on "
            "node 1\n",
            None,
        ),
        ("srun", "srun: error: Aborting, io error and missing step on node 1\n", None),
    ],
)
def test_launcher_reports_a_lost_host(launcher, output, host):
    assert [
        connection.host for connection in load_launcher(launcher).parse_output(output).lost
    ] == [host]


def test_lost_hosts_are_reported_once_named_ones_first():
    output = (
        "client_loop: send disconnect: Broken pipe\n"
        "Connection to node02 closed by remote host.\r\n"
        "Connection to node01 closed by remote host.\r\n"
        "Connection to node02 closed by remote host.\r\n"
    )
    lost = load_launcher("mpirun_rsh").parse_output(output).lost
    assert [connection.host for connection in lost] == ["node02", "node01", None]


@pytest.mark.parametrize("launcher", ["mpirun_rsh", "hydra", "openmpi", "srun"])
@pytest.mark.parametrize(
    "line",
    [
        # ssh -t prints the first one at the end of each session; ranks print the others
        "Connection to node02 closed.",
        "ConnectionResetError: [Errno 104] Connection reset by peer",
        "RuntimeError: [../gloo/pair.cc:534] Connection closed by peer [10.0.0.2]:1234",
        "BrokenPipeError: [Errno 32] Broken pipe",
        "ssh: connect to host node02 port 22: No route to host",
    ],
)
def test_other_messages_report_no_lost_connection(launcher, line):
    assert load_launcher(launcher).parse_output(f"{line}\n").lost == ()


def test_consequence_of_a_rank_end_is_marked():
    output = "Unexpected End-Of-File on file descriptor 7. MPI process died?\n"
    assert load_launcher("mpirun_rsh").parse_output(output).follows
    assert not load_launcher("mpirun_rsh").parse_output("Timeout during client startup.\n").follows
