"""Cases whose times are not the hardware's alone, and why."""

import pytest

from spbench.record.findings import collect_findings
from spbench.record.noise import (
    Cause,
    Disturbance,
    describe_case_noise,
    summarize_disturbances,
    summarize_noise,
)
from spbench.report.build import build_case_parts
from spbench.report.comparison.pairs import pair_cases
from spbench.report.comparison.past import no_past_launches
from unit import events as make


def ran(*disturbed, cpus=None, cases=("a",), more=()):
    """A judged run of cases on one host; what disturbed each rank, and the CPUs of each."""
    np = len(disturbed)
    cpus = cpus or [[rank] for rank in range(np)]
    first = cases[0]
    return make.state_of(
        [
            make.run_start(*(make.described(case, np) for case in cases)),
            make.job_start(*cases, np=np),
            *(make.rank_event("ready", rank, size=np, cpus=cpus[rank]) for rank in range(np)),
            *(make.rank_event("case_start", rank, case=first) for rank in range(np)),
            *(
                make.rank_event("case_end", rank, case=first, **({"disturbed": of} if of else {}))
                for rank, of in enumerate(disturbed)
            ),
            *more,
        ]
    )


def noise(*disturbed, cpus=None):
    return describe_case_noise(ran(*disturbed, cpus=cpus).cases["a"])


def test_ranks_that_nothing_disturbed_are_quiet():
    assert noise({}, {}) is None
    assert noise({"waited": 0.19, "stolen": 0.04, "throttled": 0.05}, {"slowed": 0.2}) is None


def test_a_rank_with_a_core_of_its_own_does_not_wait_for_it():
    told = noise({"waited": 0.01}, {"waited": 0.48})
    assert told == (
        "rank 1 on node01 waited 48 % of its time for a core because other work used it"
    )


def test_ranks_that_share_cores_wait_for_each_other():
    both = [[0, 1]] * 4
    assert noise(*[{"waited": 0.55}] * 4, cpus=both) is None
    told = noise(*[{"waited": 0.68}] * 4, cpus=both)
    assert told.startswith("ranks on node01 waited 18 % of their time for a core because")


def test_one_of_many_that_share_may_wait_longer_than_the_others():
    assert noise({"waited": 0.75}, *[{"waited": 0.5}] * 3, cpus=[[0, 1]] * 4) is None


@pytest.mark.parametrize(
    ("disturbed", "words"),
    [
        ({"stolen": 0.12}, "the hypervisor of node01 gave 12 % of the time to other"),
        ({"throttled": 0.4}, "a CPU quota stopped ranks on node01 for 40 % of"),
        ({"hot": 3}, "heat slowed down CPUs of node01 3 times"),
        ({"slowed": 0.55}, "CPUs of node01 ran 55 % below their base clock rate"),
    ],
)
def test_each_disturbance_has_its_words(disturbed, words):
    assert noise({}, disturbed).startswith(words)


def test_the_worst_repeat_counts():
    again = [
        make.rank_event("case_start", 0, repeat=1),
        make.rank_event("case_end", 0, repeat=1, disturbed={"waited": 0.1}),
    ]
    state = ran({"waited": 0.5}, {}, more=again)
    assert "waited 50 %" in describe_case_noise(state.cases["a"])


def test_a_run_has_one_sentence_on_noise_with_what_else_ran_when_it_began():
    state = ran({"waited": 0.5}, {})
    state.run.environment = {"other_work": ["load 13.8 on 2 cores from other work"]}
    [sentence] = summarize_noise(state)
    assert sentence == (
        "ranks on node01 waited 50 % of their time for a core in a because other work used it; "
        "repeat the run on an idle machine (at its start: load 13.8 on 2 cores from other work)"
    )
    assert sentence in collect_findings(state)
    assert summarize_noise(ran({}, {})) == []


def test_other_work_at_the_start_of_a_quiet_run_is_said_by_itself():
    state = ran({}, {})
    state.run.environment = {"other_work": ["load 2 on 2 cores", "another run"]}
    assert summarize_noise(state) == [
        "the machine was busy when the run started (load 2 on 2 cores; another run): "
        "times may be inflated"
    ]


def grouped(*cases, other_work=()):
    """The sentences on cases, each with its disturbances as cause, host and amount."""
    disturbances = {
        name: [Disturbance(Cause(cause), host, amount) for cause, host, amount in case]
        for name, case in zip("abcdefghijkl", cases, strict=False)
    }
    return summarize_disturbances(disturbances, other_work)


def test_noise_of_many_cases_is_one_sentence_a_cause_with_the_largest_share():
    waited = [[("waited", "vm", share / 100)] for share in (30, 46, 12)]
    assert grouped(*waited, []) == [
        "ranks on vm waited up to 46 % of their time for a core in 3 of 4 cases because other "
        "work used it; repeat the run on an idle machine"
    ]
    stolen = [("stolen", "vm", 0.1)]
    [first, second] = grouped([*waited[0], *stolen], stolen)
    assert " in a because other work used it" in first
    assert second == (
        "the hypervisor of vm gave up to 10 % of the time to other machines in both cases; "
        "repeat the run on a dedicated machine"
    )


def test_the_host_with_the_largest_share_comes_first_and_others_are_counted():
    hosts = [("waited", f"node{number}", number / 10) for number in (3, 4, 5, 6)]
    [sentence] = grouped(hosts)
    assert sentence.startswith("ranks on node6, node5 and 2 more hosts waited up to 60 % of ")


@pytest.mark.parametrize("cause", Cause)
def test_each_cause_ends_with_what_to_do(cause):
    [sentence] = grouped([(cause, "vm", 0.5)])
    assert sentence.partition("; ")[2].startswith(("repeat", "raise", "check"))


def test_reports_and_comparisons_tell_it():
    (noisy,), (quiet,) = (build_case_parts(ran(of, {})) for of in ({"waited": 0.5}, {}))
    assert quiet.noisy is None
    assert noisy.noisy.startswith("rank 0 on node01 waited 50 %")
    assert f"noisy in b: {noisy.noisy}" in pair_cases(quiet, noisy, no_past_launches).remarks
