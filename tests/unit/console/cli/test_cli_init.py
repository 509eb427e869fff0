"""``spbench init`` and suites named ``shipped:NAME``."""

from places import SUITES


def test_a_new_folder_gets_suites_and_hostfiles(spbench, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = spbench("init", "here")
    assert (done.status, done.err) == (0, "")
    assert done.out.splitlines()[-1].startswith("next: spbench run here/suites/halo.yaml")
    text = (tmp_path / "here" / "suites" / "halo.yaml").read_text()
    assert text == (SUITES / "halo.yaml").read_text()
    again = spbench("init", "here")
    assert "wrote 0 files" in again.out
    assert "stayed as before" in again.out


def test_a_shipped_suite_is_taken_by_its_name(spbench, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "no errors" in spbench("validate", "shipped:halo").out
    assert spbench("command", "shipped:smoke").status == 0
    done = spbench("run", "shipped:hallo")
    assert done.status == 2
    assert "did you mean halo?" in done.err
