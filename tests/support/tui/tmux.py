"""A terminal for tests: tmux runs a command, sends keys and returns the screen."""

from __future__ import annotations

import os
import shlex
import subprocess
import time
from pathlib import Path


class Tmux:
    """A separate tmux server with one terminal that runs a command."""

    def __init__(
        self, folder: Path, width: int, height: int, arguments: list[str], **env: str
    ) -> None:
        self._socket = str(folder / "tmux")
        environ = os.environ | {"SPBENCH_CONFIG": str(folder / "console.yaml")} | env
        line = f"{shlex.join(arguments)}; echo left with $?; exec cat"
        size = ("-x", str(width), "-y", str(height))
        self._run("-f", "/dev/null", "new-session", "-d", *size, line, env=environ)

    def _run(self, *arguments: str, env: dict[str, str] | None = None) -> str:
        command = ("tmux", "-S", self._socket, *arguments)
        completed = subprocess.run(command, capture_output=True, text=True, check=True, env=env)
        return completed.stdout

    def press(self, *keys: str) -> None:
        self._run("send-keys", *keys)

    def read_screen(self, *options: str) -> str:
        return self._run("capture-pane", "-p", *options)

    def wait_for_text(self, text: str, is_absent: bool = False) -> str:
        end_time = time.monotonic() + 30
        while (text in (screen := self.read_screen())) == is_absent:
            assert time.monotonic() < end_time, (
                f"{text!r} did not {'go' if is_absent else 'come'}:\n{screen}"
            )
            time.sleep(0.05)
        return screen

    def close(self) -> None:
        subprocess.run(("tmux", "-S", self._socket, "kill-server"), check=False)
