import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from spbench.errors import FailedRunError, UsageError
from spbench.report.push import push_metrics


@pytest.fixture
def gateway():
    """A push gateway that keeps what it gets, and refuses a text without its end."""
    got = []

    class Gateway(BaseHTTPRequestHandler):
        def do_PUT(self):
            text = self.rfile.read(int(self.headers["Content-Length"])).decode()
            got.append((self.path, self.headers["Content-Type"], text))
            self.send_response(202 if text.endswith("# EOF\n") else 400)
            self.end_headers()
            if not text.endswith("# EOF\n"):
                self.wfile.write(b"text format\nparsing error")

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Gateway)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", got
    server.shutdown()
    thread.join()
    server.server_close()


def test_figures_replace_those_of_the_suite(gateway):
    address, got = gateway
    assert push_metrics("a 1\n# EOF\n", f"{address}/", "my suite/2").startswith(address)
    ((path, kind, text),) = got
    assert path == "/metrics/job/spbench/suite/my%20suite%2F2"
    assert kind.startswith("text/plain")
    assert text == "a 1\n# EOF\n"


def test_a_gateway_that_refuses_is_told_with_its_words(gateway):
    address, _ = gateway
    with pytest.raises(FailedRunError, match="refused the figures: 400 text format parsing error"):
        push_metrics("a 1\n", address, "s")


def test_a_gateway_that_is_not_there_is_a_sentence():
    with pytest.raises(FailedRunError, match=r"cannot push to http://127\.0\.0\.1:1/.*is the gate"):
        push_metrics("", "http://127.0.0.1:1", "s")


@pytest.mark.parametrize("address", ["gateway:9091", "ftp://gateway", "http://", "file:///etc"])
def test_only_addresses_of_http_are_taken(address):
    with pytest.raises(UsageError, match="write http://HOST:PORT"):
        push_metrics("", address, "s")
