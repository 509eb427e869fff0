"""Files in the folder of a batch job, which other users may have written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from spbench.batch.plan_file import read_plan
from spbench.errors import UsageError
from spbench_core.events.batch_files import (
    CASES_FILE,
    MAX_CASES_BYTES,
    MAX_WORDS_BYTES,
    read_cases,
    read_words,
)

pytestmark = pytest.mark.timeout(10)


def test_does_not_wait_for_a_pipe(tmp_path: Path, messages) -> None:
    for name in ("started", CASES_FILE, "plan.json"):
        os.mkfifo(tmp_path / name)
    assert read_words(tmp_path / "started") == []
    assert read_cases(tmp_path) == []
    with messages.raises(UsageError):
        read_plan(tmp_path)


def test_ignores_a_file_that_is_too_large(tmp_path: Path) -> None:
    for name, limit in (("started", MAX_WORDS_BYTES), (CASES_FILE, MAX_CASES_BYTES)):
        (tmp_path / name).touch()
        os.truncate(tmp_path / name, limit + 1)
    assert read_words(tmp_path / "started") == []
    assert read_cases(tmp_path) == []


def test_reads_words_and_cases(tmp_path: Path) -> None:
    (tmp_path / "started").write_text("1000.5 TERM\n")
    (tmp_path / CASES_FILE).write_text('[{"id": "a"}]')
    assert read_words(tmp_path / "started") == ["1000.5", "TERM"]
    assert read_cases(tmp_path) == [{"id": "a"}]
