"""Figures pushed to a gateway of Prometheus."""

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from spbench.errors import FailedRunError, UsageError
from spbench.report.formats.openmetrics import push_metrics


@pytest.fixture
def gateway():
    """Start a push gateway that keeps requests and rejects a text without its end."""
    requests = []

    class Gateway(BaseHTTPRequestHandler):
        def do_PUT(self):
            text = self.rfile.read(int(self.headers["Content-Length"])).decode()
            requests.append((self.path, self.headers["Content-Type"], text))
            self.send_response(202 if text.endswith("# EOF\n") else 400)
            self.end_headers()
            if not text.endswith("# EOF\n"):
                self.wfile.write(b"text format\nparsing error")

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Gateway)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", requests
    server.shutdown()
    thread.join()
    server.server_close()


def test_pushes_figures_under_the_suite_name(gateway):
    address, requests = gateway
    assert push_metrics("a 1\n# EOF\n", f"{address}/", "my suite/2").startswith(address)
    ((path, content_type, text),) = requests
    assert path == "/metrics/job/spbench/suite/my%20suite%2F2"
    assert content_type.startswith("text/plain")
    assert text == "a 1\n# EOF\n"


def test_reports_the_answer_of_a_rejecting_gateway(gateway):
    address, _ = gateway
    with pytest.raises(FailedRunError, match="refused the figures: 400 text format parsing error"):
        push_metrics("a 1\n", address, "s")


def test_reports_an_unreachable_gateway(messages):
    with messages.raises(FailedRunError):
        push_metrics("", "http://127.0.0.1:1", "s")


@pytest.mark.parametrize("address", ["gateway:9091", "ftp://gateway", "http://", "file:///etc"])
def test_rejects_addresses_other_than_http(address):
    with pytest.raises(UsageError, match="write http://HOST:PORT"):
        push_metrics("", address, "s")
