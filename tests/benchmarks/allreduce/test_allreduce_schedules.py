"""Every allreduce schedule, played by all ranks at once: the result, the messages, the counts."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spbench_workers.benchmarks.allreduce.model.critical_path import compute_path
from spbench_workers.benchmarks.allreduce.model.formulas import compute_costs
from spbench_workers.benchmarks.allreduce.verification.expected import compute_depth
from spbench_workers.collectives.names import MUJI_SIZES
from spbench_workers.collectives.plan import ALGORITHMS, refusal, schedule
from spbench_workers.collectives.schedule import ScheduleCosts, ScheduleStep, Transfer, count_costs

SIZES = [*range(1, 10), 12, 16]
COUNTS = [0, 1, 2, 3, 7, 13, 32]


class Played:
    """A run of all ranks' schedules, on symbols instead of numbers.

    A value is a number that stands for an expression: a leaf is one element of one rank, a sum is
    the unordered pair of its operands. Equal numbers are then equal bits, whatever is added.

    A rank ends a step when each of its transfers has its other side in the step at which the other
    rank stands, and those ranks end theirs too. A message needs both sides at once, as in a
    rendezvous: what runs here to its end never waits for a buffer.
    """

    def __init__(self, schedules, count):
        self._sums = {}
        self._leaves = []
        self.values = [
            [self._new(Counter({(rank, element): 1})) for element in range(count)]
            for rank in range(len(schedules))
        ]
        self._schedules = schedules
        self._at = [0] * len(schedules)
        while together := self._together():
            self._play(together)
        ends = [len(steps) for steps in schedules]
        assert self._at == ends, f"stuck: ranks are at steps {self._at} of {ends}"

    def leaves(self, rank, element):
        return self._leaves[self.values[rank][element]]

    def _new(self, leaves):
        self._leaves.append(leaves)
        return len(self._leaves) - 1

    def _sum(self, a, b):
        pair = (min(a, b), max(a, b))
        if pair not in self._sums:
            self._sums[pair] = self._new(self._leaves[a] + self._leaves[b])
        return self._sums[pair]

    def _together(self):
        """The steps, by rank, that can end now."""
        able = {
            rank: steps[at]
            for rank, (steps, at) in enumerate(zip(self._schedules, self._at, strict=True))
            if at < len(steps)
        }
        while unable := [rank for rank in able if not _meets(rank, able)]:
            for rank in unable:
                del able[rank]
        return able

    def _play(self, together):
        before = {rank: list(self.values[rank]) for rank in together}
        for rank, step in together.items():
            _check(step)
            for transfer in step.receives:
                self._take(rank, transfer, before[transfer.peer])
            self._at[rank] += 1

    def _take(self, rank, transfer, sent):
        mine = self.values[rank]
        for element in range(transfer.first, transfer.last):
            came = sent[element]
            mine[element] = self._sum(mine[element], came) if transfer.add else came


def _meets(rank, able):
    """True if each transfer of a rank's step has just one other side, of the same elements."""
    step = able[rank]
    sides = [(transfer, "receives") for transfer in step.sends]
    sides += [(transfer, "sends") for transfer in step.receives]
    return all(
        transfer.peer in able
        and able[transfer.peer].round == step.round
        and [(a.first, a.last) for a in getattr(able[transfer.peer], side) if a.peer == rank]
        == [(transfer.first, transfer.last)]
        for transfer, side in sides
    )


def _check(step):
    """Faults of a step: two messages to one rank, or replacing what it sends or receives."""
    for transfers in (step.sends, step.receives):
        assert len({transfer.peer for transfer in transfers}) == len(transfers)
    for span in step.receives:
        others = [*step.sends, *(other for other in step.receives if other is not span)]
        clear = span.add or not any(_overlap(span, other) for other in others)
        assert clear, f"{span} replaces what the step needs"


def _overlap(a, b):
    return max(a.first, b.first) < min(a.last, b.last)


def plan(algorithm, ranks, count, **options):
    return [schedule(algorithm, ranks, rank, count, **options) for rank in range(ranks)]


def prove(schedules, count):
    """Each rank ends with each rank's element once, as the same expression, all steps played."""
    played = Played(schedules, count)
    ranks = range(len(schedules))
    for element in range(count):
        assert len({played.values[rank][element] for rank in ranks}) == 1
        assert played.leaves(0, element) == Counter({(rank, element): 1 for rank in ranks})
    for steps in schedules:
        assert all(step.sends or step.receives for step in steps)
        assert [step.round for step in steps] == sorted({step.round for step in steps})
        spans = [span for step in steps for span in (*step.sends, *step.receives)]
        assert all(0 <= span.first < span.last <= count for span in spans)


def cases(sizes=SIZES):
    return [(name, n) for name in ALGORITHMS for n in sizes if not refusal(name, n)]


@pytest.mark.slow
@pytest.mark.parametrize(("algorithm", "ranks"), cases())
def test_every_rank_ends_with_the_sum_of_all(algorithm, ranks):
    for count in COUNTS:
        prove(plan(algorithm, ranks, count), count)


@st.composite
def runs(draw):
    algorithm, ranks = draw(st.sampled_from(cases(range(1, 14))))
    options = {
        "order": draw(st.permutations(range(ranks))),
        "group": draw(st.none() | st.integers(1, ranks + 1)),
        "chunks": draw(st.none() | st.integers(1, 20)),
    }
    return algorithm, ranks, draw(st.integers(0, 40)), options


@pytest.mark.slow
@given(runs())
@settings(max_examples=150)
def test_any_order_group_and_chunks_come_out_right(run):
    algorithm, ranks, count, options = run
    prove(plan(algorithm, ranks, count, **options), count)


@pytest.mark.slow
@given(runs())
@settings(max_examples=150)
def test_counts_are_those_of_the_formulas(run):
    algorithm, ranks, count, options = run
    work = count_costs(plan(algorithm, ranks, count, **options))
    del options["order"]
    assert work == compute_costs(algorithm, ranks, count, **options)


@pytest.mark.parametrize(("algorithm", "ranks"), cases(range(2, 10)))
def test_counts_are_those_of_the_formulas_at_every_size(algorithm, ranks):
    for count in (0, 1, ranks - 1, ranks, 2 * ranks + 1, 97, 5040):
        assert count_costs(plan(algorithm, ranks, count)) == compute_costs(algorithm, ranks, count)


PRINTED = {
    ("ring", 8): ScheduleCosts(14, 14, 1470, 735),
    ("bidirectional_ring", 8): ScheduleCosts(14, 28, 1470, 735),
    ("recursive_doubling", 8): ScheduleCosts(3, 3, 2520, 2520),
    ("recursive_doubling", 6): ScheduleCosts(4, 3, 2520, 2520),
    ("rabenseifner", 8): ScheduleCosts(6, 6, 1470, 735),
    ("rabenseifner", 3): ScheduleCosts(4, 3, 1680, 1260),
    ("binomial", 8): ScheduleCosts(6, 3, 2520, 2520),
    ("binomial", 5): ScheduleCosts(6, 3, 2520, 2520),
    ("muji_2", 2): ScheduleCosts(2, 1, 840, 840),
    ("muji_4", 4): ScheduleCosts(4, 2, 1680, 1680),
    ("muji_8", 8): ScheduleCosts(6, 3, 2520, 2520),
    ("muji_fallback", 5): ScheduleCosts(8, 4, 3360, 3360),
    ("flat", 8): ScheduleCosts(14, 7, 5880, 5880),
    ("two_level", 8): ScheduleCosts(6, 4, 2520, 2100),
}
"""The printed formulas for 840 elements, worked out by hand."""


@pytest.mark.parametrize(("algorithm", "ranks"), PRINTED)
def test_formulas_are_the_printed_ones_where_chunks_are_equal(algorithm, ranks):
    assert compute_costs(algorithm, ranks, 840) == PRINTED[algorithm, ranks]


def test_a_chain_has_a_round_for_each_chunk_and_each_hop():
    assert compute_costs("chain", 5, 840, chunks=10) == ScheduleCosts(2 * 4 + 9, 20, 1680, 840)
    assert compute_costs("chain", 2, 840, chunks=10) == ScheduleCosts(2 * 1 + 9, 10, 840, 840)


@pytest.mark.parametrize("size", range(1, 12))
def test_muji_chooses_by_the_number_of_ranks(size):
    name = f"muji_{size}" if size in (2, 4, 8) else "muji_fallback"
    assert plan("muji", size, 11) == plan(name, size, 11)
    assert compute_costs("muji", size, 11) == compute_costs(name, size, 11)
    assert compute_path("muji", size, 11) == compute_path(name, size, 11)
    assert compute_depth("muji", size, None) == compute_depth(name, size, None)


@pytest.mark.parametrize("size", [2, 4, 8])
def test_the_drawn_trees_are_binomial(size):
    assert plan(f"muji_{size}", size, 11) == plan("binomial", size, 11)


@pytest.mark.parametrize("algorithm", ["binomial", "muji_8", "muji_fallback", "flat"])
def test_the_first_of_the_order_is_the_root(algorithm):
    root = schedule(algorithm, 8, 5, 10, order=[5, 4, 3, 2, 1, 0, 7, 6])
    receives = [transfer.add for step in root for transfer in step.receives]
    assert receives
    assert all(receives)


def test_the_two_ways_of_a_bidirectional_ring_are_as_busy():
    for step in schedule("bidirectional_ring", 5, 2, 100):
        assert [(transfer.peer, transfer.count) for transfer in step.sends] == [(3, 10), (1, 10)]


@pytest.mark.parametrize(("ranks", "group"), [(2, 2), (3, 2), (4, 2), (5, 4), (8, 4), (16, 4)])
def test_groups_are_about_as_large_as_many(ranks, group):
    assert plan("two_level", ranks, 9) == plan("two_level", ranks, 9, group=group)


def test_more_elements_give_more_chunks_but_never_more_than_elements():
    rounds = [compute_costs("chain", 3, count).rounds for count in (1, 10_000, 1_000_000)]
    assert rounds == sorted(set(rounds))
    assert compute_costs("chain", 3, 4, chunks=100).messages == 2 * 4


def test_an_algorithm_says_where_it_cannot_run():
    assert refusal("muji_4", 4) == ""
    assert refusal("muji_4", 3) == (
        "muji_4 is drawn for 4 ranks, not 3; binomial is its tree for any"
    )
    assert refusal("rings", 3).startswith("'rings' is no algorithm; there are ring, ")
    with pytest.raises(ValueError, match="muji_8 is drawn for 8 ranks, not 9"):
        schedule("muji_8", 9, 0, 5)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"rank": 3}, "rank 3 is not one of 3 ranks"),
        ({"rank": -1}, "rank -1 is not one of 3 ranks"),
        ({"count": -1}, "count is -1; it must be at least 0"),
        ({"group": 0}, "group is 0; it must be at least 1"),
        ({"chunks": 0}, "chunks is 0; it must be at least 1"),
        ({"order": [0, 1, 1]}, r"order \[0, 1, 1\] is no permutation of the ranks 0 to 2"),
        ({"order": [0, 1]}, r"order \[0, 1\] is no permutation"),
    ],
)
def test_arguments_out_of_range_are_named(change, reason):
    arguments = {"algorithm": "ring", "ranks": 3, "rank": 0, "count": 5} | change
    with pytest.raises(ValueError, match=f"^{reason}"):
        schedule(**arguments)


def messages_of(schedules):
    """The place that each message leaves: rank, step and index among the step's sends."""
    return [
        (rank, at, number)
        for rank, steps in enumerate(schedules)
        for at, step in enumerate(steps)
        for number in range(len(step.sends))
    ]


def other_side(schedules, rank, step, sent):
    """The step and the receive of the other rank that a message is."""
    for at, theirs in enumerate(schedules[sent.peer]):
        for number, transfer in enumerate(theirs.receives):
            if theirs.round == step.round and transfer.peer == rank:
                return at, number
    raise AssertionError("a message without another side")


def without(transfers, number):
    return transfers[:number] + transfers[number + 1 :]


def changed(schedules, message, change_receive):
    """The same schedules with a message left out where it leaves, and changed where it comes."""
    rank, at, number = message
    step = schedules[rank][at]
    sent = step.sends[number]
    their_at, their_number = other_side(schedules, rank, step, sent)
    theirs = schedules[sent.peer][their_at]
    receives = change_receive(theirs.receives, their_number)
    spoilt = [list(steps) for steps in schedules]
    spoilt[rank][at] = replace(step, sends=without(step.sends, number))
    spoilt[sent.peer][their_at] = replace(spoilt[sent.peer][their_at], receives=receives)
    return spoilt


@st.composite
def one_message(draw):
    algorithm, ranks = draw(st.sampled_from(cases(range(2, 10))))
    count = draw(st.integers(1, 20))
    schedules = plan(algorithm, ranks, count)
    return schedules, count, draw(st.sampled_from(messages_of(schedules)))


def wrong(schedules, count):
    """True if a rank ends without just one of each rank's elements."""
    played = Played(schedules, count)
    right = [Counter({(r, element): 1 for r in range(len(schedules))}) for element in range(count)]
    ranks = range(len(schedules))
    return any([played.leaves(rank, e) for e in range(count)] != right for rank in ranks)


@given(one_message())
def test_a_message_left_out_is_seen(case):
    schedules, count, message = case
    assert not wrong(schedules, count)
    assert wrong(changed(schedules, message, without), count)


@given(one_message())
def test_a_message_that_only_leaves_or_only_comes_is_seen(case):
    schedules, count, message = case
    with pytest.raises(AssertionError, match="stuck"):
        Played(changed(schedules, message, lambda receives, _: receives), count)


@given(one_message())
def test_a_message_that_is_added_twice_is_seen(case):
    schedules, count, (rank, at, number) = case
    step = schedules[rank][at]
    sent = step.sends[number]
    their_at, their_number = other_side(schedules, rank, step, sent)
    received = schedules[sent.peer][their_at].receives[their_number]
    spaced = [[replace(one, round=2 * one.round) for one in steps] for steps in schedules]
    again = replace(received, add=True)
    spaced[rank].insert(at + 1, ScheduleStep(2 * step.round + 1, sends=(sent,)))
    spaced[sent.peer].insert(their_at + 1, ScheduleStep(2 * step.round + 1, receives=(again,)))
    assert wrong(spaced, count)


def test_the_same_sum_in_another_order_is_seen():
    # Each gives its own to both others at once: a+b+c on two ranks, c+a+b on the third.
    others = [(1, 2), (0, 2), (0, 1)]
    steps = [
        [ScheduleStep(0, tuple(Transfer(peer, 0, 1) for peer in pair), tuple(map(adds_from, pair)))]
        for pair in others
    ]
    assert not wrong(steps, 1)
    with pytest.raises(AssertionError, match="assert 2 == 1"):
        prove(steps, 1)


def test_two_that_send_first_and_then_receive_are_stuck():
    steps = [
        [
            ScheduleStep(0, sends=(Transfer(peer, 0, 1),)),
            ScheduleStep(1, receives=(adds_from(peer),)),
        ]
        for peer in (1, 0)
    ]
    with pytest.raises(AssertionError, match="stuck"):
        Played(steps, 1)


def test_replacing_what_is_sent_is_seen():
    swap = [[ScheduleStep(0, (Transfer(peer, 0, 1),), (Transfer(peer, 0, 1),))] for peer in (1, 0)]
    with pytest.raises(AssertionError, match="replaces"):
        Played(swap, 1)


def adds_from(peer):
    return Transfer(peer, 0, 1, add=True)


def test_muji_has_a_tree_for_each_size_of_the_catalog_and_no_other():
    def drawn(ranks):
        root = schedule("muji", ranks, 0, 8)
        return sum(len(step.sends) for step in root) < ranks - 1

    assert [ranks for ranks in range(3, 10) if drawn(ranks)] == list(MUJI_SIZES[1:])
