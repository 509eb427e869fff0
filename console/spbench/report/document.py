"""A report that is written case by case, so that it needs little memory.

The JSON text of a case is kept compressed. It takes a tenth of the memory of Python objects.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

CASES = "cases"
_FASTEST_LEVEL = 1
"""zlib's level; higher levels take several times as long, and save a fifth of the bytes."""


class PackedCases:
    """JSON objects of cases, each as compressed text.

    Args:
        texts: The cases, each from `dump_json`.
    """

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self._packed = [_compress(text) for text in texts]

    def append(self, text: str) -> None:
        """Add a case, from `dump_json`."""
        self._packed.append(_compress(text))

    def __len__(self) -> int:
        return len(self._packed)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return map(json.loads, self.texts())

    def texts(self) -> Iterator[str]:
        """Yield the text of each case, as `dump_json` returned it."""
        return (zlib.decompress(packed).decode() for packed in self._packed)


def _compress(text: str) -> bytes:
    return zlib.compress(text.encode(), _FASTEST_LEVEL)


class ReportDocument:
    """A report with packed cases.

    Args:
        head: The JSON object of the report; the value of ``cases`` is not used.
        cases: Its cases.
    """

    def __init__(self, head: Mapping[str, Any], cases: PackedCases) -> None:
        self._head = dict(head)
        self.cases = cases

    @classmethod
    def from_json(cls, report: Mapping[str, Any]) -> ReportDocument:
        """Return the document of a complete report."""
        return cls(report, PackedCases(map(dump_json, report[CASES])))

    @property
    def head(self) -> Mapping[str, Any]:
        """The JSON object of the report, without its cases."""
        return self._head | {CASES: []}

    def replace_head(self, head: Mapping[str, Any]) -> ReportDocument:
        """Return the same cases in another report."""
        return ReportDocument(head, self.cases)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object of the complete report."""
        return self._head | {CASES: list(self.cases)}

    def chunks(self, *, with_samples: bool = True) -> Iterator[str]:
        """Yield the text of the report, as ``json.dumps(report, indent=1)`` writes it.

        Args:
            with_samples: Whether samples of cases are included.
        """
        separator = "{"
        for name, value in self._head.items():
            yield f"{separator}\n {json.dumps(name)}: "
            if name == CASES:
                yield from self._case_chunks(with_samples=with_samples)
            else:
                yield _indent(dump_json(value), 1)
            separator = ","
        yield "\n}\n"

    def _case_chunks(self, *, with_samples: bool) -> Iterator[str]:
        separator = "["
        for text in self.cases.texts():
            if not with_samples:
                text = dump_json(json.loads(text) | {"samples": {}})
            yield f"{separator}\n  "
            yield _indent(text, 2)
            separator = ","
        yield "\n ]" if self.cases else "[]"


def dump_json(value: object) -> str:
    """Return the JSON text of a value in the style of reports, without indentation."""
    return json.dumps(value, indent=1, allow_nan=False)


def _indent(text: str, depth: int) -> str:
    # Line breaks within strings are escaped, so that each one here is between two values.
    return text.replace("\n", "\n" + depth * " ")
