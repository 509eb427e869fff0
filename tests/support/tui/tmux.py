"""A real terminal: tmux runs a command in one, sends it keys and reads its screen back."""

from __future__ import annotations

import os
import shlex
import subprocess
import time
from pathlib import Path


class Tmux:
    """A tmux server of its own with one terminal that runs a command."""

    def __init__(self, folder: Path, width: int, height: int, words: list[str], **env: str) -> None:
        self._socket = str(folder / "tmux")
        environ = os.environ | {"SPBENCH_CONFIG": str(folder / "console.yaml")} | env
        line = f"{shlex.join(words)}; echo left with $?; exec cat"
        size = ("-x", str(width), "-y", str(height))
        self._do("-f", "/dev/null", "new-session", "-d", *size, line, env=environ)

    def _do(self, *words: str, env: dict[str, str] | None = None) -> str:
        command = ("tmux", "-S", self._socket, *words)
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=env)
        return done.stdout

    def press(self, *keys: str) -> None:
        self._do("send-keys", *keys)

    def screen(self, *options: str) -> str:
        return self._do("capture-pane", "-p", *options)

    def wait_for(self, text: str, gone: bool = False) -> str:
        ends = time.monotonic() + 30
        while (text in (screen := self.screen())) == gone:
            assert time.monotonic() < ends, (
                f"{text!r} did not {'go' if gone else 'come'}:\n{screen}"
            )
            time.sleep(0.05)
        return screen

    def close(self) -> None:
        subprocess.run(("tmux", "-S", self._socket, "kill-server"), check=False)
