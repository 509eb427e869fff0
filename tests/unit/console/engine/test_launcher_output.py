"""What a launcher and its ranks have printed, as far as it is read."""

from pathlib import Path

from spbench.engine.faults.launcher_output import TAIL, read_output


def test_of_a_flood_the_end_alone_is_read(tmp_path: Path) -> None:
    with (tmp_path / "stderr.log").open("wb") as file:
        file.truncate(1 << 32)
        file.seek(0, 2)
        file.write(b"the last line\n")
    (tmp_path / "stdout.log").write_bytes(b"\xff said on stdout\n")
    output = read_output(tmp_path)
    assert "the last line" in output
    assert "said on stdout" in output
    assert len(output) < 2 * TAIL


def test_a_file_that_is_not_there_has_said_nothing(tmp_path: Path) -> None:
    assert read_output(tmp_path).strip() == ""
