"""Settings that the console saves, and invalid settings files."""

import os

import pytest

from spbench.errors import UsageError
from spbench.tui.dialogs import AskLine
from spbench.tui.guide.actions import collect_action_ids
from spbench.tui.settings import (
    Settings,
    check_action_ids,
    find_settings_path,
    has_explicit_path,
    load_settings,
    save_setting,
)
from spbench.tui.settings_dialogs import ThemeChooser
from support.tui.app_driver import make_console, read_screen, wait_until

THEMES = ("spbench-dark", "spbench-light")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "console.yaml"


def load(path):
    return load_settings(path, THEMES)


def test_missing_file_gives_the_defaults(path):
    assert load(path).settings == Settings()
    assert load(path).errors == ()


def test_rejects_a_huge_file(path):
    path.touch()
    os.truncate(path, 40 * 10**9)
    (error,) = load(path).errors
    assert error == f"cannot read {path}: it has more than 1 MiB"


def test_loads_all_settings(path):
    path.write_text(
        "theme: spbench-light\nrefresh_hz: 2\nkeys: {run.cancel: 'X, delete,ctrl+f5,/'}"
    )
    keys = {"run.cancel": "X, delete,ctrl+f5,/"}
    assert load(path).settings == Settings("spbench-light", 2, keys)
    assert load(path).errors == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("refresh_hz: 50", "refresh_hz: 50 is not a number from 0.5 to 10"),
        ("refresh_hz: true", "refresh_hz: True is not a number"),
        ("them: dark", "there is no setting 'them' (did you mean theme?)"),
        ("theme: 3", "theme: 3 is not a text"),
        ("theme: spbench-lite", "theme: there is no theme 'spbench-lite' (did you mean spbench-li"),
        ("theme: q", "theme: there is no theme 'q'; the palette (Ctrl+P) lists them"),
        ("keys: [a]", "keys: ['a'] is no mapping"),
        ("keys: {run.cancel: 1}", "keys.run.cancel: 1 is not a text"),
        ("keys: {run.pause: notakey foo}", "keys.run.pause: 'notakey foo' is no key"),
        (
            "keys: {run.pause: 'x,delet'}",
            "keys.run.pause: 'delet' is no key (did you mean delete?)",
        ),
        ("keys: {run.pause: ctl+x}", "keys.run.pause: 'ctl+x' is no key"),
        ("keys: {run.pause: ''}", "keys.run.pause: '' is no key; write keys as x, f5 or ctrl+x"),
        ("a: [", "this file is invalid YAML"),
        ("- a", "the file holds no mapping"),
    ],
)
def test_invalid_setting_is_one_error_with_its_path(path, text, message):
    path.write_text(text)
    loaded = load(path)
    assert loaded.settings == Settings()
    [error] = loaded.errors
    assert error.startswith(f"{path}: error: {message}")
    assert "\n" not in error


def test_keeps_valid_settings_next_to_invalid_ones(path):
    path.write_text("them: x\nrefresh_hz: 4\nkeys: {run.pause: no such key, run.cancel: X}\n")
    loaded = load(path)
    assert loaded.settings == Settings(refresh_hz=4, keys={"run.cancel": "X"})
    assert len(loaded.errors) == 2


@pytest.mark.parametrize("key", ["slash", "question_mark", "+", "ctrl+shift+left", "é", "alt+x"])
def test_accepts_key_names(path, key):
    path.write_text(f"keys: {{run.pause: {key!r}}}")
    assert load(path).errors == ()


def test_reports_keys_of_unknown_actions(path):
    settings = Settings(keys={"run.cancl": "X", "run.cancel": "X", "zzz": "Y"})
    assert check_action_ids(path, settings, collect_action_ids()) == (
        f"{path}: error: keys: there is no action 'run.cancl' (did you mean run.cancel?)",
        f"{path}: error: keys: there is no action 'zzz'; F1 shows the ids",
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", "theme: spbench-light\n"),
        ("# mine\n", "# mine\ntheme: spbench-light\n"),
        ("{}\n", "{theme: spbench-light}\n"),
        ("{refresh_hz: 4}", "{theme: spbench-light, refresh_hz: 4}"),
        ("refresh_hz: 4", "refresh_hz: 4\ntheme: spbench-light\n"),
        ("refresh_hz: 4\r\n", "refresh_hz: 4\r\ntheme: spbench-light\r\n"),
        (
            "# mine\ntheme: 'spbench-dark'  # at night\nkeys:\n  run.cancel: X\n",
            "# mine\ntheme: spbench-light  # at night\nkeys:\n  run.cancel: X\n",
        ),
    ],
)
def test_saving_the_theme_keeps_the_rest_of_the_file(path, before, after):
    path.write_bytes(before.encode())
    save_setting(path, "theme", "spbench-light")
    assert path.read_bytes().decode() == after
    assert load(path).settings.theme == "spbench-light"


def test_saves_the_theme_through_a_link_to_a_new_folder(tmp_path):
    target = tmp_path / "deep" / "kept.yaml"
    link = tmp_path / "console.yaml"
    link.symlink_to(target)
    save_setting(link, "theme", "spbench-light")
    assert link.is_symlink()
    assert target.read_text() == "theme: spbench-light\n"


@pytest.mark.parametrize("text", ["- a\n", "a: [", "refresh_hz: 4\n...\n"])
def test_keeps_a_file_that_cannot_be_changed_safely(path, text):
    path.write_text(text)
    with pytest.raises(UsageError, match=str(path)):
        save_setting(path, "theme", "spbench-light")
    assert path.read_text() == text


def test_path_is_in_the_config_folder_or_from_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert find_settings_path({}) == tmp_path / "spbench" / "console.yaml"
    assert find_settings_path({"SPBENCH_CONFIG": "/x/y.yaml"}).as_posix() == "/x/y.yaml"


def test_skips_world_writable_settings_unless_named(path):
    path.write_text("theme: spbench-light\n")
    path.chmod(0o666)
    skipped = load_settings(path, THEMES, explicit=False)
    assert skipped.settings == Settings()
    [error] = skipped.errors
    assert error == (
        f"{path} was skipped: it is world-writable; run chmod o-w {path}; to use it as it is, "
        "name it in SPBENCH_CONFIG"
    )
    with pytest.raises(UsageError, match="was skipped"):
        save_setting(path, "theme", "spbench-dark", explicit=False)
    assert path.read_text() == "theme: spbench-light\n"
    assert load_settings(path, THEMES, explicit=True).settings.theme == "spbench-light"
    path.chmod(0o664)
    assert load_settings(path, THEMES, explicit=False).settings.theme == "spbench-light"


@pytest.mark.parametrize("world_writable", [True, False])
def test_does_not_save_a_theme_in_a_folder_of_others(tmp_path, path, world_writable):
    outside = tmp_path / "outside.yaml"
    folder = tmp_path / "config"
    folder.mkdir()
    (folder / "console.yaml").symlink_to(outside)
    if world_writable:
        folder.chmod(0o777)
    elif os.geteuid() == 0:
        os.chown(folder, 12345, 12345)
    else:
        pytest.skip("only root can give a folder away")
    with pytest.raises(UsageError, match=f"its folder {folder} (is world|belongs)"):
        save_setting(folder / "console.yaml", "theme", "spbench-light", explicit=False)
    assert not outside.exists()


def test_only_the_variable_sets_an_explicit_path():
    assert has_explicit_path({"SPBENCH_CONFIG": "/x/y.yaml"})
    assert not has_explicit_path({"SPBENCH_CONFIG": ""})
    assert not has_explicit_path({"XDG_CONFIG_HOME": "/x"})


async def test_dialog_previews_a_theme_and_saves_the_chosen_one(tmp_path):
    app = make_console(tmp_path, page="run")
    async with app.run_test(size=(80, 24)) as pilot:
        await wait_until(pilot, lambda: "F1 Help" in read_screen(app))
        await pilot.press("comma")
        await wait_until(pilot, lambda: "refresh rate" in read_screen(app))
        await pilot.press("enter")
        await wait_until(pilot, lambda: isinstance(app.screen, ThemeChooser))
        await pilot.press(*"light")
        await wait_until(pilot, lambda: app.theme == "spbench-light")
        await pilot.press("escape")
        await wait_until(pilot, lambda: app.theme == "spbench-dark")
        assert not (tmp_path / "console.yaml").exists()
        await pilot.press("comma")
        await wait_until(pilot, lambda: "refresh rate" in read_screen(app))
        await pilot.press("enter")
        await wait_until(pilot, lambda: isinstance(app.screen, ThemeChooser))
        await pilot.press(*"light")
        await wait_until(pilot, lambda: app.theme == "spbench-light")
        await pilot.press("enter")
        await wait_until(pilot, (tmp_path / "console.yaml").exists)
        await pilot.press("comma")
        await wait_until(pilot, lambda: "refresh rate" in read_screen(app))
        await pilot.press(*"refresh", "enter")
        await wait_until(pilot, lambda: isinstance(app.screen, AskLine))
        await pilot.press(*"99", "enter")
        await wait_until(pilot, lambda: "✗ '99' is not a number from 0.5 to 10" in read_screen(app))
        await pilot.press("backspace", "backspace", "4", "enter")
        await wait_until(pilot, lambda: app.settings.current.refresh_hz == 4)
        await wait_until(pilot, lambda: app.screen.ticks_hz == 4)
    text = (tmp_path / "console.yaml").read_text()
    assert text == "theme: spbench-light\nrefresh_hz: 4\n"


async def test_refresh_rate_that_is_not_saved_is_not_announced(tmp_path):
    app = make_console(tmp_path, page="run", readonly=True)
    async with app.run_test(size=(80, 24)) as pilot:
        await wait_until(pilot, lambda: "F1 Help" in read_screen(app))
        await pilot.press("comma")
        await wait_until(pilot, lambda: "refresh rate" in read_screen(app))
        await pilot.press(*"refresh", "enter")
        await wait_until(pilot, lambda: isinstance(app.screen, AskLine))
        await pilot.press("4", "enter")
        await wait_until(pilot, lambda: app.message_log)
    (message,) = app.message_log
    assert (message.title, message.text) == ("refresh_hz not remembered", "the console is readonly")
