import pytest

from spbench_workers import comm


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("/usr/lib/x86_64-linux-gnu/libtcmalloc_minimal.so.4.5.10", "tcmalloc"),
        ("/opt/lib/libjemalloc.so.2", "jemalloc"),
        ("/opt/lib/libmimalloc.so.2.1", "mimalloc"),
        ("/venv/lib/libtbbmalloc_proxy.so.2", "tbbmalloc"),
    ],
)
def test_identifies_a_loaded_allocator(tmp_path, monkeypatch, line, name):
    maps = tmp_path / "maps"
    maps.write_text(f"7f00-7f01 r-xp 00000000 08:01 1 /usr/lib/libc.so.6\n7f02-7f03 r-xp {line}\n")
    monkeypatch.setattr(comm, "_MAPS", maps)
    assert comm.find_allocator() == name


def test_defaults_to_the_allocator_of_the_c_library(tmp_path, monkeypatch):
    monkeypatch.setattr(comm, "_MAPS", tmp_path / "none")
    assert comm.find_allocator().startswith("glibc 2.")
