"""The comparison of test ids before and after a change."""

from support.node_ids import compare, main, read_moves

BEFORE = ["tests/a.py::one", "tests/a.py::two[x|y]", "tests/b.py::three", "tests/c.py::four"]


def load_moves(tmp_path, text):
    path = tmp_path / "moved"
    path.write_text(text)
    return read_moves(path)


def test_missing_id_without_a_reason_is_lost(tmp_path, messages):
    moves = load_moves(tmp_path, "tests/a.py|tests/room/a.py|mirrors the code\n# a comment\n")
    after = ["tests/room/a.py::one", "tests/c.py::four", "tests/c.py::five"]
    lines, lost = compare(BEFORE, after, moves)
    messages.check(lines)
    assert lost == 2


def test_most_exact_line_names_the_new_id(tmp_path, messages):
    text = "tests|all|moved\ntests/a.py::two[x|y]|all/a.py::one|merged\ntests/b.py||covered\n"
    after = ["all/a.py::one", "all/c.py::four"]
    lines, lost = compare(BEFORE, after, load_moves(tmp_path, text))
    messages.check(lines)
    assert lost == 0


def test_rejects_a_line_without_a_reason(tmp_path, messages):
    with messages.raises(SystemExit):
        load_moves(tmp_path, "a|b|c\na|b|\n")


def test_exit_status_is_1_if_ids_are_lost(tmp_path, capsys, messages):
    for name, text in (("before", "a.py::x\na.py::y\n\n2 tests collected\n"), ("after", "a.py::x")):
        (tmp_path / name).write_text(text)
    (tmp_path / "moved").write_text("")
    arguments = [str(tmp_path / name) for name in ("before", "after", "moved")]
    assert main(arguments) == 1
    messages.check(capsys.readouterr().out)
    (tmp_path / "moved").write_text("a.py::y||no use\n")
    assert main(arguments) == 0
