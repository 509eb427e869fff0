"""The raw output of a job."""

import os

from spbench.record.runs.folder import RunFolder
from spbench.record.runs.job_output import read_job_output


def write_streams(tmp_path, **streams):
    folder = RunFolder(tmp_path)
    for name, content in streams.items():
        (folder.create_job_folder(1) / f"{name}.log").write_bytes(content)
    return folder


def test_shows_both_streams_but_no_empty_one(tmp_path):
    folder = write_streams(tmp_path, stdout=b"begun\n", stderr=b"MPI_ABORT\n\0")
    ends = read_job_output(folder, 1)
    assert [(end.name, end.text) for end in ends] == [
        ("stdout", "begun\n"),
        ("stderr", "MPI_ABORT\n"),
    ]
    assert ends[0].title == f"stdout ({tmp_path}/jobs/1/stdout.log)"
    write_streams(tmp_path, stdout=b" \n")
    assert [end.name for end in read_job_output(folder, 1)] == ["stderr"]


def test_long_stream_shows_the_last_whole_lines(tmp_path):
    folder = write_streams(tmp_path, stdout=b"first line\nsecond\nthird\n")
    (end,) = read_job_output(folder, 1, max_bytes=15)
    assert (end.text, end.left_out) == ("second\nthird\n", 11)
    assert end.title.endswith("stdout.log, without its first 11 bytes)")


def test_replaces_control_characters_and_invalid_bytes(tmp_path):
    (end,) = read_job_output(write_streams(tmp_path, stderr=b"\x1b[31mred\xff\n"), 1)
    assert end.text == "?[31mred\ufffd\n"


def test_unknown_jobs_and_pipes_have_no_output(tmp_path):
    folder = write_streams(tmp_path)
    assert read_job_output(folder, None) == read_job_output(folder, 7) == []
    os.mkfifo(folder.create_job_folder(1) / "stdout.log")
    assert read_job_output(folder, 1) == []
