"""The context of a model's case on one rank: it records choices and checks."""

from types import SimpleNamespace

from mpi4py import MPI

from spbench_core.catalog import BENCHMARKS


class SingleRankContext:
    """The context of a case that validates a model with five classes on one rank.

    Attributes:
        checks: Whether each check has passed, by name.
        choices: Value and reason of each choice, by name.
    """

    def __init__(self):
        self.world = SimpleNamespace(comm=MPI.COMM_SELF)
        self.entry = BENCHMARKS["model.resnet"]
        params = {"validate": "full", "scheme": "sequential", "num_classes": 5, "precision": "fp32"}
        self.params = self.entry.complete(params)
        self.checks = {}
        self.choices = {}

    def seed_for(self, *parts):
        return len(parts)

    def progress(self, *args):
        pass

    def check(self, name, error, tolerance, where):
        self.checks[name] = error <= tolerance

    def check_worst(self, name, worst):
        self.check(name, worst.error, worst.tolerance, worst.detail)

    def choice(self, name, value, reason):
        self.choices[name] = value, reason
