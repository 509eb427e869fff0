"""The request that a console writes before it cancels a run."""

from spbench.engine.stop import read_cancel_origin, remove_cancel_request, request_cancel
from spbench.record.runs.folder import RunFolder


def test_cancel_request_is_written_and_removed(tmp_path):
    folder = RunFolder(tmp_path)
    assert read_cancel_origin(folder) is None
    request_cancel(folder)
    assert read_cancel_origin(folder) == "in the console"
    remove_cancel_request(folder)
    remove_cancel_request(folder)
    assert read_cancel_origin(folder) is None


def test_request_ignores_unwritable_folder_and_invalid_file(tmp_path):
    request_cancel(RunFolder(tmp_path / "gone"))
    (tmp_path / "cancel.json").write_text("[]")
    assert read_cancel_origin(RunFolder(tmp_path)) is None
