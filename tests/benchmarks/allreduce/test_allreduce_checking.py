"""Each check of a collective notices what it is there for, and nothing else."""

from types import SimpleNamespace

import pytest
import torch

from spbench_parallel.errors import CannotRunError
from spbench_workers.benchmarks.allreduce.buffers import Buffers
from spbench_workers.benchmarks.allreduce.sweep import WrongElement
from spbench_workers.benchmarks.allreduce.verification.checking import CheckedCollective, Checks
from spbench_workers.benchmarks.allreduce.verification.data import fill
from spbench_workers.benchmarks.allreduce.verification.expected import (
    compute_expected,
    list_result_parts,
)
from unit.typed_params import TypedParams

COUNT = 10
ALL = {"exact", "bound", "identical", "inputs"}


class Job(TypedParams):
    """A context of rank 1 of two, whose other rank has the right result."""

    def __init__(self, collective, mode):
        self.params = {"collective": collective, "mode": mode, "op": "sum"}
        self.world = SimpleNamespace(rank=1, size=2, comm=self)
        self.told = {}
        self.right = b""

    def seed_for(self, *words):
        return sum(map(ord, "".join(map(str, words))))

    def progress(self, *_):
        pass

    def allgather(self, mine):
        return [self.right or mine, mine]

    def check(self, name, error, tolerance=0.0, detail=""):
        self.told[name] = (error <= tolerance, detail)

    def check_worst(self, name, worst):
        self.check(name, worst.error, worst.tolerance, worst.detail)

    def failed(self):
        return {name for name, (passed, _) in self.told.items() if not passed}


class Collective:
    """Brings about what it must, by the same reference, and then does one thing wrong."""

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
        numbers = self.checks._numbers[name]
        [piece] = list_result_parts(
            self.job.params["collective"], 2, 1, self.buffers.result.numel()
        )
        values = compute_expected(
            numbers, (0, 1), lambda rank: self.checks.draw_input(name, "now 0", rank), 1
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


def failed(spoil, collective="allreduce", mode="blocking", wrap=lambda one, _: one, right=b""):
    job = Job(collective, mode)
    part = COUNT if collective == "allreduce" else COUNT // 2
    buffers = Buffers(COUNT, part, None, torch.float64, torch.device("cpu"))
    doing = Collective(job, buffers, spoil)
    subject = CheckedCollective(
        buffers,
        wrap(doing, buffers.result),
        list_result_parts(collective, 2, 1, part),
        runs=1,
        depth=1,
    )
    doing.checks = checks = Checks(job, subject)
    job.right = right
    checks.run("now")
    checks.report()
    assert set(job.told) == ALL
    return job.failed(), checks.wrong


def well(_buffers, _run):
    """Nothing is spoilt."""


@pytest.mark.parametrize("collective", ["allreduce", "reduce_scatter"])
@pytest.mark.parametrize("mode", ["blocking", "nonblocking"])
def test_what_is_right_passes(collective, mode):
    assert failed(well, collective, mode) == (set(), 0)


def test_a_wrong_element_is_wrong_in_both_kinds_of_data():
    found, wrong = failed(well, wrap=WrongElement)
    assert found == {"exact", "bound"}
    assert wrong == 2
    with pytest.raises(CannotRunError, match="the result has no elements"):
        WrongElement(None, torch.ones(0))


def test_bits_that_differ_from_rank_0s_are_noticed():
    assert failed(well, right=b"others")[0] == {"identical"}


def test_two_runs_that_differ_are_noticed_where_each_rank_has_a_part_of_its_own():
    def last_bit(buffers, run):
        if run == 4:
            last = buffers.result[-1:]
            last.copy_(torch.nextafter(last, torch.full_like(last, torch.inf)))

    assert failed(last_bit, "reduce_scatter")[0] == {"identical"}


def test_a_changed_source_is_noticed():
    assert failed(lambda buffers, _: buffers.source[3].add_(1))[0] == {"inputs"}


def test_what_is_written_beside_the_result_is_noticed():
    def beside(buffers, _):
        whole = buffers.result
        torch.as_strided(whole, (1,), (1,), whole.storage_offset() + whole.numel()).fill_(0)

    assert failed(beside)[0] == {"inputs"}


def test_an_element_that_is_left_out_is_wrong():
    def left_out(buffers, _):
        buffers.result[0] = float("nan")

    found, wrong = failed(left_out)
    assert found == {"exact", "bound"}
    assert wrong == 2
