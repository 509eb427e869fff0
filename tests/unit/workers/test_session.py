"""The events of a rank after a case that could not run."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from spbench_core.catalog import BENCHMARKS
from spbench_parallel.errors import CannotRunError
from spbench_workers.session import run_case


class _NoWarpError(CannotRunError):
    missing = True


class _Channel:
    """A channel that keeps the events."""

    def __init__(self):
        self.events = []

    def send(self, event, **fields):
        self.events.append((event, fields))


def run_failing_case(error):
    """Run a case that raises; return the error in the event of its end."""

    def runner(_):
        raise error

    channel = _Channel()
    params = BENCHMARKS["compute.gemm"].complete({})
    case = {"id": "a", "benchmark": "compute.gemm", "params": params, "repeat": 0}
    with pytest.raises(type(error)):
        run_case(SimpleNamespace(rank=0, size=1), channel, case, runner)
    kind, fields = channel.events[-1]
    assert (kind, fields["status"]) == ("case_end", "error")
    return fields["error"]


@pytest.mark.parametrize(("kind", "missing"), [(CannotRunError, False), (_NoWarpError, True)])
def test_the_message_of_cannot_run_has_no_class_name(kind, missing, messages):
    error = run_failing_case(kind("there is no warp; take impulse"))
    messages.check(error["message"])
    assert (error["type"], error["missing"]) == (kind.__name__, missing)
    assert "Traceback" in error["traceback"]


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ValueError("no warp\nat all"), "ValueError: no warp"),
        (ValueError(), "ValueError"),
        (CannotRunError(), "CannotRunError"),
    ],
)
def test_other_errors_keep_their_class(error, message):
    fields = run_failing_case(error)
    assert (fields["message"], fields["missing"]) == (message, False)
