"""Fields of data classes that become JSON objects are the keys of files."""

from __future__ import annotations

from dataclasses import fields

import pytest

from spbench.launch.survey.facts import HostFacts
from spbench.planner.profile.layers import Origin
from spbench.record.stragglers import Straggler
from spbench.report.comparison.deciding_factor import DecidingFactor
from spbench.report.comparison.model import CaseJudgement, CasePair, MetricRow, Overall
from spbench.report.gate.check import CaseGate, GateCheck
from spbench.report.scaling import Scaling, ScalingRow
from spbench.stats.summary import Summary
from spbench.suites.case import PerformanceReference, RepeatPolicy
from spbench_core.events.rank_events import RankFacts

KEYS = {
    HostFacts: (
        "host status reason findings cores memory_gib free_gib load gpus adapters interpreter "
        "python mpi mpi4py torch torch_cuda spbench mpi_memory clock_s governor memlock "
        "nofile filesystem"
    ),
    Origin: "model params ranks threads",
    Straggler: "rank host ratio seconds since cause",
    DecidingFactor: "value recorded",
    CaseJudgement: "case judgement outcome reason",
    CasePair: "id status_a status_b differences rows broken benchmark",
    MetricRow: (
        "case metric unit better a b ratio interval launches chance fastest by_fastest past "
        "factor by_factor outcome reason"
    ),
    Overall: "cases mean_ratio sum_a sum_b",
    CaseGate: "case launches past found alarms needed error reason",
    GateCheck: "run resamples seed cases alarms",
    Scaling: "of work rows pays_to sentence",
    ScalingRow: "case np time_ms speedup efficiency interval limit gain most_gain note",
    Summary: "n min p50 p95 p99 max mean stdev",
    PerformanceReference: "value lower upper system",
    RepeatPolicy: "interval max_time",
    RankFacts: (
        "host pid local_rank device cpus nodes cores numa host_cpus processor threads fabric "
        "versions"
    ),
}


@pytest.mark.parametrize("data_class", KEYS, ids=lambda data_class: data_class.__name__)
def test_fields_are_the_keys_of_written_files(data_class):
    assert " ".join(field.name for field in fields(data_class)) == KEYS[data_class]
