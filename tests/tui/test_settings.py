"""What the console remembers, and what it says of a file that is wrong."""

import pytest

from spbench.errors import UsageError
from spbench.tui.settings import Settings, load_settings, save_settings, settings_path


def test_without_a_file_there_are_the_defaults(tmp_path):
    assert load_settings(tmp_path / "none.yaml") == Settings()


@pytest.mark.parametrize(
    "settings",
    [
        Settings(),
        Settings(theme="spbench-light"),
        Settings(refresh_hz=2, keys={"run.cancel": "X,delete"}),
    ],
)
def test_what_is_saved_is_read_back(tmp_path, settings):
    path = tmp_path / "deep" / "console.yaml"
    save_settings(path, settings)
    assert load_settings(path) == settings


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("refresh_hz: 50", "refresh_hz: 50 is not a number from 0.5 to 10"),
        ("refresh_hz: true", "refresh_hz: True is not a number"),
        ("them: dark", "there is no setting 'them' (did you mean theme?)"),
        ("theme: 3", "theme: 3 is not a text"),
        ("keys: [a]", "keys: ['a'] is no mapping"),
        ("keys: {run.cancel: 1}", "keys.run.cancel: 1 is not a text"),
        ("a: [", "this is no YAML file"),
        ("- a", "the file holds no mapping"),
    ],
)
def test_a_wrong_file_is_one_sentence_with_its_place(tmp_path, text, told):
    path = tmp_path / "console.yaml"
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        load_settings(path)
    assert str(caught.value).startswith(f"{path}: error: {told}")
    assert "\n" not in str(caught.value)


def test_the_place_is_the_users_config_folder_or_what_the_environment_says(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert settings_path({}) == tmp_path / "spbench" / "console.yaml"
    assert settings_path({"SPBENCH_CONFIG": "/x/y.yaml"}).as_posix() == "/x/y.yaml"
