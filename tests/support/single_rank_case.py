"""A model's case on one rank, without a console: what it chooses, and what it checks."""

from types import SimpleNamespace

from mpi4py import MPI

from spbench_core.catalog import BENCHMARKS


class SingleRankCase:
    """The context of a case that validates a model of five classes by itself.

    Attributes:
        checks: Whether each check has passed, by name.
        choices: Value and reason of each choice, by name.
    """

    def __init__(self):
        self.world = SimpleNamespace(comm=MPI.COMM_SELF)
        self.entry = BENCHMARKS["model.resnet"]
        given = {"validate": "full", "scheme": "sequential", "num_classes": 5, "precision": "fp32"}
        self.params = self.entry.complete(given)
        self.checks = {}
        self.choices = {}

    def seed_for(self, *words):
        return len(words)

    def progress(self, *words):
        pass

    def check(self, name, error, tolerance, where):
        self.checks[name] = error <= tolerance

    def check_worst(self, name, worst):
        self.check(name, worst.error, worst.tolerance, worst.detail)

    def choice(self, name, value, reason):
        self.choices[name] = value, reason
