"""Facts about ranks: conversion to and from events."""

from dataclasses import fields

from spbench_core.events.rank_events import _FIELDS, RankFacts

FACTS = RankFacts(
    host="node01",
    pid=7,
    local_rank=1,
    device="cpu",
    cpus=(0, 1),
    nodes=(0,),
    cores=2,
    host_cpus=8,
    threads=2,
    fabric="tcp",
    versions={"python": "3.11.2", "torch": None},
)


def test_from_event_inverts_to_fields():
    assert RankFacts.from_event({"event": "ready", **FACTS.to_fields()}, "elsewhere") == FACTS


def test_lists_of_an_event_become_tuples():
    event = FACTS.to_fields() | {"cpus": [0, 1], "nodes": [0]}
    assert RankFacts.from_event(event, "elsewhere") == FACTS


def test_accepts_events_of_older_versions_with_fewer_facts():
    facts = RankFacts.from_event({"cpus": [0], "device": "cpu"}, "node02")
    assert (facts.host, facts.cpus, facts.nodes, facts.cores) == ("node02", (0,), (), None)


def test_each_fact_is_a_field_of_the_event():
    assert {fact.name for fact in fields(RankFacts)} <= _FIELDS["ready"].keys()
