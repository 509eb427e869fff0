"""A preset: a program, how it is started, and what its output is expected to hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Preset:
    """A program whose output is known.

    Attributes:
        name: Its name in suites, ``osu_latency``.
        summary: What it measures, in a few words.
        argv: The words that start it, where a case gives none.
        expects: What `expectation_of` takes: metrics, samples, table, json, must, never.
        versions: The versions of which a captured output stands among the tests.
        np: The number of ranks that it runs on; None: any.
        per: Who starts it: each rank, the first rank of each host, or the first rank of the job.
        reads: The file that it writes its results to, in its working folder; None: its output.
        env: Variables that it needs.
    """

    name: str
    summary: str
    argv: tuple[str, ...]
    expects: Mapping[str, Any]
    versions: tuple[str, ...]
    np: int | None = None
    per: Literal["rank", "host", "job"] = "rank"
    reads: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
