"""Output of a launcher and its ranks, of which only the end is read."""

from pathlib import Path

from spbench.engine.faults.launcher_output import TAIL_BYTES, read_output


def test_reads_only_the_end_of_a_large_output(tmp_path: Path) -> None:
    with (tmp_path / "stderr.log").open("wb") as file:
        file.truncate(1 << 32)
        file.seek(0, 2)
        file.write(b"the last line\n")
    (tmp_path / "stdout.log").write_bytes(b"\xff said on stdout\n")
    output = read_output(tmp_path)
    assert "the last line" in output
    assert "said on stdout" in output
    assert len(output) < 2 * TAIL_BYTES


def test_missing_file_is_empty_output(tmp_path: Path) -> None:
    assert read_output(tmp_path).strip() == ""
