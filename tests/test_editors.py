"""The published schema in a real YAML language server: completion, help, errors."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spbench.suites.json_schema import SCHEMA_FILE
from spbench_core.catalog import BENCHMARKS
from spbench_core.catalog.parameters import UNSWEPT_KINDS

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(180),
    pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed"),
]
PACKAGE = "yaml-language-server@1.25.0"
UNREACHABLE = ("ENOTFOUND", "EAI_AGAIN", "ECONNREFUSED", "ETIMEDOUT", "ENETUNREACH")
HEAD = f"""\
# yaml-language-server: $schema={SCHEMA_FILE.as_uri()}
schema: spbench.suite/1
name: t
cases:
  - name: a
    benchmark: halo.exchange
"""


class LanguageServer:
    """A client of the language server protocol, version 3, over stdin and stdout."""

    def __init__(self, program: Path) -> None:
        self._process = subprocess.Popen(
            [program, "--stdio"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._request_id = 0
        self._documents = 0
        self._diagnostics: dict[str, list[dict[str, Any]]] = {}
        self.request("initialize", processId=None, rootUri=None, capabilities={})
        self._send(method="initialized", params={})

    def open(self, text: str) -> str:
        """Open a document with this text, and return its address."""
        self._documents += 1
        uri = f"file:///tmp/{self._documents}.yaml"
        document = {"uri": uri, "languageId": "yaml", "version": 1, "text": text}
        self._send(method="textDocument/didOpen", params={"textDocument": document})
        return uri

    def request_position(self, method: str, text: str) -> Any:
        """Make a request at the position of | in a text, without this character."""
        before = text.partition("|")[0]
        position = {"line": before.count("\n"), "character": len(before.rpartition("\n")[2])}
        uri = self.open(text.replace("|", ""))
        return self.request(f"textDocument/{method}", textDocument={"uri": uri}, position=position)

    def list_diagnostics(self, text: str) -> list[dict[str, Any]]:
        """Return the errors that the server reports for a text."""
        uri = self.open(text)
        while uri not in self._diagnostics:
            self._read_message()
        return self._diagnostics[uri]

    def request(self, method: str, **params: Any) -> Any:
        self._request_id += 1
        self._send(id=self._request_id, method=method, params=params)
        while True:
            message = self._read_message()
            if message.get("id") == self._request_id and "method" not in message:
                return message["result"]

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()

    def _read_message(self) -> dict[str, Any]:
        """Read one message, and answer a request of the server with null."""
        assert self._process.stdout is not None
        length = 0
        while header := self._process.stdout.readline().strip():
            name, _, value = header.partition(b":")
            length = int(value) if name.lower() == b"content-length" else length
        assert length, "the language server has ended"
        message: dict[str, Any] = json.loads(self._process.stdout.read(length))
        if message.get("method") == "textDocument/publishDiagnostics":
            self._diagnostics[message["params"]["uri"]] = message["params"]["diagnostics"]
        elif "method" in message and "id" in message:
            items = (message.get("params") or {}).get("items", [])
            self._send(id=message["id"], result=[None] * len(items))
        return message

    def _send(self, **message: Any) -> None:
        assert self._process.stdin is not None
        body = json.dumps({"jsonrpc": "2.0"} | message).encode()
        self._process.stdin.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
        self._process.stdin.flush()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LanguageServer]:
    folder = tmp_path_factory.mktemp("npm")
    completed = subprocess.run(
        ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(folder), PACKAGE],
        capture_output=True,
        text=True,
        check=False,
    )
    if any(text in completed.stderr for text in UNREACHABLE):
        pytest.skip(
            f"no package registry has {PACKAGE} from here: {completed.stderr.splitlines()[0]}"
        )
    assert completed.returncode == 0, completed.stderr
    client = LanguageServer(folder / "node_modules" / ".bin" / "yaml-language-server")
    yield client
    client.close()


def read_labels(answer: Any) -> dict[str, str]:
    """Return the labels that a completion offers, each with its help."""
    items = answer["items"] if isinstance(answer, dict) else answer
    return {item["label"]: item.get("documentation", "") for item in items}


@pytest.mark.parametrize("name", BENCHMARKS)
def test_completion_offers_parameters_with_help(server: LanguageServer, name: str) -> None:
    head = HEAD.replace("halo.exchange", name)
    params = BENCHMARKS[name].params
    labels = read_labels(server.request_position("completion", f"{head}    params:\n      |\n"))
    assert {param.name: param.help for param in params}.items() <= labels.items()
    labels = read_labels(server.request_position("completion", f"{head}    matrix:\n      |\n"))
    swept = {param.name: param.help for param in params if param.kind not in UNSWEPT_KINDS}
    assert swept.items() <= labels.items()
    assert not {param.name for param in params} - set(swept) & set(labels)


def test_completion_omits_parameters_of_other_benchmarks(server: LanguageServer) -> None:
    labels = read_labels(server.request_position("completion", f"{HEAD}    params:\n      |\n"))
    assert "halo_len" in labels
    assert "pairs" not in labels


def test_completion_offers_choices_and_benchmarks(server: LanguageServer) -> None:
    labels = read_labels(
        server.request_position("completion", f"{HEAD}    params:\n      slice_method: |\n")
    )
    assert {"vertical", "horizontal", "square"} <= set(labels)
    labels = read_labels(server.request_position("completion", HEAD.replace("halo.exchange", "|")))
    assert {name: entry.summary for name, entry in BENCHMARKS.items()}.items() <= labels.items()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("    params: {halo_|len: 3}\n", "width of the halo on each side in pixels"),
        ("    matrix: {halo_|len: [3]}\n", "width of the halo on each side in pixels"),
        ("    repe|at: 3\n", "number of times that the case runs"),
    ],
)
def test_hover_explains_a_key(server: LanguageServer, line: str, expected: str) -> None:
    assert expected in str(server.request_position("hover", HEAD + line)["contents"])


def test_hover_explains_a_benchmark(server: LanguageServer) -> None:
    answer = server.request_position("hover", HEAD.replace("halo.ex", "halo.e|x"))
    assert BENCHMARKS["halo.exchange"].summary in str(answer["contents"])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("    params: {halo_le: 3}\n", "halo_le"),
        ("    params: {halo_len: 0}\n", "minimum"),
        ("    params: {slice_method: vertcal}\n", "Value is not accepted"),
        ("    matrix: {pairs: [all]}\n", "pairs"),
    ],
)
def test_error_is_reported_in_its_line(server: LanguageServer, line: str, message: str) -> None:
    assert server.list_diagnostics(HEAD) == []
    (diagnostic,) = server.list_diagnostics(HEAD + line)
    assert message in diagnostic["message"]
    assert diagnostic["range"]["start"]["line"] == HEAD.count("\n")
