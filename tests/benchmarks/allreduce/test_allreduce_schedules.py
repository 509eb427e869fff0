"""Allreduce schedules, simulated for all ranks: results, messages and counts."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spbench_workers.benchmarks.allreduce.model.critical_path import compute_path
from spbench_workers.benchmarks.allreduce.model.formulas import compute_costs
from spbench_workers.benchmarks.allreduce.verification.expected import compute_depth
from spbench_workers.collectives.base import MUJI_SIZES
from spbench_workers.collectives.plan import ALGORITHMS, build_schedule, explain_unsupported
from spbench_workers.collectives.schedule import ScheduleCosts, ScheduleStep, Transfer, count_costs

SIZES = [*range(1, 10), 12, 16]
COUNTS = [0, 1, 2, 3, 7, 13, 32]


class Simulation:
    """A run of all ranks' schedules, on symbols instead of numbers.

    A value is a number that represents an expression: a leaf is one element of one rank, and a
    sum is the unordered pair of its operands. Equal numbers are then equal bits, for all
    inputs.

    A rank ends a step if the other side of each of its transfers is in the current step of the
    other rank, and those ranks end their steps too. A message needs both sides at once, like a
    rendezvous. A schedule that ends here never waits for a buffer.
    """

    def __init__(self, schedules, count):
        self._sums = {}
        self._leaves = []
        self.values = [
            [self._new(Counter({(rank, element): 1})) for element in range(count)]
            for rank in range(len(schedules))
        ]
        self._schedules = schedules
        self._positions = [0] * len(schedules)
        while runnable := self._find_runnable():
            self._run_steps(runnable)
        ends = [len(steps) for steps in schedules]
        assert self._positions == ends, f"stuck: ranks are at steps {self._positions} of {ends}"

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

    def _find_runnable(self):
        """Return the steps, by rank, that can end now."""
        candidates = {
            rank: steps[index]
            for rank, (steps, index) in enumerate(
                zip(self._schedules, self._positions, strict=True)
            )
            if index < len(steps)
        }
        while blocked := [rank for rank in candidates if not is_matched(rank, candidates)]:
            for rank in blocked:
                del candidates[rank]
        return candidates

    def _run_steps(self, runnable):
        before = {rank: list(self.values[rank]) for rank in runnable}
        for rank, step in runnable.items():
            check_step(step)
            for transfer in step.receives:
                self._receive(rank, transfer, before[transfer.peer])
            self._positions[rank] += 1

    def _receive(self, rank, transfer, sent_values):
        values = self.values[rank]
        for element in range(transfer.first, transfer.last):
            received = sent_values[element]
            values[element] = self._sum(values[element], received) if transfer.add else received


def is_matched(rank, candidates):
    """Return whether each transfer has one other side with the same elements."""
    step = candidates[rank]
    sides = [(transfer, "receives") for transfer in step.sends]
    sides += [(transfer, "sends") for transfer in step.receives]
    return all(
        transfer.peer in candidates
        and candidates[transfer.peer].round == step.round
        and [(a.first, a.last) for a in getattr(candidates[transfer.peer], side) if a.peer == rank]
        == [(transfer.first, transfer.last)]
        for transfer, side in sides
    )


def check_step(step):
    """Reject two messages to one rank, and replacing sent or received elements."""
    for transfers in (step.sends, step.receives):
        assert len({transfer.peer for transfer in transfers}) == len(transfers)
    for span in step.receives:
        other_spans = [*step.sends, *(other for other in step.receives if other is not span)]
        clear = span.add or not any(overlaps(span, other) for other in other_spans)
        assert clear, f"{span} replaces what the step needs"


def overlaps(a, b):
    return max(a.first, b.first) < min(a.last, b.last)


def plan(algorithm, ranks, count, **options):
    return [build_schedule(algorithm, ranks, rank, count, **options) for rank in range(ranks)]


def check_result(schedules, count):
    """Check that all ranks end with the same sum of one element of each rank.

    All steps must run.
    """
    simulation = Simulation(schedules, count)
    ranks = range(len(schedules))
    for element in range(count):
        assert len({simulation.values[rank][element] for rank in ranks}) == 1
        assert simulation.leaves(0, element) == Counter({(rank, element): 1 for rank in ranks})
    for steps in schedules:
        assert all(step.sends or step.receives for step in steps)
        assert [step.round for step in steps] == sorted({step.round for step in steps})
        spans = [span for step in steps for span in (*step.sends, *step.receives)]
        assert all(0 <= span.first < span.last <= count for span in spans)


def list_cases(sizes=SIZES):
    return [(name, n) for name in ALGORITHMS for n in sizes if not explain_unsupported(name, n)]


@pytest.mark.slow
@pytest.mark.parametrize(("algorithm", "ranks"), list_cases())
def test_every_rank_ends_with_the_complete_sum(algorithm, ranks):
    for count in COUNTS:
        check_result(plan(algorithm, ranks, count), count)


@st.composite
def draw_runs(draw):
    algorithm, ranks = draw(st.sampled_from(list_cases(range(1, 14))))
    options = {
        "order": draw(st.permutations(range(ranks))),
        "group": draw(st.none() | st.integers(1, ranks + 1)),
        "chunks": draw(st.none() | st.integers(1, 20)),
    }
    return algorithm, ranks, draw(st.integers(0, 40)), options


@pytest.mark.slow
@given(draw_runs())
@settings(max_examples=150)
def test_any_order_group_and_chunks_are_correct(run):
    algorithm, ranks, count, options = run
    check_result(plan(algorithm, ranks, count, **options), count)


@pytest.mark.slow
@given(draw_runs())
@settings(max_examples=150)
def test_counts_agree_with_the_formulas(run):
    algorithm, ranks, count, options = run
    work = count_costs(plan(algorithm, ranks, count, **options))
    del options["order"]
    assert work == compute_costs(algorithm, ranks, count, **options)


@pytest.mark.parametrize(("algorithm", "ranks"), list_cases(range(2, 10)))
def test_counts_agree_with_the_formulas_at_every_size(algorithm, ranks):
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
"""The printed formulas for 840 elements, evaluated manually."""


@pytest.mark.parametrize(("algorithm", "ranks"), PRINTED)
def test_formulas_agree_with_the_printed_ones(algorithm, ranks):
    assert compute_costs(algorithm, ranks, 840) == PRINTED[algorithm, ranks]


def test_a_chain_has_a_round_per_chunk_and_hop():
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
def test_muji_trees_are_binomial(size):
    assert plan(f"muji_{size}", size, 11) == plan("binomial", size, 11)


@pytest.mark.parametrize("algorithm", ["binomial", "muji_8", "muji_fallback", "flat"])
def test_the_first_of_the_order_is_the_root(algorithm):
    root = build_schedule(algorithm, 8, 5, 10, order=[5, 4, 3, 2, 1, 0, 7, 6])
    receives = [transfer.add for step in root for transfer in step.receives]
    assert receives
    assert all(receives)


def test_a_bidirectional_ring_is_balanced():
    for step in build_schedule("bidirectional_ring", 5, 2, 100):
        assert [(transfer.peer, transfer.count) for transfer in step.sends] == [(3, 10), (1, 10)]


@pytest.mark.parametrize(("ranks", "group"), [(2, 2), (3, 2), (4, 2), (5, 4), (8, 4), (16, 4)])
def test_the_default_group_is_about_the_square_root(ranks, group):
    assert plan("two_level", ranks, 9) == plan("two_level", ranks, 9, group=group)


def test_chunks_increase_up_to_the_number_of_elements():
    rounds = [compute_costs("chain", 3, count).rounds for count in (1, 10_000, 1_000_000)]
    assert rounds == sorted(set(rounds))
    assert compute_costs("chain", 3, 4, chunks=100).messages == 2 * 4


def test_explains_unsupported_numbers_of_ranks(messages):
    assert explain_unsupported("muji_4", 4) == ""
    messages.check(explain_unsupported("muji_4", 3))
    messages.check(explain_unsupported("rings", 3))
    with messages.raises(ValueError):
        build_schedule("muji_8", 9, 0, 5)


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
def test_rejects_arguments_out_of_range(change, reason):
    arguments = {"algorithm": "ring", "ranks": 3, "rank": 0, "count": 5} | change
    with pytest.raises(ValueError, match=f"^{reason}"):
        build_schedule(**arguments)


def list_messages(schedules):
    """Return rank, step and index among the step's sends of each message."""
    return [
        (rank, index, number)
        for rank, steps in enumerate(schedules)
        for index, step in enumerate(steps)
        for number in range(len(step.sends))
    ]


def find_receive(schedules, rank, step, message):
    """Return the step and the index of the receive of a message."""
    for index, peer_step in enumerate(schedules[message.peer]):
        for number, transfer in enumerate(peer_step.receives):
            if peer_step.round == step.round and transfer.peer == rank:
                return index, number
    raise AssertionError("a message without another side")


def remove_transfer(transfers, number):
    return transfers[:number] + transfers[number + 1 :]


def change_message(schedules, message, change_receive):
    """Return the schedules without the send of a message and with a changed receive."""
    rank, step_index, number = message
    step = schedules[rank][step_index]
    message_sent = step.sends[number]
    peer_step_index, peer_number = find_receive(schedules, rank, step, message_sent)
    peer_step = schedules[message_sent.peer][peer_step_index]
    receives = change_receive(peer_step.receives, peer_number)
    modified = [list(steps) for steps in schedules]
    modified[rank][step_index] = replace(step, sends=remove_transfer(step.sends, number))
    modified[message_sent.peer][peer_step_index] = replace(
        modified[message_sent.peer][peer_step_index], receives=receives
    )
    return modified


@st.composite
def draw_message(draw):
    algorithm, ranks = draw(st.sampled_from(list_cases(range(2, 10))))
    count = draw(st.integers(1, 20))
    schedules = plan(algorithm, ranks, count)
    return schedules, count, draw(st.sampled_from(list_messages(schedules)))


def is_wrong(schedules, count):
    """Return whether a rank ends without exactly one of each rank's elements."""
    simulation = Simulation(schedules, count)
    expected = [
        Counter({(r, element): 1 for r in range(len(schedules))}) for element in range(count)
    ]
    ranks = range(len(schedules))
    return any([simulation.leaves(rank, e) for e in range(count)] != expected for rank in ranks)


@given(draw_message())
def test_detects_a_missing_message(case):
    schedules, count, message = case
    assert not is_wrong(schedules, count)
    assert is_wrong(change_message(schedules, message, remove_transfer), count)


@given(draw_message())
def test_detects_a_message_without_a_receive_or_send(case):
    schedules, count, message = case
    with pytest.raises(AssertionError, match="stuck"):
        Simulation(change_message(schedules, message, lambda receives, _: receives), count)


@given(draw_message())
def test_detects_a_message_that_is_added_twice(case):
    schedules, count, (rank, step_index, number) = case
    step = schedules[rank][step_index]
    message_sent = step.sends[number]
    peer_step_index, peer_number = find_receive(schedules, rank, step, message_sent)
    received = schedules[message_sent.peer][peer_step_index].receives[peer_number]
    spaced = [[replace(step_, round=2 * step_.round) for step_ in steps] for steps in schedules]
    repeated = replace(received, add=True)
    spaced[rank].insert(step_index + 1, ScheduleStep(2 * step.round + 1, sends=(message_sent,)))
    spaced[message_sent.peer].insert(
        peer_step_index + 1, ScheduleStep(2 * step.round + 1, receives=(repeated,))
    )
    assert is_wrong(spaced, count)


def test_detects_another_order_of_a_sum():
    # Each rank sends its element to both others: a+b+c on two ranks, c+a+b on the third.
    peers = [(1, 2), (0, 2), (0, 1)]
    steps = [
        [ScheduleStep(0, tuple(Transfer(peer, 0, 1) for peer in pair), tuple(map(make_add, pair)))]
        for pair in peers
    ]
    assert not is_wrong(steps, 1)
    with pytest.raises(AssertionError, match="assert 2 == 1"):
        check_result(steps, 1)


def test_two_ranks_that_send_first_are_stuck():
    steps = [
        [
            ScheduleStep(0, sends=(Transfer(peer, 0, 1),)),
            ScheduleStep(1, receives=(make_add(peer),)),
        ]
        for peer in (1, 0)
    ]
    with pytest.raises(AssertionError, match="stuck"):
        Simulation(steps, 1)


def test_detects_replaced_sends():
    swap = [[ScheduleStep(0, (Transfer(peer, 0, 1),), (Transfer(peer, 0, 1),))] for peer in (1, 0)]
    with pytest.raises(AssertionError, match="replaces"):
        Simulation(swap, 1)


def make_add(peer):
    return Transfer(peer, 0, 1, add=True)


def test_muji_has_trees_only_for_sizes_of_the_catalog():
    def has_tree(ranks):
        root = build_schedule("muji", ranks, 0, 8)
        return sum(len(step.sends) for step in root) < ranks - 1

    assert [ranks for ranks in range(3, 10) if has_tree(ranks)] == list(MUJI_SIZES[1:])
