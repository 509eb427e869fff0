"""Tests of hostfiles in four dialects, --hosts lists, and their errors."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spbench.errors import UsageError
from spbench.launch.detect import load_launcher
from spbench.launch.hosts.hosts import Host, Hosts, parse_hosts, read_hostfile
from spbench.launch.hosts.names import fold
from spbench.launch.launcher import RankBlock
from support.paths import ROOT


def read_hosts(tmp_path: Path, text: str | bytes) -> tuple[Host, ...]:
    path = tmp_path / "hosts"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_hostfile(path).entries


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("n1\n", [Host("n1")]),
        ("n1:4\n", [Host("n1", 4)]),
        ("n1:4:mlx5_0\n", [Host("n1", 4, "mlx5_0")]),
        ("n1:4:mlx5_0:1\n", [Host("n1", 4, "mlx5_0:1")]),
        ("n1:mlx5_0\n", [Host("n1", None, "mlx5_0")]),
        ("n1:mlx5_0:2\n", [Host("n1", None, "mlx5_0:2")]),
        ("n1:4 binding=user:0\n", [Host("n1", 4)]),
        ("n1 slots=4\n", [Host("n1", 4)]),
        ("n1 slots = 4 max_slots = 8\n", [Host("n1", 4)]),
        ("n1 max-slots=8\n", [Host("n1")]),
        ("node[01-03]\n", [Host("node01"), Host("node02"), Host("node03")]),
        ("node[1,3]:2\n", [Host("node1", 2), Host("node3", 2)]),
        ("a[1-2]:2, b\n", [Host("a1", 2), Host("a2", 2), Host("b")]),
        ("r[1-2]n[1-2]\n", [Host("r1n1"), Host("r1n2"), Host("r2n1"), Host("r2n2")]),
        ("n[1-9/4]\n", [Host("n1"), Host("n5"), Host("n9")]),
        ("::1\n[fe80::2]:3\n", [Host("::1"), Host("fe80::2", 3)]),
        ("10.0.0.1:2\n", [Host("10.0.0.1", 2)]),
        ("# all\n\n  n1:2 # two\n", [Host("n1", 2)]),
        ("n1:2\r\nn2\r\n", [Host("n1", 2), Host("n2")]),
        ("\ufeffn1:2", [Host("n1", 2)]),
        ("n1\nn2\nn1\nn2:3\n", [Host("n1", 2), Host("n2", 4)]),
        ("n1:2:mlx5_0\nn1:2:mlx5_1\n", [Host("n1", 2, "mlx5_0"), Host("n1", 2, "mlx5_1")]),
    ],
)
def test_reads_every_dialect(tmp_path, text, hosts):
    assert read_hosts(tmp_path, text) == tuple(hosts)


@pytest.mark.parametrize("name", ["mvapich2", "hydra", "openmpi", "slurm", "local"])
def test_reads_example_hostfiles(name):
    hosts = read_hostfile(ROOT / "hostfiles" / f"{name}.hosts")
    slots = {"mvapich2": 11, "hydra": 9, "openmpi": 9, "slurm": 20, "local": 4}
    assert hosts.slots == slots[name]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("n1:0", "bad count '0' in 'n1:0'; a count is a whole number from 1 up"),
        ("n1:-2", "bad count '-2' in 'n1:-2'; a count is"),
        ("n1:four", "bad count 'four' in 'n1:four'; a line is HOST, HOST:COUNT"),
        ("n1:", "bad count '' in 'n1:'"),
        ("n1:1.5", "bad count '1.5'"),
        ("n1:99999999999", "bad count '99999999999'"),
        ("n1:²", "bad count '²'"),
        ("n1:2:3", "bad HCA '3' in 'n1:2:3'; an HCA is written like mlx5_0"),
        ("n1:2:mlx5_0:x", "bad HCA port 'x'"),
        ("n1:2:mlx5_0:1:1", "too many fields in 'n1:2:mlx5_0:1:1'"),
        ("n1 slots=0", "bad count '0' in 'slots=0'"),
        ("n1 slots", "unknown word 'slots'"),
        ("n1 slot=3", "unknown word 'slot=3'"),
        ("n1 n2", "unknown word 'n2'; a line is"),
        ("n1:2 slots=2", "'n1:2' has a count and slots=2; give one of the two"),
        ("n1 slots=4 max_slots=2", "max_slots=2 is below slots=4"),
        (":3", "a host name is missing in ':3'"),
        ("a,,b", "a host name is missing in 'a,,b'"),
        ("-oProxyCommand=x", "'-oProxyCommand=x' is neither a host name nor a list"),
        ("node[01-04", "'node[01-04' is neither a host name nor a list"),
        ("node[]", "'node[]' is neither"),
        ("node[a-b]", "'node[a-b]' is neither"),
        ("@compute", "'@compute' is neither"),
        ("n1&n2", "'n1&n2' is neither"),
        ("node[4-1]", "the range 4-1 of 'node[4-1]' runs backwards"),
        ("node[1-4/0]", "the range 1-4/0 of 'node[1-4/0]' has a step of 0"),
        ("node[1-100001]", "more than 100000 hosts; check the ranges"),
        ("a[1-999]b[1-999]c[1-999999999]", "more than 100000 hosts; check the ranges"),
        ("n[1-60000],m[1-60000]", "more than 100000 hosts; check the ranges"),
    ],
)
def test_bad_line_is_reported_with_its_position(tmp_path, line, message):
    with pytest.raises(UsageError) as raised:
        read_hosts(tmp_path, f"good:1\n{line}\n")
    assert raised.value.exit_code == 2
    assert str(raised.value).startswith(f"{tmp_path}/hosts:2: error: ")
    assert message in str(raised.value)


def test_all_bad_lines_are_reported_at_once(tmp_path):
    with pytest.raises(UsageError) as raised:
        read_hosts(tmp_path, "a:0\nb\n# c:0\nd:x\r\ne f\n")
    positions = [line.split(": error: ")[0] for line in str(raised.value).splitlines()]
    assert positions == [f"{tmp_path}/hosts:{number}" for number in (1, 4, 5)]


@pytest.mark.parametrize("text", ["", "\n\n", "# only words\n"])
def test_rejects_an_empty_hostfile(tmp_path, text, messages):
    with messages.raises(UsageError):
        read_hosts(tmp_path, text)


def test_rejects_an_unreadable_file(tmp_path, messages):
    with messages.raises(UsageError):
        read_hostfile(tmp_path / "none")
    with messages.raises(UsageError):
        read_hostfile(tmp_path)
    with messages.raises(UsageError):
        read_hosts(tmp_path, b"\xff\xfe n1\n")


def test_parses_a_list_of_hosts(messages):
    hosts = parse_hosts("node[01-08],other:4")
    assert hosts.names == (*(f"node0{n}" for n in range(1, 9)), "other")
    assert hosts.slots == 12
    assert hosts.fold() == "node[01-08],other"
    with messages.raises(UsageError):
        parse_hosts(" ")
    with messages.raises(UsageError):
        parse_hosts("a:x")


def test_excludes_hosts(messages):
    hosts = parse_hosts("node[01-04]:2")
    assert hosts.exclude("node[02-03]").names == ("node01", "node04")
    with messages.raises(UsageError):
        hosts.exclude("nod01")
    with messages.raises(UsageError):
        hosts.exclude("node01:2")
    with messages.raises(UsageError):
        hosts.exclude("node[01-04]")


def test_fold_does_not_merge_addresses():
    assert fold(["::1", "n1"]) == "::1, n1"
    assert fold(["n1"]) == "n1"


def test_number_of_reported_errors_is_limited(tmp_path, messages):
    path = tmp_path / "hosts"
    path.write_text(f"node01 {'x' * 5000}\n" * 1_000)
    with pytest.raises(UsageError) as raised:
        read_hostfile(path)
    lines = str(raised.value).splitlines()
    assert len(lines) == 51
    assert lines[0].startswith(f"{path}:1: error: unknown word 'xxx")
    messages.check(lines[-1])
    assert len(str(raised.value)) < 60_000


@pytest.mark.parametrize("text", ["node[0-999999999/500000000]", "node[05-06,09]1000000000"])
def test_rejects_huge_ranges(text, messages):
    with messages.raises(UsageError):
        parse_hosts(text)


def test_host_names_have_at_most_253_characters(messages):
    assert parse_hosts("n" * 253).names == ("n" * 253,)
    with messages.raises(UsageError):
        parse_hosts("n" * 254)


def test_rejects_an_endless_hostfile(messages):
    with messages.raises(UsageError):
        read_hostfile(Path("/dev/zero"))


NAMES = st.from_regex(r"[a-z][a-z0-9-]{0,8}", fullmatch=True)
PLACEMENTS = st.lists(
    st.builds(
        RankBlock,
        NAMES,
        st.integers(1, 500),
        st.none() | st.from_regex(r"mlx[0-9]_[0-9]{1,2}", fullmatch=True),
    ),
    min_size=1,
    max_size=8,
    unique_by=lambda block: (block.host, block.hca),
)


@pytest.mark.slow
@given(PLACEMENTS, st.sampled_from(["mpirun_rsh", "hydra", "openmpi"]))
def test_written_hostfile_round_trips(tmp_path_factory, placement, name):
    text = load_launcher(name).hostfile(placement)
    assert text is not None
    assert text.endswith("\n")
    path = tmp_path_factory.getbasetemp() / "written"
    path.write_text(text)
    hosts = read_hostfile(path)
    if name == "mpirun_rsh":
        assert hosts.entries == tuple(
            Host(block.host, block.count, block.hca) for block in placement
        )
    counts: dict[str, int] = {}
    for block in placement:
        counts[block.host] = counts.get(block.host, 0) + block.count
    read_counts: dict[str, int] = {}
    for host in hosts.entries:
        read_counts[host.name] = read_counts.get(host.name, 0) + (host.slots or 1)
    assert list(read_counts.items()) == list(counts.items())


@given(st.lists(NAMES, min_size=1, max_size=8, unique=True))
def test_folded_list_round_trips(names):
    assert sorted(parse_hosts(fold(names)).names) == sorted(names)


def test_hosts_without_a_count_have_one_slot():
    assert Hosts((Host("a"), Host("b", 3))).slots == 4
