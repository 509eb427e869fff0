"""Contexts that record the events of a benchmark."""

import json

from mpi4py import MPI

from spbench_core.catalog import BENCHMARKS
from spbench_workers.comm import World
from spbench_workers.context import Context


class RecordingChannel:
    def __init__(self):
        self.events = []

    def send(self, event, **fields):
        self.events.append(json.loads(json.dumps({"event": event, **fields})))


def make_context(benchmark, inject=None, **params):
    """Return a context with these parameters, on a world of one rank."""
    return make_rank_context(
        World(MPI.COMM_SELF, 0, 1, 0, "here", (0,), 1), benchmark, params, inject
    )


def make_rank_context(world, benchmark, params, inject=None):
    """Return the context of a rank of a world."""
    return Context(
        world,
        RecordingChannel(),
        case="case",
        benchmark=benchmark,
        params=BENCHMARKS[benchmark].complete(params),
        inject=inject,
    )


def select_events(context, *kinds):
    """Return the events that a context has sent, or only those of some kinds."""
    return [event for event in context._channel.events if not kinds or event["event"] in kinds]


def find_events(context, kind, **fields):
    """Return the events that a context has sent, of a kind and with these fields."""
    return [event for event in select_events(context, kind) if fields.items() <= event.items()]


def get_metric(context, metric):
    events = find_events(context, "metric", name=metric)
    (event,) = (event for event in events if "measured_by" not in event)
    return event["value"]


def get_choice(context, name):
    (event,) = find_events(context, "choice", name=name)
    return event["value"], event["reason"]
