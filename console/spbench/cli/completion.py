"""``spbench completion``: print or install the completion script of a shell."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from spbench.cli.error_reporting import ENV_COMPLETE
from spbench.errors import FailedRunError, UsageError, did_you_mean

SHELLS = ("bash", "zsh", "fish")
MARK = "# added by spbench completion --install"
"""The end of the line in a shell's configuration, which identifies it."""


@dataclass(frozen=True, slots=True)
class CompletionFiles:
    """The files of an installed completion.

    Attributes:
        script: The completion script.
        configuration: The file that the shell reads at its start; None if it finds the script.
        line: The line of the configuration that loads the script.
    """

    script: Path
    configuration: Path | None = None
    line: str = ""


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command()(completion)


def completion(
    shell: Annotated[
        str | None,
        typer.Argument(help="bash, zsh or fish", metavar="SHELL", show_default="from $SHELL"),
    ] = None,
    install: Annotated[
        bool,
        typer.Option(
            "--install", help="Write the script, and load it in the shell's start-up file"
        ),
    ] = False,
    show: Annotated[
        bool, typer.Option("--show", help="Print the script (done without an option, too)")
    ] = False,
) -> None:
    """Complete commands, options, cases and runs in your shell."""
    name = _shell_name(shell, os.environ)
    if install and show:
        raise UsageError("--install writes the script and --show prints it; give one of them")
    if install:
        _install(name, os.environ)
    else:
        sys.stdout.write(f"{_completion_script(name)}\n")


def completion_files(shell: str, environ: Mapping[str, str]) -> CompletionFiles:
    """Return the files of a shell's completion, from the shell's variables."""
    home = Path(environ["HOME"])
    if shell == "fish":
        folder = Path(environ.get("XDG_CONFIG_HOME") or home / ".config")
        return CompletionFiles(folder / "fish" / "completions" / "spbench.fish")
    data_folder = Path(environ.get("XDG_DATA_HOME") or home / ".local" / "share")
    script = data_folder / "spbench" / f"completion.{shell}"
    load_line = f"[ ! -r {shlex.quote(str(script))} ] || . {shlex.quote(str(script))}"
    if shell == "bash":
        return CompletionFiles(script, home / ".bashrc", f"{load_line}  {MARK}")
    folder = Path(environ.get("ZDOTDIR") or home)
    # The script needs compdef, which many configurations have loaded before.
    prepare_line = "(( $+functions[compdef] )) || { autoload -Uz compinit && compinit; }"
    return CompletionFiles(script, folder / ".zshrc", f"{prepare_line}; {load_line}  {MARK}")


def _shell_name(shell: str | None, environ: Mapping[str, str]) -> str:
    if shell is None:
        shell = Path(environ.get("SHELL", "")).name
        shell = shell if shell in SHELLS else "bash"
    if shell not in SHELLS:
        raise UsageError(
            f"unknown shell {shell}{did_you_mean(shell, SHELLS)}; choose from {', '.join(SHELLS)}"
        )
    return shell


def _completion_script(shell: str) -> str:
    from typer.completion import get_completion_script  # type: ignore[attr-defined]

    script: str = get_completion_script(prog_name="spbench", complete_var=ENV_COMPLETE, shell=shell)
    return script


def _install(shell: str, environ: Mapping[str, str]) -> None:
    files = completion_files(shell, environ)
    try:
        changed = [
            *_write_script(files.script, f"{_completion_script(shell)}\n"),
            *_add_line(files),
        ]
    except OSError as error:
        raise FailedRunError(f"cannot write {error.filename}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise FailedRunError(f"{files.configuration} is not UTF-8; add: {files.line}") from None
    for line in changed:
        print(line)
    if changed:
        print(f"open a new {shell} to use it")
    else:
        print(f"completion for {shell} is installed already, in {files.script}")


def _write_script(path: Path, text: str) -> list[str]:
    from spbench.record.runs.files import write_file

    if path.is_file() and path.read_text(errors="replace") == text:
        return []
    write_file(path, text)
    return [f"wrote {path}"]


def _add_line(files: CompletionFiles) -> list[str]:
    """Append a line to the shell's configuration if it is missing."""
    path = files.configuration
    if path is None:
        return []
    old = path.read_text() if path.exists() else ""
    if files.line in old.splitlines():
        return []
    path.parent.mkdir(parents=True, exist_ok=True)
    # Appending keeps the file's mode, and a link into a folder of dotfiles.
    with path.open("a") as file:
        file.write(("\n" if old and not old.endswith("\n") else "") + f"{files.line}\n")
    return [f"added a line to {path}"]
