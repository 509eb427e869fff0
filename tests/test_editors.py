"""The published schema in a real language server for YAML: completion, help and mistakes."""

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
    """A client of the language server protocol, version 3, over the server's stdin and stdout."""

    def __init__(self, program: Path) -> None:
        self._process = subprocess.Popen(
            [program, "--stdio"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._asked = 0
        self._documents = 0
        self._mistakes: dict[str, list[dict[str, Any]]] = {}
        self.ask("initialize", processId=None, rootUri=None, capabilities={})
        self._send(method="initialized", params={})

    def open(self, text: str) -> str:
        """Open a document of that text, and return its address."""
        self._documents += 1
        uri = f"file:///tmp/{self._documents}.yaml"
        document = {"uri": uri, "languageId": "yaml", "version": 1, "text": text}
        self._send(method="textDocument/didOpen", params={"textDocument": document})
        return uri

    def ask_at(self, method: str, text: str) -> Any:
        """Ask about the place in a text where | stands, which is taken out."""
        before = text.partition("|")[0]
        place = {"line": before.count("\n"), "character": len(before.rpartition("\n")[2])}
        uri = self.open(text.replace("|", ""))
        return self.ask(f"textDocument/{method}", textDocument={"uri": uri}, position=place)

    def mistakes(self, text: str) -> list[dict[str, Any]]:
        """Return the mistakes that the server finds in a text."""
        uri = self.open(text)
        while uri not in self._mistakes:
            self._take()
        return self._mistakes[uri]

    def ask(self, method: str, **params: Any) -> Any:
        self._asked += 1
        self._send(id=self._asked, method=method, params=params)
        while True:
            message = self._take()
            if message.get("id") == self._asked and "method" not in message:
                return message["result"]

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()

    def _take(self) -> dict[str, Any]:
        """Read one message; a request of the server's is answered with nothing."""
        assert self._process.stdout is not None
        length = 0
        while head := self._process.stdout.readline().strip():
            name, _, value = head.partition(b":")
            length = int(value) if name.lower() == b"content-length" else length
        assert length, "the language server has ended"
        message: dict[str, Any] = json.loads(self._process.stdout.read(length))
        if message.get("method") == "textDocument/publishDiagnostics":
            self._mistakes[message["params"]["uri"]] = message["params"]["diagnostics"]
        elif "method" in message and "id" in message:
            asked = (message.get("params") or {}).get("items", [])
            self._send(id=message["id"], result=[None] * len(asked))
        return message

    def _send(self, **message: Any) -> None:
        assert self._process.stdin is not None
        body = json.dumps({"jsonrpc": "2.0"} | message).encode()
        self._process.stdin.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
        self._process.stdin.flush()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LanguageServer]:
    folder = tmp_path_factory.mktemp("npm")
    done = subprocess.run(
        ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(folder), PACKAGE],
        capture_output=True,
        text=True,
        check=False,
    )
    if any(word in done.stderr for word in UNREACHABLE):
        pytest.skip(f"no package registry has {PACKAGE} from here: {done.stderr.splitlines()[0]}")
    assert done.returncode == 0, done.stderr
    opened = LanguageServer(folder / "node_modules" / ".bin" / "yaml-language-server")
    yield opened
    opened.close()


def labels(answer: Any) -> dict[str, str]:
    """The words that a completion offers, each with its help."""
    items = answer["items"] if isinstance(answer, dict) else answer
    return {item["label"]: item.get("documentation", "") for item in items}


@pytest.mark.parametrize("name", BENCHMARKS)
def test_every_parameter_is_offered_with_its_help(server: LanguageServer, name: str) -> None:
    head = HEAD.replace("halo.exchange", name)
    params = BENCHMARKS[name].params
    found = labels(server.ask_at("completion", f"{head}    params:\n      |\n"))
    assert {param.name: param.help for param in params}.items() <= found.items()
    found = labels(server.ask_at("completion", f"{head}    matrix:\n      |\n"))
    swept = {param.name: param.help for param in params if param.kind not in UNSWEPT_KINDS}
    assert swept.items() <= found.items()
    assert not {param.name for param in params} - set(swept) & set(found)


def test_parameters_of_other_benchmarks_are_not_offered(server: LanguageServer) -> None:
    found = labels(server.ask_at("completion", f"{HEAD}    params:\n      |\n"))
    assert "halo_len" in found
    assert "pairs" not in found


def test_choices_and_benchmarks_are_offered(server: LanguageServer) -> None:
    found = labels(server.ask_at("completion", f"{HEAD}    params:\n      slice_method: |\n"))
    assert {"vertical", "horizontal", "square"} <= set(found)
    found = labels(server.ask_at("completion", HEAD.replace("halo.exchange", "|")))
    assert {name: entry.summary for name, entry in BENCHMARKS.items()}.items() <= found.items()


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("    params: {halo_|len: 3}\n", "pixels of halo on each side"),
        ("    matrix: {halo_|len: [3]}\n", "pixels of halo on each side"),
        ("    repe|at: 3\n", "how often each case runs"),
    ],
)
def test_a_key_is_explained(server: LanguageServer, line: str, told: str) -> None:
    assert told in str(server.ask_at("hover", HEAD + line)["contents"])


def test_a_benchmark_is_explained(server: LanguageServer) -> None:
    answer = server.ask_at("hover", HEAD.replace("halo.ex", "halo.e|x"))
    assert BENCHMARKS["halo.exchange"].summary in str(answer["contents"])


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("    params: {halo_le: 3}\n", "halo_le"),
        ("    params: {halo_len: 0}\n", "minimum"),
        ("    params: {slice_method: vertcal}\n", "Value is not accepted"),
        ("    matrix: {pairs: [all]}\n", "pairs"),
    ],
)
def test_a_mistake_is_marked_in_its_line(server: LanguageServer, line: str, told: str) -> None:
    assert server.mistakes(HEAD) == []
    (mistake,) = server.mistakes(HEAD + line)
    assert told in mistake["message"]
    assert mistake["range"]["start"]["line"] == HEAD.count("\n")
