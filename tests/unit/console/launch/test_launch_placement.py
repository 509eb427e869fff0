"""Tests of block placement and oversubscription."""

from __future__ import annotations

import os
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spbench.errors import MissingError
from spbench.launch.hosts.hosts import Host, Hosts, parse_hosts
from spbench.launch.hosts.names import is_local
from spbench.launch.launcher import RankBlock
from spbench.launch.placement import count_slots, is_oversubscribed, place_ranks


def test_hosts_are_filled_in_file_order():
    assert place_ranks(parse_hosts("b:2,a:4"), 5) == (RankBlock("b", 2), RankBlock("a", 3))
    assert place_ranks(parse_hosts("b:2,a:4"), 2) == (RankBlock("b", 2),)
    assert place_ranks(parse_hosts("a,b,c"), 2) == (RankBlock("a", 1), RankBlock("b", 1))
    assert place_ranks(None, 7) == ()


def test_ranks_per_host_overrides_slots():
    hosts = Hosts((Host("a", 1), Host("b", 8)))
    assert place_ranks(hosts, 4, ranks_per_host=2) == (RankBlock("a", 2), RankBlock("b", 2))


def test_adapters_of_a_host_share_its_ranks():
    hosts = parse_hosts("a:2:mlx5_0,a:2:mlx5_1")
    assert place_ranks(hosts, 4) == (RankBlock("a", 2, "mlx5_0"), RankBlock("a", 2, "mlx5_1"))
    assert place_ranks(hosts, 3, 3) == (RankBlock("a", 2, "mlx5_0"), RankBlock("a", 1, "mlx5_1"))
    assert count_slots(hosts, 3) == 3


def test_error_for_too_few_slots_has_both_numbers(messages):
    with pytest.raises(MissingError) as raised:
        place_ranks(parse_hosts("node[01-02]:2"), 8)
    assert raised.value.exit_code == 3
    messages.check(str(raised.value))
    with messages.raises(MissingError):
        place_ranks(parse_hosts("node[01-02]:20"), 8, 3)


@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=6),
    st.none() | st.integers(1, 9),
    st.integers(1, 40),
)
def test_every_rank_is_placed_once(slots, ranks_per_host, np):
    hosts = Hosts(tuple(Host(f"n{index}", count) for index, count in enumerate(slots)))
    limits = [ranks_per_host or count for count in slots]
    if sum(limits) < np:
        with pytest.raises(MissingError):
            place_ranks(hosts, np, ranks_per_host)
        return
    blocks = place_ranks(hosts, np, ranks_per_host)
    assert sum(block.count for block in blocks) == np
    assert [block.count for block in blocks[:-1]] == limits[: len(blocks) - 1]


def test_detects_oversubscription(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    assert not is_oversubscribed(None, 2)
    assert is_oversubscribed(None, 3)
    assert is_oversubscribed(parse_hosts("localhost:4,127.0.0.2:4"), 3)
    assert not is_oversubscribed(parse_hosts("localhost:4,node01:4"), 8)


def test_recognizes_local_names(monkeypatch):
    monkeypatch.setattr(socket, "gethostname", lambda: "box7")
    for name in ("localhost", "127.0.0.1", "127.1.2.3", "::1", "box7"):
        assert is_local(name)
    for name in ("box70", "node01", "128.0.0.1", "127.evil.org", "1270.0.0.1"):
        assert not is_local(name)
