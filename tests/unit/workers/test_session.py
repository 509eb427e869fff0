"""The events of a rank whose case could not run."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from spbench_core.catalog import BENCHMARKS
from spbench_parallel.errors import CannotRunError
from spbench_workers.session import run_case


class _NoWarpError(CannotRunError):
    missing = True


class _Channel:
    """Stands in for the connection to the console: keeps what is sent."""

    def __init__(self):
        self.sent = []

    def send(self, event, **fields):
        self.sent.append((event, fields))


def ended(error):
    """Run a case that raises; return what its end says of it."""

    def runner(_):
        raise error

    channel = _Channel()
    params = BENCHMARKS["compute.gemm"].complete({})
    case = {"id": "a", "benchmark": "compute.gemm", "params": params, "repeat": 0}
    with pytest.raises(type(error)):
        run_case(SimpleNamespace(rank=0, size=1), channel, case, runner)
    kind, fields = channel.sent[-1]
    assert (kind, fields["status"]) == ("case_end", "error")
    return fields["error"]


@pytest.mark.parametrize(("kind", "missing"), [(CannotRunError, False), (_NoWarpError, True)])
def test_a_case_that_cannot_run_is_a_sentence_without_the_name_of_a_class(kind, missing):
    told = ended(kind("there is no warp; take impulse"))
    assert told["message"] == "there is no warp; take impulse"
    assert (told["type"], told["missing"]) == (kind.__name__, missing)
    assert "Traceback" in told["traceback"]


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ValueError("no warp\nat all"), "ValueError: no warp"),
        (ValueError(), "ValueError"),
        (CannotRunError(), "CannotRunError"),
    ],
)
def test_other_errors_keep_their_class(error, message):
    told = ended(error)
    assert (told["message"], told["missing"]) == (message, False)
