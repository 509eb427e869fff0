"""Each check of a collective detects its errors, and no others."""

from types import SimpleNamespace

import pytest
import torch

from spbench_parallel.errors import CannotRunError
from spbench_workers.benchmarks.allreduce.buffers import Buffers
from spbench_workers.benchmarks.allreduce.sweep import CorruptingCollective
from spbench_workers.benchmarks.allreduce.verification.checking import CheckedCollective, Checks
from spbench_workers.benchmarks.allreduce.verification.data import fill
from spbench_workers.benchmarks.allreduce.verification.expected import (
    compute_expected,
    list_result_parts,
)
from support.typed_params import TypedParams

COUNT = 10
ALL = {"exact", "bound", "identical", "inputs"}


class Job(TypedParams):
    """A context of rank 1 of two, of which the other has the correct result."""

    def __init__(self, collective, mode):
        self.params = {"collective": collective, "mode": mode, "op": "sum"}
        self.world = SimpleNamespace(rank=1, size=2, comm=self)
        self.results = {}
        self.other_result = b""

    def seed_for(self, *parts):
        return sum(map(ord, "".join(map(str, parts))))

    def progress(self, *_):
        pass

    def allgather(self, value):
        return [self.other_result or value, value]

    def check(self, name, error, tolerance=0.0, detail=""):
        self.results[name] = (error <= tolerance, detail)

    def check_worst(self, name, worst):
        self.check(name, worst.error, worst.tolerance, worst.detail)

    def list_failed(self):
        return {name for name, (passed, _) in self.results.items() if not passed}


class Collective:
    """A collective that writes the reference result and then makes one error."""

    def __init__(self, job, buffers, spoil):
        self.job = job
        self.buffers = buffers
        self.spoil = spoil
        self.checks = None
        self.runs = 0
        self.traffic = None

    def run(self):
        name = "exact" if self.runs % 2 == 0 else "bound"
        if self.job.params["collective"] != "allreduce":
            name = "exact" if self.runs % 4 < 2 else "bound"
        self.runs += 1
        distribution = self.checks._distributions[name]
        [piece] = list_result_parts(
            self.job.params["collective"], 2, 1, self.buffers.result.numel()
        )
        values = compute_expected(
            distribution, (0, 1), lambda rank: self.checks.draw_input(name, "now 0", rank), 1
        )
        fill(self.buffers.result, values.values, piece.input_offset)
        self.spoil(self.buffers, self.runs)

    def start(self):
        self.run()

    def poll(self):
        return True

    def wait(self):
        pass

    def free(self):
        pass


def run_checks(
    spoil,
    collective="allreduce",
    mode="blocking",
    wrap=lambda collective, _: collective,
    other_result=b"",
):
    job = Job(collective, mode)
    part = COUNT if collective == "allreduce" else COUNT // 2
    buffers = Buffers(COUNT, part, None, torch.float64, torch.device("cpu"))
    faulty_collective = Collective(job, buffers, spoil)
    subject = CheckedCollective(
        buffers,
        wrap(faulty_collective, buffers.result),
        list_result_parts(collective, 2, 1, part),
        runs=1,
        depth=1,
    )
    faulty_collective.checks = checks = Checks(job, subject)
    job.other_result = other_result
    checks.run("now")
    checks.report()
    assert set(job.results) == ALL
    return job.list_failed(), checks.wrong


def change_nothing(_buffers, _run):
    """Make no error."""


@pytest.mark.parametrize("collective", ["allreduce", "reduce_scatter"])
@pytest.mark.parametrize("mode", ["blocking", "nonblocking"])
def test_correct_results_pass(collective, mode):
    assert run_checks(change_nothing, collective, mode) == (set(), 0)


def test_both_kinds_of_data_detect_a_wrong_element(messages):
    failed_checks, wrong = run_checks(change_nothing, wrap=CorruptingCollective)
    assert failed_checks == {"exact", "bound"}
    assert wrong == 2
    with messages.raises(CannotRunError):
        CorruptingCollective(None, torch.ones(0))


def test_detects_bits_that_differ_from_rank_0():
    assert run_checks(change_nothing, other_result=b"others")[0] == {"identical"}


def test_detects_runs_that_differ_in_a_scattered_result():
    def change_last_bit(buffers, run):
        if run == 4:
            last = buffers.result[-1:]
            last.copy_(torch.nextafter(last, torch.full_like(last, torch.inf)))

    assert run_checks(change_last_bit, "reduce_scatter")[0] == {"identical"}


def test_detects_a_changed_source():
    assert run_checks(lambda buffers, _: buffers.source[3].add_(1))[0] == {"inputs"}


def test_detects_writes_outside_of_the_result():
    def write_outside(buffers, _):
        result = buffers.result
        torch.as_strided(result, (1,), (1,), result.storage_offset() + result.numel()).fill_(0)

    assert run_checks(write_outside)[0] == {"inputs"}


def test_detects_a_missing_element():
    def leave_out(buffers, _):
        buffers.result[0] = float("nan")

    failed_checks, wrong = run_checks(leave_out)
    assert failed_checks == {"exact", "bound"}
    assert wrong == 2
