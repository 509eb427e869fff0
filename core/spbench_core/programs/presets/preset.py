"""A preset: a program, its command line and its expected output."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Preset:
    """A program with a known output.

    Attributes:
        name: Its name in suites, such as ``osu_latency``.
        summary: A description in a few words.
        argv: Its default command line.
        expects: The parameters of `parse_expectation`: metrics, samples, table, json, must, never.
        versions: The versions with a captured output among the tests.
        np: The number of ranks that it runs on; None: any.
        per: The ranks that start it: all, the first of each host, or the first of the job.
        reads: The file with its results in its working folder; None: its output.
        env: Environment variables that it needs.
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
