"""Push a run's metrics to a push gateway of Prometheus."""

from __future__ import annotations

from http.client import HTTPException
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlsplit
from urllib.request import Request, urlopen

from spbench.errors import FailedRunError, UsageError

PATIENCE = 10.0
"""Seconds in which the gateway must answer."""
_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def push_metrics(text: str, gateway: str, suite: str) -> str:
    """Replace a suite's metrics in a gateway by this OpenMetrics text; return the URL.

    Raises:
        UsageError: The gateway's address is not an HTTP or HTTPS URL.
        FailedRunError: The gateway cannot be reached, does not answer, or rejects the text.
    """
    parts = urlsplit(gateway)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(f"--push {gateway}: write http://HOST:PORT, the gateway's address")
    address = f"{gateway.rstrip('/')}/metrics/job/spbench/suite/{quote(suite, safe='')}"
    request = Request(address, text.encode(), {"Content-Type": _TYPE}, method="PUT")
    try:
        with urlopen(request, timeout=PATIENCE):
            return address
    except HTTPError as error:
        answer = " ".join(error.read(500).decode(errors="replace").split())
        raise FailedRunError(f"{address} refused the figures: {error.code} {answer}") from None
    except (URLError, OSError, HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        raise FailedRunError(f"cannot push to {address}: {reason}; is the gateway up?") from None
