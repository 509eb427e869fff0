"""Cases whose times are not the hardware's alone, and why."""

import pytest

from spbench.record.findings import findings
from spbench.record.noise import noise_of, noisy_cases
from spbench.report.build import case_parts
from spbench.report.compare import nothing_past, pair_of
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
    return noise_of(ran(*disturbed, cpus=cpus).cases["a"])


def test_ranks_that_nothing_disturbed_are_quiet():
    assert noise({}, {}) is None
    assert noise({"waited": 0.19, "stolen": 0.04, "throttled": 0.05}, {"slowed": 0.2}) is None


def test_a_rank_with_a_core_of_its_own_does_not_wait_for_it():
    told = noise({"waited": 0.01}, {"waited": 0.48})
    assert told == "rank 1 on node01 waited 48% of its time for a core: other work had it"


def test_ranks_that_share_cores_wait_for_each_other():
    both = [[0, 1]] * 4
    assert noise(*[{"waited": 0.55}] * 4, cpus=both) is None
    told = noise(*[{"waited": 0.68}] * 4, cpus=both)
    assert told.startswith("the ranks on node01 waited 18% of their time for a core, beyond")


def test_one_of_many_that_share_may_wait_longer_than_the_others():
    assert noise({"waited": 0.75}, *[{"waited": 0.5}] * 3, cpus=[[0, 1]] * 4) is None


@pytest.mark.parametrize(
    ("disturbed", "words"),
    [
        ({"stolen": 0.12}, "the hypervisor of node01 gave 12% of its cores' time"),
        ({"throttled": 0.4}, "the CPU quota of the control group stopped ranks on node01 for 40%"),
        ({"hot": 3}, "CPUs of node01 were slowed down for their heat, 3 times"),
        ({"slowed": 0.55}, "a CPU of node01 ran 55% below its base clock rate"),
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
    assert "waited 50%" in noise_of(state.cases["a"])


def test_a_run_names_its_first_noisy_case_and_what_else_ran_when_it_began():
    state = ran({"waited": 0.5}, {})
    state.run.environment = {"other_work": ["load 13.8 on 2 cores: others compute here"]}
    began, noisy = noisy_cases(state)
    assert began == "Noisy: load 13.8 on 2 cores: others compute here when the run began."
    assert noisy.startswith("Noisy: a: rank 0 on node01 waited 50% of its time for a core")
    assert noisy.endswith("; run it again when the machine is quiet.")
    assert {began, noisy} <= set(findings(state))
    assert noisy_cases(ran({}, {})) == []


def test_reports_and_comparisons_tell_it():
    (noisy,), (quiet,) = (case_parts(ran(of, {})) for of in ({"waited": 0.5}, {}))
    assert quiet.noisy is None
    assert noisy.noisy.startswith("rank 0 on node01 waited 50%")
    assert f"noisy in b: {noisy.noisy}" in pair_of(quiet, noisy, nothing_past).remarks
