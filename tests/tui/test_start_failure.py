"""The explanation of a failed start of a run, in terms of keys of the TUI."""

import pytest

from spbench.tui.start_failure import describe_request, explain_start_failure


@pytest.mark.parametrize(
    ("args", "message", "key"),
    [
        (
            ("a.yaml", "--assume", "mvapich2-2.3.7"),
            "--assume mvapich2-2.3.7 shows launch lines: use it with --dry-run or spbench command",
            "L chooses a launcher that is installed here",
        ),
        (
            ("a.yaml", "--launcher", "srun"),
            "launcher srun is not installed: installed: openmpi",
            "L chooses another launcher",
        ),
        (
            ("a.yaml", "--hosts", "node1:2"),
            "4 ranks need 4 slots, and --hosts has 2 on node1: add hosts or slots",
            "H or the Hosts page chooses other hosts",
        ),
        (("a.yaml",), "no space left", "fix the reason"),
        (("cases/x.yaml",), "/home/u/cases/x.yaml:3: unknown key 'a'", "fix the reason"),
        (("hosts.yaml",), "hosts.yaml:3:1: unknown key 'a'", "fix the reason"),
        (("a.yaml",), "no case matches '/launcher/x'", "choose other cases"),
    ],
)
def test_remedy_names_keys_and_no_options(args, message, key):
    failure = explain_start_failure(args, message)
    assert key in failure.remedy
    assert "--" not in failure.remedy
    assert "--" not in failure.reason


def test_request_is_described_in_words():
    assert describe_request(("--failed", "20261130-halo")) == "the failed cases of 20261130-halo"
    args = ("suites/a.yaml", "--case", "x", "--case", "y", "--hostfile", "rack.hosts")
    assert describe_request(args) == "a.yaml, 2 cases, on rack.hosts"
