"""The word that a console leaves before it cancels a run."""

from spbench.record.runs.cancel import cancelled_where, forget_cancel, leave_word
from spbench.record.runs.folder import RunFolder


def test_a_word_is_left_and_forgotten(tmp_path):
    folder = RunFolder(tmp_path)
    assert cancelled_where(folder) is None
    leave_word(folder)
    assert cancelled_where(folder) == "in the console"
    forget_cancel(folder)
    forget_cancel(folder)
    assert cancelled_where(folder) is None


def test_a_run_that_cannot_be_written_is_cancelled_all_the_same(tmp_path):
    leave_word(RunFolder(tmp_path / "gone"))
    (tmp_path / "cancel.json").write_text("[]")
    assert cancelled_where(RunFolder(tmp_path)) is None
