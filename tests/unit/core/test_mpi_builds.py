"""The name and version that an MPI library reports."""

import pytest

from spbench_core.mpi_builds import parse_library_name


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("MVAPICH2 Version      :\t2.3.7\nMVAPICH2 Release date  :\t...\n\0", "MVAPICH2 2.3.7"),
        ("MVAPICH Version:\t4.0\n", "MVAPICH 4.0"),
        ("MPICH Version:      5.0.2\nMPICH ABI:          18:2:6\n", "MPICH 5.0.2"),
        (
            "Open MPI v5.0.11, package: Open MPI root@x Distribution, ident: 5.0.11",
            "Open MPI v5.0.11",
        ),
        (
            "Intel(R) MPI Library 2021.18 for Linux* OS\n\0",
            "Intel(R) MPI Library 2021.18 for Linux* OS",
        ),
    ],
)
def test_the_version_is_a_single_line_without_tabs(text, expected):
    assert parse_library_name(text) == parse_library_name(expected) == expected
