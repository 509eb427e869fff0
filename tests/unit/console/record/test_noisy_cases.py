"""Cases disturbed by other work, heat or limits, and the reasons reported."""

import pytest

from spbench.record.case_parts import Disturbance, DisturbanceCause
from spbench.record.findings import collect_findings
from spbench.record.messages.outcome import describe_outcome
from spbench.record.noise import (
    describe_case_noise,
    find_disturbances,
    summarize_disturbances,
    summarize_noise,
)
from spbench.record.planted_faults import FAULT_FOUND
from spbench.report.build import build_case_parts
from spbench.report.comparison.conditions import no_past_launches
from spbench.report.comparison.pairs import pair_cases
from support import sample_events as events


def run_cases(*disturbed, cpus=None, cases=("a",), more=()):
    """Return a run of cases on one host, with disturbances and CPUs by rank."""
    np = len(disturbed)
    cpus = cpus or [[rank] for rank in range(np)]
    first = cases[0]
    return events.build_state(
        [
            events.run_start(*(events.describe_case(case, np) for case in cases)),
            events.job_start(*cases, np=np),
            *(events.rank_event("ready", rank, size=np, cpus=cpus[rank]) for rank in range(np)),
            *(events.rank_event("case_start", rank, case=first) for rank in range(np)),
            *(
                events.rank_event(
                    "case_end",
                    rank,
                    case=first,
                    **({"disturbed": disturbances} if disturbances else {}),
                )
                for rank, disturbances in enumerate(disturbed)
            ),
            *more,
        ]
    )


def describe_noise(*disturbed, cpus=None):
    return describe_case_noise(run_cases(*disturbed, cpus=cpus).cases["a"])


def test_ranks_below_the_thresholds_are_quiet():
    assert describe_noise({}, {}) is None
    assert (
        describe_noise({"waited": 0.19, "stolen": 0.04, "throttled": 0.05}, {"slowed": 0.2}) is None
    )


def test_reports_wait_of_a_rank_that_has_its_own_core(messages):
    text = describe_noise({"waited": 0.01}, {"waited": 0.48})
    messages.check(text)


def test_waits_of_ranks_that_share_cores_are_expected(messages):
    cpus = [[0, 1]] * 4
    assert describe_noise(*[{"waited": 0.55}] * 4, cpus=cpus) is None
    text = describe_noise(*[{"waited": 0.68}] * 4, cpus=cpus)
    messages.check(text)


def test_one_sharing_rank_may_wait_longer_than_the_others():
    assert describe_noise({"waited": 0.75}, *[{"waited": 0.5}] * 3, cpus=[[0, 1]] * 4) is None


@pytest.mark.parametrize(
    ("disturbed", "expected"),
    [
        ({"stolen": 0.12}, "the hypervisor of node01 gave 12 % of the time to other"),
        ({"throttled": 0.4}, "a CPU quota stopped ranks on node01 for 40 % of"),
        ({"hot": 3}, "heat slowed down CPUs of node01 3 times"),
        ({"slowed": 0.55}, "CPUs of node01 ran 55 % below their base clock rate"),
    ],
)
def test_describes_each_disturbance(disturbed, expected):
    assert describe_noise({}, disturbed).startswith(expected)


def test_reports_the_worst_repeat(messages):
    second_repeat = [
        events.rank_event("case_start", 0, repeat=1),
        events.rank_event("case_end", 0, repeat=1, disturbed={"waited": 0.1}),
    ]
    state = run_cases({"waited": 0.5}, {}, more=second_repeat)
    messages.check(describe_case_noise(state.cases["a"]))


def test_noise_message_includes_other_work_at_the_start(messages):
    state = run_cases({"waited": 0.5}, {})
    state.run.environment = {"other_work": ["load 13.8 on 2 cores from other work"]}
    [message] = summarize_noise(state)
    messages.check(message)
    assert message in collect_findings(state)
    assert summarize_noise(run_cases({}, {})) == []


def test_quiet_run_still_reports_other_work_at_the_start(messages):
    state = run_cases({}, {})
    state.run.environment = {"other_work": ["load 2 on 2 cores", "another run"]}
    messages.check(summarize_noise(state))


def summarize(*cases, other_work=()):
    """Return the messages on cases; a disturbance is a cause, host and amount."""
    disturbances = {
        name: [Disturbance(DisturbanceCause(cause), host, amount) for cause, host, amount in case]
        for name, case in zip("abcdefghijkl", cases, strict=False)
    }
    return summarize_disturbances(disturbances, other_work)


def test_merges_noise_of_several_cases_by_cause(messages):
    waited = [[("waited", "vm", share / 100)] for share in (30, 46, 12)]
    messages.check(summarize(*waited, []))
    stolen = [("stolen", "vm", 0.1)]
    [first, second] = summarize([*waited[0], *stolen], stolen)
    assert " in a because other work used it" in first
    messages.check(second)


def test_lists_the_most_disturbed_hosts_and_counts_the_rest(messages):
    hosts = [("waited", f"node{number}", number / 10) for number in (3, 4, 5, 6)]
    [message] = summarize(hosts)
    messages.check(message)


@pytest.mark.parametrize("cause", DisturbanceCause)
def test_message_of_each_cause_ends_with_a_remedy(cause):
    [message] = summarize([(cause, "vm", 0.5)])
    assert message.partition("; ")[2].startswith(("repeat", "raise", "check"))


def test_reports_and_comparisons_include_noise(messages):
    (noisy,) = build_case_parts(run_cases({"waited": 0.5}, {}))
    (quiet,) = build_case_parts(run_cases({}, {}))
    assert quiet.noisy is None
    messages.check(noisy.noisy)
    assert f"noisy in b: {noisy.noisy}" in pair_cases(quiet, noisy, no_past_launches).remarks


def test_outcome_counts_noisy_cases_within_their_status():
    ends = [events.case_judged(case, "passed") for case in "abc"]
    state = run_cases({"stolen": 0.5}, {}, cases=("a", "b", "c"), more=ends)
    assert describe_outcome(state.cases.values()) == "3 cases: 3 passed (1 of them noisy)"
    assert describe_outcome([state.cases["a"]]) == "1 case: 1 passed (noisy)"


def test_outcome_counts_found_faults_apart_from_failures():
    reasons = {"a": None, "b": f"{FAULT_FOUND}: rank 1 is slow", "c": "check sum failed"}
    cases = [events.describe_case(name, 1) for name in reasons]
    judged = [
        events.case_judged(name, "failed" if reason else "passed", reason)
        for name, reason in reasons.items()
    ]
    state = events.build_state([events.run_start(*cases), *judged])
    outcome = describe_outcome(state.cases.values())
    assert outcome == "3 cases: 1 passed, 1 fault found, 1 failed"


def test_noise_of_a_finished_case_includes_a_late_rank():
    judged = events.case_judged("a", "failed", "timeout")
    state = run_cases({}, more=[events.rank_event("case_start", 1, case="a"), judged])
    case = state.cases["a"]
    assert describe_case_noise(case) is None
    assert find_disturbances(case) is find_disturbances(case)
    state.apply(events.rank_event("case_end", 1, case="a", disturbed={"stolen": 0.3}))
    assert describe_case_noise(case) is not None
